"""Numbers for the byte strings of a text, a block at a time. Knows nothing of what the strings mean.

Looking up every word of a text in a dictionary costs 170 ns per word. Here strings of up to 16 bytes (99.998 % of the words
of English novels) become one or two 64-bit keys, and numpy looks up a whole block in a hash table: 50 ns per word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array

LINE_END = b"\xff"  # the chunk for the end of a line; no UTF-8 text contains this byte
_PADDING = 24  # NUL bytes after a text, so that reading two keys at any position stays inside
_LANE = 8  # bytes per key
# The mask of a key by the number of its bytes that belong to the piece
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(_LANE + 1)], dtype=np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
_MIX_SECOND = np.uint64(0xC2B2AE3D27D4EB4F)
_SPACE, _NEWLINE, _TAB = 32, 10, 9


@dataclass(frozen=True)
class Chunks:
    """Pieces of a text, in order; none contains NUL."""

    text: bytes  # padded with NUL
    starts: Array
    lengths: Array

    def __iter__(self) -> Iterator[bytes]:
        text = self.text
        for start, end in zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True):
            yield text[start:end]

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, indices: Array) -> Chunks:
        """Only the given pieces."""
        return Chunks(self.text, self.starts[indices], self.lengths[indices])

    def keys(self, lane: int) -> Array:
        """The bytes 8 lane .. 8 lane + 7 of every piece as one number, zero beyond its end."""
        words = np.frombuffer(self.text, dtype="<u8")
        starts = self.starts + lane * _LANE if lane else self.starts
        index = starts >> 3
        shift = ((starts & 7) << 3).view(np.uint64)  # only aligned words are read: combine two
        keys: Array = words.take(index) >> shift
        index += 1
        high = words.take(index) << np.uint64(1)
        high <<= np.uint64(63) - shift
        keys |= high
        keys &= _MASKS.take(self.lengths - lane * _LANE if lane else self.lengths, mode="clip")
        return keys


def join_chunks(pieces: Iterable[bytes]) -> Chunks:
    """Pieces concatenated to one text."""
    pieces = list(pieces)
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    return Chunks(_padded(b"".join(pieces)), np.cumsum(lengths) - lengths, lengths)


def cut_at_whitespace(lines: bytes) -> Chunks:
    """The pieces between runs of ASCII whitespace; LINE_END for each newline. `lines` ends in a newline."""
    text, body = _with_line_ends(lines)
    is_end = body == _SPACE
    is_end |= (body - np.uint8(_TAB)) < 5  # tab, newline, vertical tab, form feed, carriage return
    starts, lengths = _between(np.flatnonzero(is_end))
    if not lengths.all():
        kept = np.flatnonzero(lengths)
        starts, lengths = starts[kept], lengths[kept]
    return Chunks(text, starts, lengths)


def cut_at_spaces(lines: bytes) -> Chunks:
    """The pieces after a line's start or the first space of a run of spaces; LINE_END for each newline.

    So `a  b ` has the three pieces `a`, ` b` and the empty string, and an empty line has none.
    """
    text, body = _with_line_ends(lines)
    is_space, is_newline = body == _SPACE, body == _NEWLINE
    is_end = is_space.copy()
    is_end[:1] = False
    is_end[1:] &= ~(is_space | is_newline)[:-1]
    is_end |= is_newline
    starts, lengths = _between(np.flatnonzero(is_end))
    if not lengths.all():
        is_line_start = starts == 0
        is_line_start |= body[starts - 1] == _NEWLINE
        kept = np.flatnonzero((lengths > 0) | ~is_line_start)
        starts, lengths = starts[kept], lengths[kept]
    return Chunks(text, starts, lengths)


def _with_line_ends(lines: bytes) -> tuple[bytes, Array]:
    lines = lines.replace(b"\n", b"\n" + LINE_END + b"\n")
    text = _padded(lines)
    return text, np.frombuffer(text, dtype=np.uint8, count=len(lines))


def _padded(text: bytes) -> bytes:
    return text + bytes(_PADDING + -len(text) % _LANE)


def _between(ends: Array) -> tuple[Array, Array]:
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    return starts, ends - starts


class ChunkTable:
    """A number for every distinct piece, by order of first appearance."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self._numbers: dict[bytes, int] = {}  # all pieces; the key tables hold the short ones, for speed
        self._short = _KeyTable(1)
        self._medium = _KeyTable(2)
        self.learn(join_chunks(pieces))

    def __len__(self) -> int:
        return len(self._numbers)

    def pieces(self) -> list[bytes]:
        """Every piece, by number."""
        return list(self._numbers)

    def find(self, chunks: Chunks) -> Array:
        """The number of every piece, -1 for an unknown one."""
        first = chunks.keys(0)
        numbers = self._short.find((first,))
        longer = np.flatnonzero(chunks.lengths > _LANE)
        if len(longer):
            part = chunks.select(longer)
            numbers[longer] = self._medium.find((first[longer], part.keys(1)))
            longest = longer[part.lengths > 2 * _LANE]
            numbers[longest] = [self._numbers.get(piece, -1) for piece in chunks.select(longest)]
        return numbers

    def learn(self, chunks: Chunks) -> Array:
        """The number of every piece, the next free one for a new piece."""
        numbers = self.find(chunks)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            known, num_known = self._numbers, len(self._numbers)
            found = [known.setdefault(piece, len(known)) for piece in chunks.select(unknown)]
            numbers[unknown] = found
            new, first = np.unique(found, return_index=True)
            first = first[new >= num_known]
            self._add_keys(chunks.select(unknown[first]), numbers[unknown[first]])
        return numbers

    def _add_keys(self, chunks: Chunks, numbers: Array) -> None:
        short = np.flatnonzero(chunks.lengths <= _LANE)
        self._short.add((chunks.select(short).keys(0),), numbers[short])
        medium = np.flatnonzero((chunks.lengths > _LANE) & (chunks.lengths <= 2 * _LANE))
        part = chunks.select(medium)
        self._medium.add((part.keys(0), part.keys(1)), numbers[medium])


class _KeyTable:
    """A hash table from keys of one or two integers to a number, with open addressing and vectorised lookup."""

    def __init__(self, num_lanes: int, num_bits: int = 12) -> None:
        self._clear(num_lanes, num_bits)

    def _clear(self, num_lanes: int, num_bits: int) -> None:
        self._num_bits = num_bits
        self._num_used = 0
        self._keys = tuple(np.zeros(1 << num_bits, dtype=np.uint64) for _ in range(num_lanes))
        self._values = np.full(1 << num_bits, -1, dtype=np.int32)

    def _homes(self, keys: tuple[Array, ...]) -> Array:
        mixed = keys[0] if len(keys) == 1 else keys[0] ^ (keys[1] * _MIX_SECOND)
        slots: Array = (mixed * _MIX) >> np.uint64(64 - self._num_bits)
        return slots.view(np.int64)

    def _differ(self, slots: Array, keys: tuple[Array, ...]) -> Array:
        differ: Array = self._keys[0].take(slots) != keys[0]
        for lane, key in zip(self._keys[1:], keys[1:], strict=True):
            differ |= lane.take(slots) != key
        return differ

    def find(self, keys: tuple[Array, ...]) -> Array:
        """The value of every key, -1 for an unknown one."""
        slots = self._homes(keys)
        values: Array = self._values.take(slots)
        pending = np.flatnonzero(self._differ(slots, keys) & (values >= 0))
        slots = slots[pending]
        while len(pending):  # the slot is taken by another key: try the next
            slots = (slots + 1) & (len(self._values) - 1)
            found = self._values.take(slots)
            differ = self._differ(slots, tuple(key[pending] for key in keys))
            values[pending] = np.where(differ, -1, found)
            is_pending = differ & (found >= 0)
            pending, slots = pending[is_pending], slots[is_pending]
        return values

    def add(self, keys: tuple[Array, ...], values: Array) -> None:
        """Insert keys that are distinct and not in the table yet."""
        if 2 * (self._num_used + len(values)) > len(self._values):
            used = np.flatnonzero(self._values >= 0)
            keys = tuple(np.concatenate([old[used], new]) for old, new in zip(self._keys, keys, strict=True))
            values = np.concatenate([self._values[used], values])
            order = np.argsort(values)  # early pieces are frequent: they get the first slots
            keys, values = tuple(key[order] for key in keys), values[order]
            self._clear(len(keys), len(values).bit_length() + 2)
        self._num_used += len(values)
        slots = self._homes(keys)
        while len(values):
            is_free = self._values[slots] < 0
            # backwards: of two values for one slot the first is kept
            self._values[slots[is_free][::-1]] = values[is_free][::-1]
            won = self._values[slots] == values
            for lane, key in zip(self._keys, keys, strict=True):
                lane[slots[won]] = key[won]
            lost = ~won
            slots = (slots[lost] + 1) & (len(self._values) - 1)
            keys, values = tuple(key[lost] for key in keys), values[lost]
