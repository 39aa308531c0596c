"""Ids as text, one at a time: what is written is never taken back, and never half a character."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence

from elman.text.units.alphabet import bytes_of
from elman.text.units.letters import SPACE_MARK
from elman.text.units.vocabulary import EOS_ID, UNK, UNK_ID


class Decoder(ABC):
    """The text of a sequence of ids, as it grows. The end of a line is a newline."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._is_line_start = True

    def push(self, token_id: int) -> str:
        """What can be said after one more token: perhaps nothing yet."""
        if token_id == EOS_ID:
            self._is_line_start = True
            return self._end_line()
        text = self._next(token_id)
        self._is_line_start = False
        return text

    def finish(self) -> str:
        """What is still to say when no more tokens come."""
        return ""

    def _end_line(self) -> str:
        return "\n"

    @abstractmethod
    def _next(self, token_id: int) -> str:
        """The text of a token that is not the end of a line."""


class SymbolDecoder(Decoder):
    """Symbols with something between them: `space` units; with nothing between them: `char` units."""

    def __init__(self, tokens: Sequence[str], between: str) -> None:
        super().__init__(tokens)
        self._between = between

    def _next(self, token_id: int) -> str:
        return self._tokens[token_id] if self._is_line_start else self._between + self._tokens[token_id]


class WordDecoder(Decoder):
    """Words that bring the space before them; a line's first one is not written."""

    def _next(self, token_id: int) -> str:
        text = " " + UNK if token_id == UNK_ID else self._tokens[token_id].replace(SPACE_MARK, " ")
        return text.removeprefix(" ") if self._is_line_start else text


class ByteDecoder(Decoder):
    """Bytes, held back until they are whole characters; what never becomes one is U+FFFD."""

    def __init__(self, tokens: Sequence[str], *, is_spaced: bool) -> None:
        super().__init__(tokens)
        self._is_spaced = is_spaced  # as with words, a line's first space is not written
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def _next(self, token_id: int) -> str:
        content = UNK.encode() if token_id == UNK_ID else bytes_of(self._tokens[token_id])
        if self._is_spaced and self._is_line_start:
            content = content.removeprefix(b" ")
        return self._utf8.decode(content)

    def _end_line(self) -> str:
        return self._utf8.decode(b"\n")

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)
