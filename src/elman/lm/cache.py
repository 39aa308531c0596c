"""A cache language model: a unigram model of the last tokens, with or without decay. Only useful inside a mixture.

Both kinds are one: the last W tokens, the one read `age` tokens ago having weight decay**age (decay 1: equal weights).
A decaying cache drops tokens of weight below 1e-4, so its window is finite too and its state small.
Before the first token all tokens are equally likely; afterwards a token outside the window is impossible (-inf).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.lm.protocol import join_arrays

FORGOTTEN = 1e-4  # the weight below which a decaying cache drops a token
EMPTY = -1  # padding of a window that is not full yet


class CacheConfig(Config):
    """A cache: unigram probabilities from the tokens just read. Only useful inside a mixture."""

    family: Literal["cache"] = "cache"
    window: int | None = Field(
        None, ge=1, description="only the last so many words are kept; without a decay all of them count equally"
    )
    decay: float | None = Field(
        None, gt=0, le=1, description="weight of a word after each step, as a factor; 0.995 where there is no window"
    )

    @model_validator(mode="after")
    def _forgets(self) -> Self:
        if self.window is None and self.decay == 1:
            raise ValueError("a cache that never forgets needs a window")
        return self

    @property
    def kept(self) -> float:
        """The factor of a token's weight per step."""
        return self.decay or (0.995 if self.window is None else 1.0)


class CacheModel:
    """A unigram model of the last W tokens. Its state is the window itself, (B, W), the newest token last."""

    def __init__(self, config: CacheConfig, *, vocab_size: int) -> None:
        self.config = config
        self.vocab_size = vocab_size
        self.decay = config.kept
        self.window = config.window or math.ceil(math.log(FORGOTTEN) / math.log(self.decay))
        self._weights = self.decay ** np.arange(self.window, dtype=np.float64)  # by age
        self._totals = np.concatenate([[0.0], np.cumsum(self._weights)])  # by number of tokens in the window

    def start(self, rows: int) -> Array:
        """An empty window. -> (rows, W)"""
        return np.full((rows, self.window), EMPTY, dtype=np.int32)

    def predict(self, state: Array) -> Array:
        """Each token's share of the weight in the window. -> (B, V)"""
        num_rows = len(state)
        row, slot = np.nonzero(state != EMPTY)
        cell = row * self.vocab_size + state[row, slot]
        weights = self._weights[self.window - 1 - slot]
        shares = np.bincount(cell, weights=weights, minlength=num_rows * self.vocab_size)
        return self._log_shares(shares.reshape(num_rows, self.vocab_size), (state != EMPTY).sum(axis=1)[:, None])

    def advance(self, tokens: Array, state: Array) -> Array:
        """The window after one more token."""
        return np.concatenate([state[:, 1:], np.asarray(tokens, dtype=np.int32)[:, None]], axis=1)

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        """Log-probability of each token from the window before it, 0 at padding, and the windows after. -> (B, T)"""
        num_rows, num_tokens = tokens.shape
        is_token = np.arange(num_tokens) < lengths[:, None]
        text = np.concatenate([state, np.where(is_token, tokens, EMPTY)], axis=1)
        weight = self._weight_of_earlier(text)[:, self.window :]
        num_before = np.minimum((state != EMPTY).sum(axis=1)[:, None] + np.arange(num_tokens), self.window)
        nats = np.where(is_token, self._log_shares(weight, num_before), np.float32(0))
        after = np.asarray(lengths)[:, None] + np.arange(self.window)
        return nats, text[np.arange(num_rows)[:, None], after].astype(np.int32)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of several states as one batch."""
        return join_arrays(states)

    def tensors(self) -> dict[str, Array]:
        """Nothing: a cache has no learned parameters."""
        return {}

    @classmethod
    def from_tensors(
        cls, config: CacheConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> CacheModel:
        """The model of this config; lines are reset by starting from an empty window."""
        return cls(config, vocab_size=vocab_size)

    def _log_shares(self, weights: Array, num_before: Array) -> Array:
        """log(weight / weight of all tokens in the window), or log(1/V) where the window is empty."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.log(weights / self._totals[num_before])
        return np.where(num_before == 0, -math.log(self.vocab_size), shares).astype(np.float32)

    def _weight_of_earlier(self, text: Array) -> Array:
        """For each position in the text, the weight of the same token in the window before it. (B, W+T) -> the same

        The positions of one token in one row form a chain q_0 < q_1 < ...; with s_k = sum over j <= k of
        decay**(q_k - q_j), which is 1 + decay**(q_k - q_{k-1}) * s_{k-1}, the weight before q_k is
        decay**(q_k - 1 - q_{k-1}) * s_{k-1}, minus the same for the last link that has left the window.
        """
        width = text.shape[1]
        row, place = np.nonzero(text != EMPTY)
        key = (row * self.vocab_size + text[row, place]) * width + place  # sorts by row, token, place
        order = np.argsort(key)
        key, place = key[order], place[order]
        gap = np.diff(place, prepend=0)
        is_same = np.diff(key // width, prepend=-1) == 0
        sums = np.array(list(accumulate(np.where(is_same, self._power(gap), 0.0).tolist(), _next_sum, initial=0.0)))
        newest = np.arange(len(key))  # index into sums of the link before this one, shifted by the initial 0
        oldest_in_reach = np.searchsorted(key, np.maximum(key - self.window, key - place))
        is_gone = (oldest_in_reach > 0) & (key[oldest_in_reach - 1] // width == key // width)
        gone_gap = place - 1 - place[oldest_in_reach - 1]
        weight = np.where(is_same, self._power(gap - 1) * sums[newest], 0.0)
        weight -= np.where(is_gone, self._power(gone_gap) * sums[oldest_in_reach], 0.0)
        weights = np.zeros(text.shape)
        weights[row[order], place] = np.where(oldest_in_reach == newest, 0.0, weight)
        return weights

    def _power(self, exponent: Array) -> Array:
        """decay**exponent; negative exponents, of unused entries, count as 0."""
        return np.asarray(self.decay ** np.maximum(exponent, 0).astype(np.float64))


def _next_sum(before: float, factor: float) -> float:
    return 1.0 + factor * before
