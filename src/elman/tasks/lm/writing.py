"""How a language model goes on with a text: the prompt as ids and as a state, and the text that tokens add to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.tasks.lm.record import LmRecord
from elman.text.units.decoding import Decoder
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID

SEEN_TOKENS = 4  # at the end of a prompt: of how many a character can be the bytes


@dataclass(frozen=True)
class Prompt:
    """A text to go on from."""

    ids: Array  # (T,) int64
    has_space: bool = False  # it ended in one, which the next word brings

    @classmethod
    def of_ids(cls, ids: Sequence[int], vocab_size: int) -> Prompt:
        """Ids that somebody gave."""
        foreign = [token for token in ids if not 0 <= token < vocab_size]
        if foreign:
            raise UsageError(
                f"there is no token {foreign[0]}", code="unknown-word", hint=f"tokens are 0 to {vocab_size - 1}"
            )
        return cls(np.array(ids, dtype=np.int64))


class Writer:
    """The text that each token after a prompt adds."""

    def __init__(self, decoder: Decoder, prompt: Prompt, *, writes_line_ends: bool) -> None:
        self._decoder = decoder
        self._drops_space = prompt.has_space
        self._writes_line_ends = writes_line_ends
        for token in prompt.ids[-SEEN_TOKENS:].tolist():
            decoder.push(token)

    def push(self, token: int) -> str:
        """The text that one more token adds, possibly empty."""
        text = self._decoder.push(token)
        if self._drops_space and text:
            text, self._drops_space = text.removeprefix(" "), False
        return text if token != EOS_ID or self._writes_line_ends else ""

    def finish(self) -> str:
        """The remaining text after the last token."""
        return self._decoder.finish()


class WritesText:
    """Of a language model at the text level: what it needs to continue a text."""

    record: LmRecord
    tokenizer: Tokenizer
    lm: Any

    def prompt(self, text: str | Sequence[int]) -> Prompt:
        """A text as ids, or ids. Where words bring their space along, one at the end is not a word of its own."""
        if not isinstance(text, str):
            return Prompt.of_ids(text, self.tokenizer.vocab_size)
        self.record.data.watch(text)
        has_space = text.endswith(" ") and self._words_bring_space
        ids = self.tokenizer.encode_text(text.rstrip(" ") if has_space else text)
        return Prompt(ids.astype(np.int64), has_space)

    @property
    def _words_bring_space(self) -> bool:
        """Whether the space before a word is written with it."""
        kind = self.tokenizer.units.partition(":")[0]
        return kind in ("word", "bpe") or (kind == "space" and self.tokenizer.separator is None)

    def writer(self, prompt: Prompt) -> Writer:
        """What gives the text of the tokens that follow a prompt. A model of single lines writes no ends of lines."""
        return Writer(self.tokenizer.decoder(), prompt, writes_line_ends=not self.record.data.reset_lines)

    def remembered(self, ids: Array) -> Array:
        """What of some ids the state after them depends on: of a model of single lines, the line that is not ended yet."""
        if not self.record.data.reset_lines:
            return ids
        return ids[len(ids) - int(np.argmax(np.append(ids[::-1] == EOS_ID, True))) :]

    def _read(self, text: str) -> tuple[Prompt, Any]:
        """A text, and the state after it."""
        if not isinstance(text, str):
            raise UsageError(f"a text is needed, not {text!r}", code="wrong-type", hint="give one text, as a string")
        prompt = self.prompt(text)
        ids, state = self.remembered(prompt.ids), self.lm.start(1)
        if len(ids):
            _, state = self.lm.score(ids[None], np.array([len(ids)]), state)
        return prompt, state

    def _texts(self, prompt: Prompt, tokens: Iterable[int]) -> Iterator[str]:
        writer = self.writer(prompt)
        for token in tokens:
            yield writer.push(token)
        yield writer.finish()

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens after which there is nothing to write."""
        return (EOS_ID,) if self.record.data.reset_lines else ()
