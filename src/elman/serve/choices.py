"""One continuation of one prompt as a client sees it: text, and what each token's probability was.

The text of a stream and of a whole answer are the same by construction: the one is sent in parts, the other joined.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from elman.api import Model
from elman.lm.shaping import Shaping
from elman.lm.stopping import StopTexts
from elman.serve.batching import Row, Top
from elman.serve.handover import Mailbox
from elman.text.units.vocabulary import EOS_ID

SEEN_TOKENS = 4  # before a token, on which depends how it is written
IMPOSSIBLE = -9999.0  # the log-probability of a token that has none, as JSON knows no infinity

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenRecord:
    """A token, its log-probability (None: the first of a text), the likeliest ones in its place, where it stands."""

    token: str
    log_prob: float | None
    top: dict[str, float] | None
    offset: int


@dataclass
class Part:
    """What one more token gave: text, records, and how it ended if it did."""

    text: str = ""
    records: list[TokenRecord] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    num_drawn: int = 0  # tokens so far

    def logprobs(self) -> dict[str, Any]:
        """OpenAI's table."""
        return {
            "tokens": [record.token for record in self.records],
            "token_logprobs": [record.log_prob for record in self.records],
            "top_logprobs": [record.top for record in self.records],
            "text_offset": [record.offset for record in self.records],
        }


def joined(parts: Sequence[Part]) -> Part:
    """Parts as one."""
    return Part(
        "".join(part.text for part in parts),
        [record for part in parts for record in part.records],
        parts[-1].finish_reason,
        parts[-1].error,
        parts[-1].num_drawn,
    )


@dataclass(frozen=True)
class GivenPrompt:
    """A prompt as a client gave it: its text, its tokens after the start state, and where each of them stands."""

    text: str
    tokens: Any  # the model's own `Prompt`
    offsets: Sequence[int]
    starts_with_end: bool = False  # an end-of-sequence stands before it, which means the start state

    @property
    def num_tokens(self) -> int:
        """As a client counts them."""
        return len(self.tokens.ids) + self.starts_with_end


@dataclass(frozen=True)
class Wish:
    """How a prompt is to be continued."""

    max_tokens: int
    shaping: Shaping
    stops: Sequence[str]
    stop_ids: frozenset[int]
    echo: bool
    top: int | None  # so many likeliest tokens are told at each place; None: no records at all
    deadline: float  # on time.monotonic's clock


class Choice(Row):
    """A row of the batch that makes parts of its tokens and hands them on."""

    def __init__(
        self,
        model: Model,
        prompt: GivenPrompt,
        wish: Wish,
        *,
        mailbox: Mailbox,
        rng: np.random.Generator,
        deliver: Callable[[Part], None],
    ) -> None:
        reads = wish.echo and wish.top is not None  # token by token, to tell the probabilities of the prompt
        ids = prompt.tokens.ids.tolist()
        super().__init__(owner=mailbox, forced=ids if reads else (), shaping=wish.shaping, rng=rng, top=wish.top or 0)
        self._model = model
        self._mailbox = mailbox  # where its parts wait
        self._wish = wish
        self._deliver = deliver
        self._stops = StopTexts(wish.stops)
        self._writer = model.writer(prompt.tokens)
        self._unread = deque(prompt.offsets if reads else ())
        self._is_first = reads and not prompt.starts_with_end  # nothing stands before the next token
        self._num_drawn = 0
        self._offset = self._sent = len(prompt.text) if wish.echo else 0  # characters written, characters handed on
        self._held: list[TokenRecord] = []
        self._before: list[int] = [] if reads else ids[-SEEN_TOKENS:]
        self._head = Part(text=prompt.text if wish.echo else "")
        if reads and prompt.starts_with_end:
            self._head.records.append(TokenRecord(self._symbol(EOS_ID), None, None, 0))

    @property
    def is_stalled(self) -> bool:
        """Whether its parts are not sent as fast as they come: the client reads slowly, or not at all."""
        return self._mailbox.is_full

    def begin(self) -> bool:
        """Hand on what is known before the first token. -> whether there is one"""
        goes_on = bool(self._unread) or self._wish.max_tokens > 0
        if not goes_on:
            self._head.finish_reason = "length"
        self._deliver(self._head)
        return goes_on

    def push(self, token: int, log_prob: float, top: Top) -> bool:
        """See `Row`."""
        part = self._read(token, log_prob, top) if self._unread else self._draw(token, log_prob, top)
        self._deliver(part)
        return part.finish_reason is None

    def fail(self, error: Exception) -> None:
        """See `Row`."""
        self._deliver(Part(error=error, num_drawn=self._num_drawn))

    def _read(self, token: int, log_prob: float, top: Top) -> Part:
        """One more token of the prompt."""
        record = self._record(token, log_prob, top, self._unread.popleft())
        if self._is_first:
            record = replace(record, log_prob=None, top=None)
            self._is_first = False
        is_over = not self._unread and self._wish.max_tokens == 0
        return Part(records=[record], finish_reason="length" if is_over else None)

    def _draw(self, token: int, log_prob: float, top: Top) -> Part:
        """One more token that was drawn."""
        self._num_drawn += 1
        is_end = token in self._wish.stop_ids
        is_last = is_end or self._num_drawn >= self._wish.max_tokens or time.monotonic() > self._wish.deadline
        text = "" if is_end else self._writer.push(token)
        if self._wish.top is not None:
            num_spaces = len(text) - len(text.lstrip(" ")) if text.strip() else 0
            self._held.append(self._record(token, log_prob, top, self._offset + num_spaces))
        text += self._writer.finish() if is_last else ""
        self._offset += len(text)
        ready = self._stops.push(text)
        is_found = self._stops.is_found
        if is_last and not is_found:
            ready += self._stops.finish()
        self._sent += len(ready)
        # what stands behind the text that is handed on waits, and is never told if a stop text begins there
        sent = [one for one in self._held if one.offset < self._sent or (self._sent == self._offset and not is_found)]
        self._held = self._held[len(sent) :]
        reason: FinishReason | None = "stop" if is_found or is_end else "length" if is_last else None
        return Part(ready, sent, reason, num_drawn=self._num_drawn)

    def _record(self, token: int, log_prob: float, top: Top, offset: int) -> TokenRecord:
        """The token's own probability stands in its table too, as the very same number."""
        name = self._symbol(token)
        table = {name: finite(log_prob)}
        for other, value in top:
            if other != token:
                key = self._symbol(other)
                table[f"token_id:{other}" if key in table else key] = finite(value)  # some tokens look the same
        self._before = [*self._before, token][-SEEN_TOKENS:]
        return TokenRecord(name, finite(log_prob), dict(sorted(table.items(), key=lambda item: -item[1])), offset)

    def _symbol(self, token: int) -> str:
        return self._model.symbol(token, np.array(self._before, dtype=np.int64))


def finite(log_prob: float) -> float:
    """A log-probability as JSON can have it."""
    return max(log_prob, IMPOSSIBLE)
