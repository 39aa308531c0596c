"""What was said after a like history is said again (Grave et al. 2017). Beside a net, in a mixture; learns nothing.

A history is what the net makes of it: the vector that its output words are compared with. Kept are the last W of them, each
with the token that came next. p(token) is the share of those followed by it, each weighing
exp(theta * likeness) * decay**age, the likeness of two histories being their vectors' product. With decay 1 this is the
paper's cache; one that fades as well is 1.5 % better on Penn Treebank. Before anything was read every token is equally
likely; afterwards one that follows no kept history is impossible (-inf).

The net is run by the mixture, once for itself and the cache: here come its vectors, and no model is known.
`B` rows, `T` tokens, `P` numbers of a vector, `W` kept, `V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from pydantic import Field

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.settings import Config

EMPTY = -1  # no token: rows that have read less than others
BLOCK_TOKENS = 256  # whose likeness to all before is one matrix product


class NeuralCacheConfig(Config):
    """What was said after a like history is said again (Grave et al. 2017). Only beside a net, inside a mixture."""

    family: Literal["neural-cache"] = "neural-cache"
    window: int = Field(2000, ge=1, description="histories that are kept")
    theta: float | None = Field(None, ge=0, description="how much the likeness of histories counts; tuned if not given")
    decay: float | None = Field(
        None, gt=0, le=1, description="weight of a history after each step, as a factor; tuned if not given"
    )
    net: int | None = Field(
        None, ge=0, description="whose histories: a place among the members; the first net if not given"
    )


@dataclass(frozen=True)
class Remembered:
    """Histories and what followed each, the newest last. Rows that have read less begin with EMPTY."""

    histories: Array  # (B, W, P)
    tokens: Array  # (B, W)


class Weighing(NamedTuple):
    """How much a kept history counts: by likeness, and by age."""

    theta: float
    decay: float


class NeuralCache:
    """A mixture's member that reads what a net makes of the text. `net` is that net's place among the members."""

    def __init__(self, config: NeuralCacheConfig, *, vocab_size: int) -> None:
        if config.theta is None or config.decay is None or config.net is None:
            raise DataError("this neural cache was never tuned: theta, decay or net is missing")
        self.config = config
        self.vocab_size = vocab_size
        self.net = config.net
        self.window = config.window
        self.weighing = Weighing(config.theta, config.decay)

    def start(self, features: Array) -> Remembered:
        """Nothing read yet. features (B, P) are only as wide as those to come."""
        rows, width = features.shape
        return Remembered(np.zeros((rows, 0, width), features.dtype), np.zeros((rows, 0), np.int32))

    def predict(self, state: Remembered, features: Array) -> Array:
        """The share of each token among what followed the histories like this one. -> (B, V)"""
        num_rows = len(state.tokens)
        is_empty = state.tokens == EMPTY
        likeness = np.matmul(state.histories, features[:, :, None])[:, :, 0]
        weights = _weigh(likeness, is_empty, self.weighing)
        row, place = np.nonzero(~is_empty)
        cell = row * self.vocab_size + state.tokens[row, place]
        size = num_rows * self.vocab_size
        shares = np.bincount(cell, weights[row, place], minlength=size).reshape(num_rows, self.vocab_size)
        return self._log_shares(shares, weights.sum(axis=1, dtype=np.float64)[:, None])

    def advance(self, tokens: Array, state: Remembered, features: Array) -> Remembered:
        """The token followed the history that `features` stand for."""
        histories = np.concatenate([state.histories, features[:, None]], axis=1)
        said = np.concatenate([state.tokens, np.asarray(tokens, np.int32)[:, None]], axis=1)
        return Remembered(histories[:, -self.window :], said[:, -self.window :])

    def score(self, tokens: Array, lengths: Array, state: Remembered, features: Array) -> tuple[Array, Remembered]:
        """Log-probability of each token, 0 at padding, and what is kept after. features (B, T, P) -> (B, T)"""
        scored, after = self.score_ways(tokens, lengths, state, features, [self.weighing])
        return scored[0], after

    def score_ways(
        self, tokens: Array, lengths: Array, state: Remembered, features: Array, ways: Sequence[Weighing]
    ) -> tuple[Array, Remembered]:
        """The same for several ways of weighing, which need the likenesses only once. -> (len(ways), B, T)"""
        is_token = np.arange(tokens.shape[1]) < lengths[:, None]
        histories = np.concatenate([state.histories, features], axis=1)
        said = np.concatenate([state.tokens, np.where(is_token, tokens, EMPTY).astype(np.int32)], axis=1)
        num_before = state.tokens.shape[1]
        log_probs = np.zeros((len(ways), *tokens.shape), np.float32)
        for row, length in enumerate(lengths.tolist()):
            for first in range(0, length, BLOCK_TOKENS):
                last = min(first + BLOCK_TOKENS, length)
                log_probs[:, row, first:last] = self._score_block(
                    histories[row], said[row], num_before + first, num_before + last, ways
                )
        return log_probs, self._newest(histories, said, num_before + lengths)

    def join(self, states: Sequence[Remembered]) -> Remembered:
        """The rows of several states as one batch; those that have read less are filled up."""
        width = max(state.tokens.shape[1] for state in states)
        filled = [
            (
                np.pad(state.histories, ((0, 0), (width - state.tokens.shape[1], 0), (0, 0))),
                np.pad(state.tokens, ((0, 0), (width - state.tokens.shape[1], 0)), constant_values=EMPTY),
            )
            for state in states
        ]
        return Remembered(np.concatenate([one for one, _ in filled]), np.concatenate([one for _, one in filled]))

    def tensors(self) -> dict[str, Array]:
        """Nothing: all of it is settings."""
        return {}

    def _score_block(self, histories: Array, said: Array, first: int, last: int, ways: Sequence[Weighing]) -> Array:
        """The tokens at first .. last-1 of one row, each from at most W before it. -> (len(ways), last - first)

        Likenesses to all that any of them sees are one product; token `first + t` sees columns t .. t+width-1 of it.
        """
        count, width = last - first, min(self.window, last - 1)
        begin, missing = max(0, first - width), max(0, width - first)
        before = np.pad(said[begin : last - 1], (missing, 0), constant_values=EMPTY)
        if width == 0:
            return np.full((len(ways), count), -math.log(self.vocab_size), np.float32)
        likeness = np.zeros((count, width + count - 1), histories.dtype)
        np.matmul(histories[first:last], histories[begin : last - 1].T, out=likeness[:, missing:])
        across, along = likeness.strides
        seen = as_strided(likeness, (count, width), (across + along, along), writeable=False)
        seen_tokens = sliding_window_view(before, width)
        is_same, is_empty = seen_tokens == said[first:last, None], seen_tokens == EMPTY
        scored = []
        for way in ways:
            weights = _weigh(seen, is_empty, way)
            totals = weights.sum(axis=1)
            scored.append(self._log_shares(np.multiply(weights, is_same, out=weights).sum(axis=1), totals))
        return np.stack(scored)

    def _newest(self, histories: Array, said: Array, ends: Array) -> Remembered:
        """The last W of each row before its end."""
        width = min(self.window, int(ends.max(initial=0)))
        place = ends[:, None] - width + np.arange(width)
        row = np.arange(len(said))[:, None]
        kept = np.where(place >= 0, said[row, np.maximum(place, 0)], EMPTY)
        return Remembered(histories[row, np.maximum(place, 0)], kept.astype(np.int32))

    def _log_shares(self, weights: Array, totals: Array) -> Array:
        """log(weight / total), or that of 1/V where nothing is kept."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.log(weights / totals)
        return np.where(totals == 0, -math.log(self.vocab_size), shares).astype(np.float32)


def _weigh(likeness: Array, is_empty: Array, way: Weighing) -> Array:
    """exp(theta likeness) decay**age of each place, up to a factor that is its row's; 0 where it is empty. (B, W) -> the same"""
    ages = np.arange(likeness.shape[1] - 1, -1, -1)
    weights: Array = likeness * likeness.dtype.type(way.theta)
    if way.decay < 1:
        weights += (math.log(way.decay) * ages).astype(likeness.dtype)
    if is_empty.any():
        weights[is_empty] = -np.inf
    highest = weights.max(axis=1, initial=-np.inf, keepdims=True)
    weights -= np.where(np.isfinite(highest), highest, 0)
    return np.exp(weights, out=weights)
