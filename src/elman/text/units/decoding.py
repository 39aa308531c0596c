"""Streaming decoding: ids to text, one at a time, never part of a character."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence

from elman.text.units.alphabet import bytes_of
from elman.text.units.letters import SPACE_MARK
from elman.text.units.vocabulary import EOS_ID, UNK, UNK_ID


class Decoder(ABC):
    """Decodes a growing sequence of ids. The end of a line is a newline."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._is_line_start = True

    def push(self, token_id: int) -> str:
        """The text that one more token adds, possibly empty."""
        if token_id == EOS_ID:
            self._is_line_start = True
            return self._end_line()
        text = self._next(token_id)
        self._is_line_start = False
        return text

    def finish(self) -> str:
        """The remaining text after the last token."""
        return ""

    def _end_line(self) -> str:
        return "\n"

    @abstractmethod
    def _next(self, token_id: int) -> str:
        """The text of a token that is not the end of a line."""


class SymbolDecoder(Decoder):
    """Symbols joined by a separator (`space` units) or by nothing (`char` units)."""

    def __init__(self, tokens: Sequence[str], between: str) -> None:
        super().__init__(tokens)
        self._between = between

    def _next(self, token_id: int) -> str:
        return self._tokens[token_id] if self._is_line_start else self._between + self._tokens[token_id]


class WordDecoder(Decoder):
    """Words that include the space before them; the space at the start of a line is dropped."""

    def _next(self, token_id: int) -> str:
        text = " " + UNK if token_id == UNK_ID else self._tokens[token_id].replace(SPACE_MARK, " ")
        return text.removeprefix(" ") if self._is_line_start else text


class ByteDecoder(Decoder):
    """Bytes, buffered until they form whole characters; invalid ones become U+FFFD."""

    def __init__(self, tokens: Sequence[str], *, is_spaced: bool) -> None:
        super().__init__(tokens)
        self._is_spaced = is_spaced  # as with words, the space at the start of a line is dropped
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
