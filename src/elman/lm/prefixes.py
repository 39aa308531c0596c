"""The log-probability of many rows that begin alike, every shared beginning read once: the hypotheses of n-best lists.

Rows are read side by side, one token at a time; at each place those that have been the same so far are one. So a
state is kept for each beginning that differs, and a call reads as many tokens as there are such beginnings, of all lists.
Behind the last place where rows part, what is left of them is read as a batch, in pieces that bound the memory.
Knows models only by the protocol. `R` rows, `T` tokens, `B` beginnings of one length
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel, S, refuse_nan, select

PIECE_TOKENS = 1 << 16  # of all rows together, that are read at once


class Level(NamedTuple):
    """Beginnings of one length that differ: the last token of each, and the place of the rest in the level above."""

    tokens: Array  # (B,)
    parents: Array  # (B,)
    numbers: Array  # (R,) the beginning that each row has that is so long


@dataclass(frozen=True)
class PrefixTree:
    """Rows that differ, in order, so that those that begin alike are neighbours."""

    rows: Sequence[Array]
    lengths: Array  # (R,)
    shared: Array  # (R,) tokens that a row has in common with the one before it
    places: Array  # where each of the rows that were given is now

    @property
    def num_tokens(self) -> int:
        """Tokens that are read, each shared one counted once."""
        return int((self.lengths - self.shared).sum())

    @property
    def num_levels(self) -> int:
        """The tokens after which no two rows are the same."""
        return int(self.shared.max(initial=0))

    def levels(self) -> Iterator[Level]:
        """From the first token on, as long as there are rows that are the same up to it."""
        numbers_R = np.zeros(len(self.rows), dtype=np.int64)  # of each row's beginning in the level above
        for t in range(self.num_levels):
            is_new = (self.shared <= t) & (self.lengths > t)
            new, parents_R, numbers_R = np.flatnonzero(is_new), numbers_R, np.cumsum(is_new) - 1
            tokens = np.array([self.rows[row][t] for row in new.tolist()], dtype=np.int64)
            yield Level(tokens, parents_R[new], numbers_R)


def prefix_tree(rows: Sequence[Array]) -> PrefixTree:
    """Put rows of ids side by side."""
    keys = [np.asarray(row, dtype=">i4").tobytes() for row in rows]  # so bytes are in the order of the ids
    first_of = {key: row for row, key in reversed(list(enumerate(keys)))}
    order = sorted(first_of)
    place_of = {key: place for place, key in enumerate(order)}
    distinct = [rows[first_of[key]] for key in order]
    shared = [0, *(_num_shared(one, other) for one, other in pairwise(distinct))][: len(distinct)]
    return PrefixTree(
        distinct,
        np.array([len(row) for row in distinct], dtype=np.int64),
        np.array(shared, dtype=np.int64),
        np.array([place_of[key] for key in keys], dtype=np.int64),
    )


def score_tree(lm: FreeModel[S], tree: PrefixTree) -> Array:
    """The log-probability of each row, read from the start. -> (R,) float64"""
    found = np.zeros(len(tree.rows))
    state = lm.start(1)
    totals = np.zeros(1)
    numbers = np.zeros(len(found), dtype=np.int64)
    for length, level in enumerate(tree.levels(), 1):
        ones = np.ones(len(level.tokens), dtype=np.int64)
        log_probs, state = lm.score(level.tokens[:, None], ones, select(state, level.parents))
        totals = totals[level.parents] + refuse_nan(log_probs)[:, 0]
        numbers = level.numbers
        ending = np.flatnonzero(tree.lengths == length)
        found[ending] = totals[numbers[ending]]
    going_on = np.flatnonzero(tree.lengths > tree.num_levels)
    if len(going_on):
        rests = [tree.rows[row][tree.num_levels :] for row in going_on.tolist()]
        found[going_on] = totals[numbers[going_on]] + _score_rests(lm, rests, select(state, numbers[going_on]))
    return found[tree.places]


def _score_rests(lm: FreeModel[S], rests: Sequence[Array], state: S) -> Array:
    """The log-probability of what is left of each row. -> (R,)"""
    lengths = np.array([len(rest) for rest in rests])
    found = np.zeros(len(rests))
    active, begin = np.arange(len(rests)), 0
    while len(active):
        size = min(max(1, PIECE_TOKENS // len(active)), int(lengths[active].max()) - begin)
        sizes = np.minimum(lengths[active] - begin, size)
        tokens = np.zeros((len(active), size), dtype=np.int64)
        for row, rest, num_tokens in zip(tokens, (rests[place] for place in active.tolist()), sizes, strict=True):
            row[:num_tokens] = rest[begin : begin + num_tokens]
        log_probs, state = lm.score(tokens, sizes, state)
        found[active] += refuse_nan(log_probs).sum(axis=1, dtype=np.float64)
        begin += size
        left = np.flatnonzero(lengths[active] > begin)
        active, state = active[left], select(state, left)
    return found


def _num_shared(one: Array, other: Array) -> int:
    """The tokens that two rows have in common before they part."""
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(differs.argmax()) if differs.any() else size
