"""The log-probability of many rows that begin alike, every shared beginning read once: the hypotheses of n-best lists.

Rows are read side by side, one token at a time; at each place those that have been the same so far are one. So a
state is kept for each beginning that differs, and a call reads as many tokens as there are such beginnings, of all lists.
Where one row goes on alone, the rest of it is read at once.
Knows models only by the protocol. `R` rows, `T` tokens, `B` beginnings of one length
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel, S, refuse_nan, select


class Level(NamedTuple):
    """Beginnings of one length that differ: the last token of each, and the place of the rest in the level above."""

    tokens: Array  # (B,)
    parents: Array  # (B,)
    rows: Array  # those that end here
    ends: Array  # the beginning that each of them is


@dataclass(frozen=True)
class PrefixTree:
    """Rows in order, so that those that begin alike are neighbours."""

    order: Array  # (R,)
    tokens: Array  # (R, T) in order, -1 behind each
    lengths: Array  # (R,) in order

    @cached_property
    def _is_new(self) -> Array:
        """Whether a row up to a token is another beginning than that of the row before it. -> (R, T)"""
        differs = np.ones(self.tokens.shape, dtype=bool)
        differs[1:] = np.logical_or.accumulate(self.tokens[1:] != self.tokens[:-1], axis=1)
        return differs & (self.tokens >= 0)

    @property
    def num_tokens(self) -> int:
        """Tokens that are read, each shared one counted once."""
        return int(self._is_new.sum())

    def levels(self) -> Iterator[Level]:
        """From the first token on."""
        numbers_RT = np.cumsum(self._is_new, axis=0) - 1
        for t in range(self.tokens.shape[1]):
            new = np.flatnonzero(self._is_new[:, t])
            ending = np.flatnonzero(self.lengths == t + 1)
            parents = numbers_RT[new, t - 1] if t else np.zeros(len(new), dtype=np.int64)
            yield Level(self.tokens[new, t], parents, self.order[ending], numbers_RT[ending, t])


def prefix_tree(rows: Sequence[Array]) -> PrefixTree:
    """Put rows of ids side by side."""
    keys = [np.asarray(row, dtype=">i8").tobytes() for row in rows]  # so bytes are in the order of the ids
    order = np.array(sorted(range(len(rows)), key=keys.__getitem__), dtype=np.int64)
    lengths = np.array([len(rows[row]) for row in order], dtype=np.int64)
    tokens = np.full((len(rows), int(lengths.max(initial=0))), -1, dtype=np.int64)
    for place, row in enumerate(order):
        tokens[place, : lengths[place]] = rows[row]
    return PrefixTree(order, tokens, lengths)


def score_tree(lm: FreeModel[S], tree: PrefixTree) -> Array:
    """The log-probability of each row, read from the start. -> (R,) float64"""
    found = np.zeros(len(tree.order))
    state = lm.start(1)
    totals = np.zeros(1)
    for t, level in enumerate(tree.levels()):
        going_on = np.flatnonzero(tree.lengths > t)
        if len(going_on) == 1:
            rest = tree.tokens[going_on, t : tree.lengths[going_on[0]]]
            log_probs, _ = lm.score(rest, np.array([rest.shape[1]]), select(state, level.parents))
            found[tree.order[going_on]] = totals[level.parents] + refuse_nan(log_probs).sum(axis=1, dtype=np.float64)
            break
        ones = np.ones(len(level.tokens), dtype=np.int64)
        log_probs, state = lm.score(level.tokens[:, None], ones, select(state, level.parents))
        totals = totals[level.parents] + refuse_nan(log_probs)[:, 0]
        found[level.rows] = totals[level.ends]
    return found
