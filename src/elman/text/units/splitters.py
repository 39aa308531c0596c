"""Text to ids, one class per kind of units: `encode_line` for one line, the vectorised `encode` for a block of lines.

A splitter either learns (a new symbol gets the next id) or is fixed (a new symbol is <unk>). Tests check that both methods
and the `tokenizers` library give the same ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.text.units.alphabet import BYTE_CHARACTERS, BYTE_OF
from elman.text.units.chunks import LINE_END, Chunks, ChunkTable, cut_at_spaces, cut_at_whitespace
from elman.text.units.letters import SPACE_MARK, split_long, split_words
from elman.text.units.vocabulary import EOS, EOS_ID, UNK, UNK_ID

SPECIAL_TOKENS = (UNK, EOS)  # the first two symbols of every vocabulary
MEMO_CHUNKS = (
    200_000  # chunks whose ids are cached, some 60 MB; then the cache is cleared, so that memory stays bounded
)
MEMO_BYTES = 64  # longer chunks are not cached: they rarely occur again
PIECE_BYTES = 1 << 20  # longer lines are split into pieces of about this size, to limit the memory for words
_WHITESPACE = re.compile(r"[ \t\n\v\f\r]+")  # ASCII only; str.split() would also split at U+00A0 and U+3000


# Between two chunks, wherever they are cut: a newline, or the first space of a run that does not end its line.
_CUT = re.compile(rb"\n|(?<=[^ \n]) (?!\n)")


class Splitter(ABC):
    """Encodes text as ids."""

    @abstractmethod
    def encode_line(self, line: str) -> Sequence[int] | Array:
        """The ids of one line, without EOS_ID."""

    @abstractmethod
    def encode(self, lines: bytes) -> Array:
        """The ids of whole lines, each ended by a newline, and EOS_ID for each newline. -> int32"""

    @abstractmethod
    def symbols(self) -> list[str]:
        """Every symbol, by id."""


class _Ids(dict[str, int]):
    """Ids of symbols, without EOS."""

    def __init__(self, symbols: Sequence[str], learns: bool) -> None:
        super().__init__((symbol, i) for i, symbol in enumerate(symbols) if i != EOS_ID)
        self.learns = learns

    def __missing__(self, symbol: str) -> int:
        if not self.learns:
            return UNK_ID
        self[symbol] = len(self) + 1  # EOS_ID is used but not in the dictionary
        return self[symbol]

    def symbols(self) -> list[str]:
        symbols = list(self)
        return [*symbols[:EOS_ID], EOS, *symbols[EOS_ID:]]


class SpaceSplitter(Splitter):
    """Symbols between ASCII whitespace, exactly as given."""

    def __init__(self, symbols: Sequence[str] = SPECIAL_TOKENS, *, learns: bool = False) -> None:
        pieces = [symbol.encode() for symbol in symbols]
        pieces[EOS_ID] = LINE_END
        self._table = ChunkTable(pieces)
        self._learns = learns
        self._ids = _Ids(symbols, learns=False)

    def encode_line(self, line: str) -> list[int]:
        return [self._ids[symbol] for symbol in _WHITESPACE.split(line) if symbol]

    def encode(self, lines: bytes) -> Array:
        return _encode_in_pieces(self._encode_piece, lines)

    def _encode_piece(self, lines: bytes) -> Array:
        chunks = cut_at_whitespace(lines)
        return self._table.learn(chunks) if self._learns else np.maximum(self._table.find(chunks), UNK_ID)

    def symbols(self) -> list[str]:
        pieces = self._table.pieces()
        pieces[EOS_ID] = EOS.encode()
        return [piece.decode() for piece in pieces]


class _LineSplitter(Splitter):
    """Encodes line by line."""

    def encode(self, lines: bytes) -> Array:
        ids: list[int] = []
        for line in lines[:-1].decode().split("\n"):
            ids += self.encode_line(line)
            ids.append(EOS_ID)
        return np.array(ids, dtype=np.int32)


class SeparatorSplitter(_LineSplitter):
    """Symbols between separators, which may be any string; so symbols may contain spaces."""

    def __init__(self, separator: str, symbols: Sequence[str] = SPECIAL_TOKENS, *, learns: bool = False) -> None:
        self._separator = separator
        self._ids = _Ids(symbols, learns)

    def encode_line(self, line: str) -> list[int]:
        return [self._ids[symbol] for symbol in line.split(self._separator) if symbol]

    def symbols(self) -> list[str]:
        return self._ids.symbols()


def _encode_in_pieces(encode: Callable[[bytes], Array], lines: bytes) -> Array:
    """encode(lines), where it takes many times their size: a long line is cut between its words, and encoded piece by piece."""
    parts, start = [], 0
    while len(lines) - start > 4 * PIECE_BYTES and (cut := _CUT.search(lines, start + PIECE_BYTES)):
        ids = encode(lines[start : cut.start()] + b"\n")
        parts.append(ids if cut[0] == b"\n" else ids[:-1])  # without the end of a line that goes on
        start = cut.end()
    return np.concatenate([*parts, encode(lines[start:])]) if parts else encode(lines)


class _MemoSplitter(Splitter):
    """Splits at spaces, and caches the ids of every short chunk. A space is added before each line."""

    def __init__(self) -> None:
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._table = ChunkTable([LINE_END])
        self._sizes = np.array([1])  # number of ids of each chunk
        self._flat = np.array([EOS_ID], dtype=np.int32)  # the ids of all chunks, concatenated

    @abstractmethod
    def _encode_chunks(self, chunks: Iterable[bytes]) -> Iterator[Sequence[int] | Array]:
        """The ids of each chunk, which follows a space."""

    def encode(self, lines: bytes) -> Array:
        return _encode_in_pieces(self._encode_piece, lines)

    def _encode_piece(self, lines: bytes) -> Array:
        chunks = cut_at_spaces(lines)
        if len(self._table) > MEMO_CHUNKS:
            self._clear_cache()
        numbers = self._table.find(chunks)
        unknown = np.flatnonzero(numbers < 0)
        is_short = chunks.lengths[unknown] <= MEMO_BYTES
        long = unknown[~is_short]
        if len(long):
            self._number(chunks.select(unknown))
        numbers[unknown[is_short]] = self._remember(chunks.select(unknown[is_short]))
        sizes, flat = self._sizes, self._flat
        if len(long):  # numbered after the cached ones, for this block only
            numbers[long] = len(sizes) + np.arange(len(long))
            sizes, flat = _appended(sizes, flat, self._encode_chunks(chunks.select(long)))
        return _gather(numbers, sizes, flat)

    def _number(self, chunks: Chunks) -> None:
        """Number new symbols in the order of the text: long chunks are encoded after the short ones of a block."""

    def _remember(self, chunks: Chunks) -> Array:
        numbers = self._table.learn(chunks)
        _, first = np.unique(numbers, return_index=True)
        first = first[numbers[first] >= len(self._sizes)]
        new = self._encode_chunks(chunks.select(first))
        self._sizes, self._flat = _appended(self._sizes, self._flat, new)
        return numbers


def _appended(sizes: Array, flat: Array, new: Iterable[Sequence[int] | Array]) -> tuple[Array, Array]:
    arrays = [np.asarray(ids, dtype=np.int32) for ids in new]
    more = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    return np.concatenate([sizes, more]), np.concatenate([flat, *arrays])


def _gather(numbers: Array, sizes: Array, flat: Array) -> Array:
    """The ids of these chunks, concatenated."""
    begins = np.cumsum(sizes) - sizes
    counts = sizes.take(numbers)
    ends = np.cumsum(counts)
    index = np.repeat(begins.take(numbers) - ends + counts, counts)
    index += np.arange(len(index))
    return flat.take(index)


class WordSplitter(_MemoSplitter):
    """Words and punctuation of raw text, each with the space before it, so that decoding restores the text."""

    def __init__(self, symbols: Sequence[str] = SPECIAL_TOKENS, *, learns: bool = False) -> None:
        super().__init__()
        self._ids = _Ids(symbols, learns)

    def encode_line(self, line: str) -> Sequence[int] | Array:
        if len(line) > PIECE_BYTES:
            pieces = split_long(line, PIECE_BYTES)
            return np.concatenate([np.array([self._ids[word] for word in words], dtype=np.int32) for words in pieces])
        return [self._ids[word] for word in split_words(line)]

    def _number(self, chunks: Chunks) -> None:
        if self._ids.learns:
            for _ in self._encode_chunks(chunks):
                pass

    def _encode_chunks(self, chunks: Iterable[bytes]) -> Iterator[Sequence[int] | Array]:
        for chunk in chunks:  # split_words adds a space to a text, but not to an empty one
            yield self.encode_line(chunk.decode()) if chunk else [self._ids[SPACE_MARK]]

    def symbols(self) -> list[str]:
        return self._ids.symbols()


class BpeSplitter(_MemoSplitter):
    """Byte-level BPE. `backend` is a tokenizer of the `tokenizers` library without added tokens; ids are its own."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self._backend = backend

    def encode_line(self, line: str) -> list[int]:
        return self._encode_pieces(line) if line else []

    def _encode_pieces(self, text: str) -> list[int]:
        pieces = bpe_pieces(text.encode())
        return [i for piece in pieces for i in self._backend.encode(piece, add_special_tokens=False).ids]

    def _encode_chunks(self, chunks: Iterable[bytes]) -> Iterator[Sequence[int] | Array]:
        texts = [chunk.decode() for chunk in chunks]
        if any(len(text) > PIECE_BYTES // 4 for text in texts):  # one at a time: the library's output is large
            yield from (self._encode_pieces(text) for text in texts)
        else:
            batch = self._backend.encode_batch_fast([" " + text for text in texts], add_special_tokens=False)
            yield from (encoding.ids for encoding in batch)

    def symbols(self) -> list[str]:
        return [self._backend.id_to_token(i) for i in range(self._backend.get_vocab_size())]


class LineBpeSplitter(_LineSplitter):
    """Byte-level BPE that cuts text as another tool does: whole lines, as they are. `backend` as for `BpeSplitter`."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def encode_line(self, line: str) -> list[int]:
        pieces = list(cut_pieces(line.encode()))
        batch = self._backend.encode_batch_fast(pieces, add_special_tokens=False)
        return [i for encoding in batch for i in encoding.ids]

    def symbols(self) -> list[str]:
        return [self._backend.id_to_token(i) for i in range(self._backend.get_vocab_size())]


def bpe_pieces(line: bytes) -> Iterator[str]:
    """A line with a space before it, in pieces small enough for the library."""
    return cut_pieces(b" " + line)


def cut_pieces(line: bytes) -> Iterator[str]:
    """A line in pieces small enough for the library, cut before a space if possible."""
    start = 0
    while start < len(line):
        end = min(start + PIECE_BYTES, len(line))
        if end < len(line):
            space = line.rfind(b" ", start, end)
            space = start + len(line[start:space].rstrip(b" ")) if space > start else start  # keep runs of spaces whole
            end = space if space > start else end
            while line[end] & 0xC0 == 0x80:  # not inside a UTF-8 character
                end -= 1
        yield line[start:end].decode()
        start = end


class _CodeSplitter(Splitter):
    """Units that are integers (characters, bytes): a table of ids by code."""

    def __init__(self, num_codes: int, codes: Sequence[int], *, learns: bool) -> None:
        self._learns = learns
        self._codes = list(codes)  # codes of the symbols from id 2 on
        self._ids = np.full(num_codes, -1 if learns else UNK_ID, dtype=np.int32)
        self._ids[self._codes] = np.arange(len(SPECIAL_TOKENS), len(SPECIAL_TOKENS) + len(self._codes))
        self._ids[ord("\n")] = EOS_ID

    def _encode_codes(self, codes: Array) -> Array:
        ids: Array = self._ids.take(codes)
        if self._learns:
            unknown = codes[ids < 0]
            if len(unknown):
                new, first = np.unique(unknown, return_index=True)
                new = new[np.argsort(first)]
                self._ids[new] = np.arange(len(new)) + len(self._codes) + len(SPECIAL_TOKENS)
                self._codes += new.tolist()
                ids = self._ids.take(codes)
        return ids


class CharSplitter(_CodeSplitter):
    """Unicode characters."""

    def __init__(self, symbols: Sequence[str] = SPECIAL_TOKENS, *, learns: bool = False) -> None:
        super().__init__(0x110000, [ord(symbol) for symbol in symbols[len(SPECIAL_TOKENS) :]], learns=learns)

    def encode_line(self, line: str) -> Array:
        return self._encode_codes(np.frombuffer(line.encode("utf-32-le"), dtype="<u4"))

    def encode(self, lines: bytes) -> Array:
        if lines.isascii():
            return self._encode_codes(np.frombuffer(lines, dtype=np.uint8))
        return self._encode_codes(np.frombuffer(lines.decode().encode("utf-32-le"), dtype="<u4"))

    def symbols(self) -> list[str]:
        return [*SPECIAL_TOKENS, *map(chr, self._codes)]


class ByteSplitter(_CodeSplitter):
    """Bytes, valid UTF-8 or not. All 256 are symbols."""

    def __init__(self, symbols: Sequence[str] = SPECIAL_TOKENS, *, learns: bool = False) -> None:
        super().__init__(256, [BYTE_OF[symbol] for symbol in symbols[len(SPECIAL_TOKENS) :]], learns=learns)

    def encode_line(self, line: str) -> Array:
        return self._encode_codes(np.frombuffer(line.encode(), dtype=np.uint8))

    def encode(self, lines: bytes) -> Array:
        return self._encode_codes(np.frombuffer(lines, dtype=np.uint8))

    def symbols(self) -> list[str]:
        unseen = sorted(set(range(256)) - set(self._codes))
        return [*SPECIAL_TOKENS, *(BYTE_CHARACTERS[byte] for byte in [*self._codes, *unseen])]


def learner(units: str, separator: str | None) -> Splitter:
    """A splitter that learns its symbols. (BPE is trained in bpe.py.)"""
    match units:
        case "space" if separator is not None:
            return SeparatorSplitter(separator, learns=True)
        case "space":
            return SpaceSplitter(learns=True)
        case "word":
            return WordSplitter(learns=True)
        case "char":
            return CharSplitter(learns=True)
        case "byte":
            return ByteSplitter(learns=True)
    raise ValueError(f"{units} units are not learned symbol by symbol")
