"""Held-out text that mixtures are fitted to: its parts, and what a model makes of it.

`B` rows, `T` tokens, `N` tokens in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel
from elman.text.units.vocabulary import EOS_ID

CHUNK_TOKENS = 1 << 16  # tokens scored in one call
TUNED_TOKENS = 1 << 15  # tokens to tune two parameters on
MIN_TEXT_TOKENS = 2  # one for each half
WHOLE, FIRST, SECOND = PARTS = range(3)  # of the text


class FitText:
    """The held-out text, whole and in two halves, whose cut is at the end of a line where lines are read alone."""

    def __init__(self, ids: Array, reset_lines: bool) -> None:
        self.ids = ids
        self.reset_lines = reset_lines
        self.middle = self._end(len(ids) // 2)
        self.before = np.concatenate([[EOS_ID], ids[:-1]])  # the token before each, after which weights are chosen

    def part(self, part: int) -> slice:
        """The tokens of a part."""
        return (slice(None), slice(self.middle), slice(self.middle, None))[part]

    def sample(self, part: int) -> slice:
        """The beginning of a half, to tune on."""
        first = 0 if part == FIRST else self.middle
        last = self.middle if part == FIRST else len(self.ids)
        return slice(first, min(last, self._end(first + TUNED_TOKENS // 2)))

    def _end(self, place: int) -> int:
        while self.reset_lines and 0 < place < len(self.ids) and self.ids[place - 1] != EOS_ID:
            place += 1
        return min(place, len(self.ids))


def score_text(lm: FreeModel[Any], ids: Array, *, reset_lines: bool) -> Array:
    """Log-probability of each token of a text, read as one stream or each line from the start. -> (N,)"""
    scores = np.empty(len(ids), np.float32)
    state: Any = None
    for piece in pieces(ids, reset_lines=reset_lines, chunk_tokens=CHUNK_TOKENS):
        if piece.is_start:
            state = lm.start(len(piece.lengths))
        nats, state = lm.score(np.asarray(ids[piece.place], np.int64), piece.lengths, state)
        scores[piece.place[piece.is_token]] = nats[piece.is_token]
    return scores


class Piece(NamedTuple):
    """A part of a text that is read at once."""

    place: Array  # (B, T) positions of its tokens in the text
    lengths: Array  # (B,)
    is_start: bool  # its rows start from the start state; otherwise they continue the piece before

    @property
    def is_token(self) -> Array:
        return np.asarray(np.arange(self.place.shape[1]) < self.lengths[:, None])


def pieces(ids: Array, *, reset_lines: bool, chunk_tokens: int) -> Iterator[Piece]:
    """A text in pieces: one stream in order, or batches of lines of similar length, the longest line last."""
    if not reset_lines:
        for first in range(0, len(ids), chunk_tokens):
            place = np.arange(first, min(first + chunk_tokens, len(ids)))[None]
            yield Piece(place, np.array([place.shape[1]]), first == 0)
        return
    starts = np.flatnonzero(np.concatenate([[True], ids[:-1] == EOS_ID])[: len(ids)])
    lengths = np.diff(starts, append=len(ids))
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and lengths[order[last]] * (last + 1 - first) <= chunk_tokens:
            last += 1
        rows = order[first:last]
        columns = np.arange(lengths[rows[-1]])
        place = np.where(columns < lengths[rows][:, None], starts[rows][:, None] + columns, 0)
        yield Piece(place, lengths[rows], True)
        first = last
