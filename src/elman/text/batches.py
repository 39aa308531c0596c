"""Batches of ids to descend on: parallel streams, or lines by length. Knows nothing of models, and keeps no corpus.

A position is a value, and the batch at a position is a function of (ids, settings, seed, position) alone: to go on after
a stop needs nothing but the position. Only slices of the ids are ever read, so a corpus on disk stays on disk.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.text.units.vocabulary import EOS_ID

RELEASE_BYTES = 8 << 20  # read between two times that mapped pages, which count as resident, are given back
POOL_TOKENS = 1 << 20  # lines are sorted and shuffled within stretches of about so many tokens
MAX_LINE = 1024  # longer lines are read in pieces, the state carried from one to the next
MIN_BPTT = 5
DEFAULT_BATCH = 64  # rows of a batch of text
DEFAULT_BPTT = 35  # tokens of a row, through which gradients flow back


@dataclass(frozen=True)
class Position:
    """Where training is in the data: how many passes are done, and how much of this one."""

    epoch: int = 0
    block: int = 0  # the pool of lines; always 0 for streams
    offset: int = 0  # tokens into each stream; pieces into the pool


class Share(NamedTuple):
    """The part of every batch that one of several processes reads: each `size`-th row, so that all get like lengths."""

    rank: int = 0
    size: int = 1

    def of(self, rows: Any) -> Any:
        """Its part of anything that has the rows of a batch on its first axis."""
        return rows if self.size == 1 else rows[self.rank :: self.size]


WHOLE = Share()
B = TypeVar("B", covariant=True)


class Batched(Protocol[B]):
    """Data that is read batch by batch."""

    def batch(self, position: Position) -> tuple[B, Position]:
        """The batch there, and where the next one is."""


def one_pass(batches: Batched[B]) -> Iterator[B]:
    """Every batch once."""
    position = Position()
    while position.epoch == 0:
        batch, position = batches.batch(position)
        yield batch


class Divided(ABC, Generic[B]):
    """Data whose batches several processes can read together, each its own rows."""

    @abstractmethod
    def part(self, position: Position, share: Share) -> tuple[B | None, Position]:
        """A process's share of the batch there, None where it has no row for it, and where the next one is."""

    def batch(self, position: Position) -> tuple[B, Position]:
        """The batch at a position, and the position after it."""
        batch, after = self.part(position, WHOLE)
        assert batch is not None
        return batch, after


def make_batches(
    ids: Array, *, rows: int, bptt: int, seed: int, reset_lines: bool, spread: float = 0.0
) -> StreamBatches | LineBatches:
    """Text to train on: as streams read side by side or, with `reset_lines`, each line alone.

    spread: standard deviation of the length of a window from step to step; for streams only.
    """
    if not reset_lines:
        return StreamBatches(ids, rows=rows, bptt=bptt, spread=spread, seed=seed)
    if spread:
        raise UsageError(
            "train.bptt_spread does not apply with --reset-lines: every line is read to its end", code="does-not-apply"
        )
    return LineBatches(ids, tokens=rows * bptt, seed=seed)


def validation_batches(ids: Array, *, rows: int, bptt: int, reset_lines: bool) -> StreamBatches | LineBatches:
    """Held-out text in batches as large as in training, or with fewer rows where it is short."""
    if reset_lines:
        return LineBatches(ids, tokens=rows * bptt)
    return StreamBatches(ids, rows=max(1, min(rows, len(ids) // (4 * bptt))), bptt=bptt)


@dataclass(frozen=True)
class Batch:
    """B rows to predict: targets (B, T) from inputs (B, T) and, unless it starts afresh, the state of the batch before.

    `lengths` (B,) is None where every row is full; padding is EOS_ID in both arrays and never counts.
    """

    inputs: Array
    targets: Array
    lengths: Array | None
    is_start: bool
    scale: float = 1.0  # of the learning rate: a short window is a small sample (Merity et al. 2017)
    share: Share = WHOLE  # which rows of the whole batch these are
    all_rows: int | None = None  # of the whole batch, where this is only a part of it

    @property
    def whole_shape(self) -> tuple[int, int]:
        """Rows and columns of the batch of which this may be a part."""
        rows, columns = self.targets.shape
        return rows if self.all_rows is None else self.all_rows, columns

    @property
    def num_tokens(self) -> int:
        return int(self.targets.size if self.lengths is None else self.lengths.sum())


def release_pages(ids: Array) -> None:
    """Give back the memory in which a mapped file is held; its pages are read again when they are needed."""
    base: Any = ids
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


@dataclass
class _Reader:
    """Slices of the ids as int64, with the mapped pages given back now and then."""

    ids: Array
    unreleased: int = 0

    def read(self, start: int, stop: int) -> Array:
        self.unreleased += (stop - start) * self.ids.itemsize
        if self.unreleased > RELEASE_BYTES:
            release_pages(self.ids)
            self.unreleased = 0
        return np.array(self.ids[start:stop], dtype=np.int64)


class StreamBatches(Divided[Batch]):
    """One long text cut into equal streams read side by side: truncated backpropagation, the state carried over.

    The first input of a stream is the token before it, and EOS for the very first, as if a line had just ended.
    """

    def __init__(self, ids: Array, *, rows: int, bptt: int, spread: float = 0.0, seed: int = 0) -> None:
        if len(ids) == 0:
            raise DataError("there is nothing to train on: the corpus has no tokens", code="empty-data")
        self.bptt = min(bptt, len(ids))
        self.rows = max(1, min(rows, len(ids) // self.bptt))
        self.notes = _shrunk(len(ids), rows, bptt, self.rows, self.bptt)
        self.spread = spread
        self.seed = seed
        self.length = len(ids) // self.rows  # at most one token of a stream is never read
        self._starts = np.arange(self.rows, dtype=np.int64) * len(ids) // self.rows
        self._reader = _Reader(ids)

    @property
    def max_rows(self) -> int:
        return self.rows

    @property
    def tokens_per_epoch(self) -> int:
        return self.length * self.rows

    @property
    def tokens_per_step(self) -> int:
        return self.rows * self.bptt

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return position.offset / self.length

    def part(self, position: Position, share: Share) -> tuple[Batch | None, Position]:
        """A process's streams of the batch at a position, and the position after it."""
        offset = position.offset
        stop = min(offset + self._window(position), self.length)
        if self.length - stop < min(MIN_BPTT, (self.bptt + 1) // 2):  # a stub of a window is a noisy step
            stop = self.length
        starts = share.of(self._starts).tolist()
        window = np.empty((len(starts), stop - offset + 1), dtype=np.int64)
        for row, start in enumerate(starts):
            first = start + offset - 1
            if first < 0:
                window[row, 0] = EOS_ID
                window[row, 1:] = self._reader.read(0, start + stop)
            else:
                window[row] = self._reader.read(first, start + stop)
        after = Position(position.epoch + 1) if stop == self.length else Position(position.epoch, 0, stop)
        scale = (stop - offset) / self.bptt if self.spread else 1.0
        inputs, targets = window[:, :-1], window[:, 1:]
        batch = Batch(inputs, targets, None, offset == 0, scale=scale, share=share, all_rows=self.rows)
        return batch if starts else None, after

    def _window(self, position: Position) -> int:
        if not self.spread:
            return self.bptt
        rng = np.random.default_rng([self.seed, position.epoch, position.offset])
        base = self.bptt if rng.random() < 0.95 else self.bptt / 2
        return max(min(MIN_BPTT, self.bptt), round(rng.normal(base, self.spread)))


def _shrunk(num_tokens: int, rows: int, bptt: int, new_rows: int, new_bptt: int) -> tuple[str, ...]:
    if (rows, bptt) == (new_rows, new_bptt):
        return ()
    return (
        f"the corpus has {num_tokens} tokens, less than one batch of {rows} x {bptt}: "
        f"{new_rows} {'stream' if new_rows == 1 else 'streams'} of {new_bptt} tokens a step instead",
    )


@dataclass(frozen=True)
class _Piece:
    """A part of one batch of lines: the columns `start` to `stop` of the given lines."""

    lines: Array  # (B, 2) begin and end in the ids, longest first
    start: int
    stop: int


@dataclass
class _Pool:
    key: tuple[int, int] = (-1, -1)
    pieces: list[_Piece] = field(default_factory=list)


class LineBatches(Divided[Batch]):
    """Every line alone, from its start: lines of like length side by side, shuffled anew in every pass.

    Steps hold about `tokens` tokens each, so short lines come in many rows and long ones in few. Lines are sorted and
    shuffled within pools of about a million tokens, and the pools are shuffled, so that memory does not grow.
    """

    def __init__(self, ids: Array, *, tokens: int, seed: int = 0, pool_tokens: int = POOL_TOKENS) -> None:
        if len(ids) == 0:
            raise DataError("there is nothing to train on: the corpus has no tokens", code="empty-data")
        self.notes: tuple[str, ...] = ()
        if tokens > len(ids):
            self.notes = (f"the corpus has {len(ids)} tokens, less than one batch of {tokens}: one batch a pass",)
        self.tokens = tokens
        self.seed = seed
        self.num_pools = -(-len(ids) // pool_tokens)
        self._pool_tokens = pool_tokens
        self._reader = _Reader(ids)
        self._num_tokens = len(ids)
        self._pool = _Pool()

    @property
    def max_rows(self) -> int:
        """Of the batches of the first pool."""
        return max((len(piece.lines) for piece in self._pieces(0, 0)), default=1)

    @property
    def tokens_per_epoch(self) -> int:
        return self._num_tokens

    @property
    def tokens_per_step(self) -> int:
        return min(self.tokens, self._num_tokens)

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        pieces = self._pieces(position.epoch, position.block)
        return (position.block + (position.offset / len(pieces) if pieces else 0.0)) / self.num_pools

    def part(self, position: Position, share: Share) -> tuple[Batch | None, Position]:
        """A process's lines of the batch at a position, and the position after it."""
        while not (pieces := self._pieces(position.epoch, position.block)):
            position = self._next_block(position)  # no line begins in this pool
        batch = self._read(pieces[position.offset], share)
        after = Position(position.epoch, position.block, position.offset + 1)
        if after.offset == len(pieces):
            after = self._next_block(after)
            while after.block and not self._pieces(after.epoch, after.block):
                after = self._next_block(after)  # so that the end of a pass is seen with its last batch
        return batch, after

    def _next_block(self, position: Position) -> Position:
        if position.block + 1 < self.num_pools:
            return Position(position.epoch, position.block + 1)
        return Position(position.epoch + 1)

    def _read(self, piece: _Piece, share: Share) -> Batch | None:
        lines = share.of(piece.lines)
        if not len(lines):
            return None
        lengths = np.minimum(lines[:, 1] - lines[:, 0], piece.stop) - piece.start
        window = np.full((len(lengths), piece.stop - piece.start + 1), EOS_ID, dtype=np.int64)
        for row, ((begin, _), length) in enumerate(zip(lines.tolist(), lengths.tolist(), strict=True)):
            if piece.start == 0:
                window[row, 0] = EOS_ID  # as if a line had just ended
                window[row, 1 : 1 + length] = self._reader.read(begin, begin + length)
            else:
                first = begin + piece.start - 1
                window[row, : 1 + length] = self._reader.read(first, first + 1 + length)
        full = bool((lengths == piece.stop - piece.start).all())
        inputs = window[:, :-1].copy()  # the last token of a line is nobody's input: padding is EOS_ID throughout
        inputs[np.arange(inputs.shape[1]) >= lengths[:, None]] = EOS_ID
        known, is_start = None if full else lengths, piece.start == 0
        return Batch(inputs, window[:, 1:], known, is_start, share=share, all_rows=len(piece.lines))

    def _pieces(self, epoch: int, block: int) -> list[_Piece]:
        """The pieces of a pool in the order of a pass; a batch of long lines keeps its pieces together."""
        if self._pool.key != (epoch, block):
            pools = np.random.default_rng([self.seed, epoch]).permutation(self.num_pools)
            rng = np.random.default_rng([self.seed, epoch, block])
            groups = self._groups(self._lines_of(int(pools[block])), rng)
            order = rng.permutation(len(groups))
            self._pool = _Pool((epoch, block), [piece for index in order for piece in _cut(groups[index])])
        return self._pool.pieces

    def _groups(self, lines: Array, rng: np.random.Generator) -> list[Array]:
        """Lines of like length, as many as make a step; longest first in each."""
        lines = lines[rng.permutation(len(lines))]
        lengths = lines[:, 1] - lines[:, 0]
        order = np.argsort(-lengths, kind="stable")
        lines, lengths = lines[order], lengths[order]
        num_pieces = -(-lengths // MAX_LINE)
        groups, start = [], 0
        while start < len(lines):
            rows = max(1, self.tokens // int(min(lengths[start], MAX_LINE)))
            rows = min(rows, int((num_pieces[start : start + rows] == num_pieces[start]).sum()))
            groups.append(lines[start : start + rows])
            start += rows
        return groups

    def _lines_of(self, pool: int) -> Array:
        """Begin and end of every line that begins in a pool. -> (N, 2)"""
        start, stop = pool * self._pool_tokens, min((pool + 1) * self._pool_tokens, self._num_tokens)
        before = start == 0 or int(self._reader.read(start - 1, start)[0]) == EOS_ID
        ends = start + 1 + np.flatnonzero(self._reader.read(start, stop) == EOS_ID)
        begins = ends if not before else np.concatenate([[start], ends])
        begins = begins[begins < stop]
        if len(begins) == 0:
            return np.empty((0, 2), dtype=np.int64)
        last = self._end_of_line(int(begins[-1]))
        return np.stack([begins, np.append(begins[1:], last)], axis=1)

    def _end_of_line(self, begin: int) -> int:
        for start in range(begin, self._num_tokens, 1 << 16):
            found = np.flatnonzero(self._reader.read(start, min(start + (1 << 16), self._num_tokens)) == EOS_ID)
            if len(found):
                return start + int(found[0]) + 1
        return self._num_tokens


def _cut(lines: Array) -> Sequence[_Piece]:
    """A batch of lines as one piece or, where they are very long, as several: every row is full in all but the last."""
    longest = int(lines[0, 1] - lines[0, 0])
    return [_Piece(lines, start, min(start + MAX_LINE, longest)) for start in range(0, longest, MAX_LINE)]
