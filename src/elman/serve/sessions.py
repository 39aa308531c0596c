"""States that are kept between calls. The number is bounded: the one that was not used for longest leaves."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from elman.core.arrays import Array
from elman.serve.errors import ApiError
from elman.serve.handover import read_tokens
from elman.serve.schemas import MAX_CHARACTERS, MAX_PROMPT_TOKENS
from elman.serve.served import Served


@dataclass(frozen=True)
class Position:
    """How far a text was read: its ids, and the state after them."""

    ids: Array
    state: Any


@dataclass(frozen=True)
class Session:
    """A text that was read. A value: advancing gives another one."""

    id: str
    served: Served
    text: str
    has_space: bool
    now: Position
    before: Position | None = None  # one token earlier: while a word is typed, only the last token changes

    def as_json(self) -> dict[str, Any]:
        """As a client sees it."""
        return {
            "id": self.id,
            "object": "session",
            "model": self.served.id,
            "text": self.text,
            "tokens": len(self.now.ids),
        }


class Sessions:
    """All sessions, by ids that cannot be guessed. Used on the event loop alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, name: str) -> Session:
        """The session of that id, now the one that was used last."""
        if name not in self._by_id:
            raise ApiError(
                404, "there is no such session: it was closed, or left for newer ones", code="session_not_found"
            )
        self._by_id.move_to_end(name)
        return self._by_id[name]

    def keep(self, session: Session) -> Session:
        """Keep a session, in place of the one with its id."""
        self._by_id[session.id] = session
        self._by_id.move_to_end(session.id)
        while len(self._by_id) > self._limit:
            self._by_id.popitem(last=False)
        return session

    def close(self, name: str) -> None:
        """Forget one."""
        self.find(name)
        del self._by_id[name]


def new_id() -> str:
    """An id that nobody guesses."""
    return f"sess-{secrets.token_urlsafe(24)}"


async def read_session(name: str, served: Served, text: str, prompt: Any, earlier: Session | None = None) -> Session:
    """A session that has read a text, going on from an earlier one as far as the tokens are the same.

    prompt: the text as tokens.
    """
    model, worker = served.language_model()
    if len(text) > MAX_CHARACTERS or len(prompt.ids) > MAX_PROMPT_TOKENS:
        raise ApiError(400, f"a session has at most {MAX_PROMPT_TOKENS} tokens and {MAX_CHARACTERS} characters")
    restarts = model.record.data.reset_lines
    known = [one for one in (earlier.now, earlier.before) if one] if earlier else []
    start = next((one for one in known if _begins_with(prompt.ids, one.ids)), Position(prompt.ids[:0], None))
    rest = prompt.ids[len(start.ids) :]
    if not len(rest) and start.state is not None:
        before = earlier.before if earlier and start is earlier.now else None
        return Session(name, served, text, prompt.has_space, start, before)
    state, before = start.state, None
    if len(rest) > 1:
        state, _ = await read_tokens(worker, rest[:-1], state=state, restarts=restarts)
    if len(prompt.ids):
        before = None if state is None else Position(prompt.ids[:-1], state)
    state, _ = await read_tokens(worker, rest[-1:], state=state, restarts=restarts)
    return Session(name, served, text, prompt.has_space, Position(prompt.ids, state), before)


def _begins_with(ids: Array, beginning: Array) -> bool:
    return len(beginning) <= len(ids) and bool((ids[: len(beginning)] == beginning).all())
