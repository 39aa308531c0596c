"""Rows of ids, each ended by EOS_ID: padded, of like length side by side, split by hash, and as batches to train on.

As with every kind of batches, a position is a value, and the batch at a position is a function of it alone.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from elman.core.arrays import Array
from elman.text.batches import Divided, Position, Share
from elman.text.units.vocabulary import EOS_ID

B = TypeVar("B")
SOURCE_FACTOR = 4  # source tokens of a batch, at most, as a multiple of its target tokens, padding included


class RowBatches(Divided[B]):
    """Every row once a pass. A step holds about `tokens` target tokens, so short rows come in many."""

    def __init__(self, source_lengths: Array, target_lengths: Array, *, tokens: int, seed: int = 0) -> None:
        if len(source_lengths) != len(target_lengths):
            raise ValueError("there are not as many sources as targets")
        self._source_lengths, self._target_lengths = source_lengths, target_lengths
        self.tokens_per_epoch = int(target_lengths.sum())
        self.tokens = tokens
        self.seed = seed
        self.notes: tuple[str, ...] = ()
        if tokens > self.tokens_per_epoch:
            self.notes = (f"the targets have {self.tokens_per_epoch:,} tokens, less than one batch of {tokens:,}",)
        self._epoch, self._groups = -1, [np.zeros(0, dtype=np.int64)]

    @abstractmethod
    def rows(self, rows: Array) -> B:
        """The given rows as a batch."""

    @property
    def num_rows(self) -> int:
        return len(self._target_lengths)

    @property
    def max_rows(self) -> int:
        """Of the batches of the first pass."""
        return max(len(group) for group in self._groups_of(0))

    @property
    def tokens_per_step(self) -> int:
        return min(self.tokens, self.tokens_per_epoch)

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return position.offset / len(self._groups_of(position.epoch))

    def part(self, position: Position, share: Share) -> tuple[B | None, Position]:
        """A process's rows of the batch at a position, and the position after it."""
        groups = self._groups_of(position.epoch)
        rows = share.of(groups[position.offset])
        batch = self.rows(rows) if len(rows) else None
        if position.offset + 1 == len(groups):
            return batch, Position(position.epoch + 1)
        return batch, Position(position.epoch, 0, position.offset + 1)

    def _groups_of(self, epoch: int) -> list[Array]:
        """The rows of each batch of a pass, in its order."""
        if self._epoch != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            source_lengths, target_lengths = self._source_lengths, self._target_lengths
            mixed = rng.permutation(self.num_rows)
            # among equal targets the sources rise or fall in turn, so that a batch across two lengths is of like ones
            turned = np.where(target_lengths % 2, source_lengths, -source_lengths)
            order = mixed[np.lexsort((turned[mixed], -target_lengths[mixed]))]
            groups = cut_groups(source_lengths[order], target_lengths[order], self.tokens)
            found = [order[first:last] for first, last in groups]
            self._epoch, self._groups = epoch, [found[i] for i in rng.permutation(len(found))]
        return self._groups


def begins_of(ids: Array) -> Array:
    """Where each row begins, and the end of the last. -> (N + 1,)"""
    return np.concatenate([[0], np.flatnonzero(np.asarray(ids) == EOS_ID) + 1])


def lengths_of(ids: Array) -> Array:
    """Tokens of each row, its end included. -> (N,)"""
    return np.diff(begins_of(ids))


def count_rows(ids: Array) -> int:
    """How many rows there are."""
    return int(np.count_nonzero(np.asarray(ids) == EOS_ID))


def select_rows(ids: Array, keep: Array) -> Array:
    """Some of the rows. keep (N,) bool"""
    kept: Array = np.asarray(ids)[np.repeat(keep, lengths_of(ids))]
    return kept


def row_numbers(ids: Array) -> Array:
    """Which row each token is in. -> (T,)"""
    is_end = np.asarray(ids) == EOS_ID
    numbers: Array = np.cumsum(is_end) - is_end
    return numbers


def padded(ids: Array, begins: Array, rows: Array) -> tuple[Array, Array]:
    """Some rows as one array, EOS_ID behind each, and their lengths. -> (B, T) int64, (B,)"""
    lengths = begins[rows + 1] - begins[rows]
    times = np.arange(int(lengths.max(initial=0)))
    place = np.minimum(begins[rows, None] + times, len(ids) - 1)
    found = ids[place].astype(np.int64)
    found[times >= lengths[:, None]] = EOS_ID
    return found, lengths


def pad_all(rows: Sequence[Sequence[int] | Array]) -> tuple[Array, Array]:
    """All of some rows as one array, EOS_ID behind each, and their lengths. -> (B, T) int64, (B,)"""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    found = np.full((len(rows), int(lengths.max(initial=0))), EOS_ID, dtype=np.int64)
    for place, row in enumerate(rows):
        found[place, : len(row)] = row
    return found, lengths


def like_length(lengths: Sequence[int] | Array, *, tokens: int) -> Iterator[list[int]]:
    """The numbers of rows of like length, the longest first: as many at a time as are `tokens` tokens, padding counted."""
    order = sorted(range(len(lengths)), key=lambda row: int(lengths[row]))
    while order:
        most = max(1, tokens // max(1, int(lengths[order[-1]])))
        chunk, order = order[-most:], order[:-most]
        yield chunk


def split_by_hash(keys: Iterable[str], share: float) -> tuple[list[int], list[int]]:
    """Rows to train on and to hold out: which ones depends on their keys alone, and looks like chance.

    Rows with the same key stay together. None is held out if that would leave nothing to train on.
    """
    hashes = np.array([zlib.crc32(key.encode()) for key in keys], dtype=np.uint32)
    last = np.sort(hashes)[max(1, int(len(hashes) * share)) - 1]
    kept, held = np.flatnonzero(hashes > last).tolist(), np.flatnonzero(hashes <= last).tolist()
    return (kept, held) if kept else (held, [])


def step_tokens(ids: Array, rows: int) -> int:
    """How many tokens so many rows of the usual length have: the size of a training step."""
    return max(1, round(rows * len(ids) / count_rows(ids)))


def cut_groups(source_lengths: Array, target_lengths: Array, tokens: int) -> list[tuple[int, int]]:
    """Rows from, to of each batch: at most `tokens` targets and SOURCE_FACTOR times as many sources, padding counted.

    The rows come with falling target lengths.
    """
    groups, first = [], 0
    while first < len(target_lengths):
        most = max(1, tokens // int(target_lengths[first]))
        longest = np.maximum.accumulate(source_lengths[first : first + most])
        fits = longest * np.arange(1, len(longest) + 1) <= SOURCE_FACTOR * tokens
        last = first + max(1, int(fits.sum()))
        groups.append((first, last))
        first = last
    return groups
