"""The neural cache of Grave et al. (2017): tokens that followed similar hidden vectors are likely to come again.

A history is represented by the net's hidden vector, the input of its output layer. The last W vectors are stored with the
token that came next. p(token) is the share of stored entries with that token, each with the weight
exp(theta * similarity) * decay**age, the similarity being the dot product of the vectors. With decay 1 this is the paper's
cache; with decay it is 1.5 % better on Penn Treebank. Before the first token all tokens are equally likely; afterwards a
token that is not in the cache is impossible (-inf).

A member of a mixture, without learned parameters. The mixture runs the net, once for itself and the cache, and passes its
vectors. `B` rows, `T` tokens, `P` width of a vector, `W` window, `V` vocabulary.
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

EMPTY = -1  # padding of rows with fewer entries than others
BLOCK_TOKENS = 256  # tokens whose similarities to all earlier ones are one matrix product


class NeuralCacheConfig(Config):
    """A neural cache: tokens that followed similar hidden vectors (Grave et al. 2017). Only with a net, in a mixture."""

    family: Literal["neural-cache"] = "neural-cache"
    window: int = Field(2000, ge=1, description="histories that are kept")
    theta: float | None = Field(
        None, ge=0, description="how much the similarity of histories counts; tuned if not given"
    )
    decay: float | None = Field(
        None, gt=0, le=1, description="weight of a history after each step, as a factor; tuned if not given"
    )
    net: int | None = Field(
        None, ge=0, description="whose histories: a place among the members; the first net if not given"
    )


@dataclass(frozen=True)
class Remembered:
    """The cached vectors and the token after each, newest last. Shorter rows are padded with EMPTY in front."""

    histories: Array  # (B, W, P)
    tokens: Array  # (B, W)


class Weighing(NamedTuple):
    """The parameters of an entry's weight exp(theta * similarity) * decay**age."""

    theta: float
    decay: float


class NeuralCache:
    """A member of a mixture that uses the hidden vectors of a net. `net` is that net's place among the members."""

    def __init__(self, config: NeuralCacheConfig, *, vocab_size: int) -> None:
        if config.theta is None or config.decay is None or config.net is None:
            raise DataError("the neural cache was never tuned: theta, decay or net is missing", code="damaged-model")
        self.config = config
        self.vocab_size = vocab_size
        self.net = config.net
        self.window = config.window
        self.weighing = Weighing(config.theta, config.decay)

    def start(self, features: Array) -> Remembered:
        """An empty cache. Of features (B, P) only the shape is used."""
        rows, width = features.shape
        return Remembered(np.zeros((rows, 0, width), features.dtype), np.zeros((rows, 0), np.int32))

    def predict(self, state: Remembered, features: Array) -> Array:
        """The log of each token's share of the weights in the cache. -> (B, V)"""
        num_rows = len(state.tokens)
        is_empty = state.tokens == EMPTY
        similarity = np.matmul(state.histories, features[:, :, None])[:, :, 0]
        weights = _entry_weights(similarity, is_empty, self.weighing)
        row, place = np.nonzero(~is_empty)
        cell = row * self.vocab_size + state.tokens[row, place]
        size = num_rows * self.vocab_size
        shares = np.bincount(cell, weights[row, place], minlength=size).reshape(num_rows, self.vocab_size)
        return self._log_shares(shares, weights.sum(axis=1, dtype=np.float64)[:, None])

    def advance(self, tokens: Array, state: Remembered, features: Array) -> Remembered:
        """Add the vector `features` and the token that followed it."""
        histories = np.concatenate([state.histories, features[:, None]], axis=1)
        next_tokens = np.concatenate([state.tokens, np.asarray(tokens, np.int32)[:, None]], axis=1)
        return Remembered(histories[:, -self.window :], next_tokens[:, -self.window :])

    def score(self, tokens: Array, lengths: Array, state: Remembered, features: Array) -> tuple[Array, Remembered]:
        """Log-probability of each token, 0 at padding, and the cache after. features (B, T, P) -> (B, T)"""
        scored, after = self.score_ways(tokens, lengths, state, features, [self.weighing])
        return scored[0], after

    def score_ways(
        self, tokens: Array, lengths: Array, state: Remembered, features: Array, ways: Sequence[Weighing]
    ) -> tuple[Array, Remembered]:
        """`score` for several pairs of theta and decay, which share the similarities. -> (len(ways), B, T)"""
        is_token = np.arange(tokens.shape[1]) < lengths[:, None]
        histories = np.concatenate([state.histories, features], axis=1)
        next_tokens = np.concatenate([state.tokens, np.where(is_token, tokens, EMPTY).astype(np.int32)], axis=1)
        num_before = state.tokens.shape[1]
        log_probs = np.zeros((len(ways), *tokens.shape), np.float32)
        for row, length in enumerate(lengths.tolist()):
            for first in range(0, length, BLOCK_TOKENS):
                last = min(first + BLOCK_TOKENS, length)
                log_probs[:, row, first:last] = self._score_block(
                    histories[row], next_tokens[row], num_before + first, num_before + last, ways
                )
        return log_probs, self._newest(histories, next_tokens, num_before + lengths)

    def join(self, states: Sequence[Remembered]) -> Remembered:
        """The rows of several states as one batch; shorter caches are padded."""
        width = max(state.tokens.shape[1] for state in states)
        padded = [
            (
                np.pad(state.histories, ((0, 0), (width - state.tokens.shape[1], 0), (0, 0))),
                np.pad(state.tokens, ((0, 0), (width - state.tokens.shape[1], 0)), constant_values=EMPTY),
            )
            for state in states
        ]
        return Remembered(np.concatenate([one for one, _ in padded]), np.concatenate([one for _, one in padded]))

    def tensors(self) -> dict[str, Array]:
        """Nothing: a cache has no learned parameters."""
        return {}

    def _score_block(
        self, histories: Array, next_tokens: Array, first: int, last: int, ways: Sequence[Weighing]
    ) -> Array:
        """Scores of tokens first .. last-1 of one row, each from at most W before it. -> (len(ways), last - first)

        All similarities are one matrix product; token `first + t` uses columns t .. t+width-1 of it.
        """
        count, width = last - first, min(self.window, last - 1)
        begin, missing = max(0, first - width), max(0, width - first)
        before = np.pad(next_tokens[begin : last - 1], (missing, 0), constant_values=EMPTY)
        if width == 0:
            return np.full((len(ways), count), -math.log(self.vocab_size), np.float32)
        similarity = np.zeros((count, width + count - 1), histories.dtype)
        np.matmul(histories[first:last], histories[begin : last - 1].T, out=similarity[:, missing:])
        across, along = similarity.strides
        seen = as_strided(similarity, (count, width), (across + along, along), writeable=False)
        seen_tokens = sliding_window_view(before, width)
        is_same, is_empty = seen_tokens == next_tokens[first:last, None], seen_tokens == EMPTY
        scored = []
        for way in ways:
            weights = _entry_weights(seen, is_empty, way)
            totals = weights.sum(axis=1)
            scored.append(self._log_shares(np.multiply(weights, is_same, out=weights).sum(axis=1), totals))
        return np.stack(scored)

    def _newest(self, histories: Array, next_tokens: Array, ends: Array) -> Remembered:
        """The last W entries of each row before its end."""
        width = min(self.window, int(ends.max(initial=0)))
        place = ends[:, None] - width + np.arange(width)
        row = np.arange(len(next_tokens))[:, None]
        tokens = np.where(place >= 0, next_tokens[row, np.maximum(place, 0)], EMPTY)
        return Remembered(histories[row, np.maximum(place, 0)], tokens.astype(np.int32))

    def _log_shares(self, weights: Array, totals: Array) -> Array:
        """log(weight / total), or log(1/V) where the cache is empty."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.log(weights / totals)
        return np.where(totals == 0, -math.log(self.vocab_size), shares).astype(np.float32)


def _entry_weights(similarity: Array, is_empty: Array, way: Weighing) -> Array:
    """exp(theta similarity) decay**age of each entry, up to a factor per row; 0 for padding. (B, W) -> the same"""
    ages = np.arange(similarity.shape[1] - 1, -1, -1)
    weights: Array = similarity * similarity.dtype.type(way.theta)
    if way.decay < 1:
        weights += (math.log(way.decay) * ages).astype(similarity.dtype)
    if is_empty.any():
        weights[is_empty] = -np.inf
    highest = weights.max(axis=1, initial=-np.inf, keepdims=True)
    weights -= np.where(np.isfinite(highest), highest, 0)
    return np.exp(weights, out=weights)
