"""Modify a next-token distribution before sampling: banned tokens, temperature, top-k, top-p.

Every function takes and returns (B, V) natural-log probabilities; excluded tokens are -inf. Knows nothing of models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError


@dataclass(frozen=True)
class Shaping:
    """How a distribution is modified before sampling. The default leaves it as it is."""

    temperature: float = 1.0  # below 1 sharper, above 1 flatter, 0 is greedy
    top_k: int | None = None  # only the k likeliest tokens
    top_p: float | None = None  # only the likeliest tokens that together reach this probability, at least one
    forbid: frozenset[int] = frozenset()  # token ids that may never be chosen

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature {self.temperature} must be 0 or more", code="bad-value", hint="0 is greedy")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top-k {self.top_k} leaves no token", code="bad-value", hint="give at least 1")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise UsageError(
                f"top-p {self.top_p} is not a probability", code="bad-value", hint="give a number between 0 and 1"
            )

    @property
    def is_neutral(self) -> bool:
        """Whether the distribution stays as it is."""
        return self.temperature == 1 and self.top_k is None and self.top_p in (None, 1) and not self.forbid


AS_IS = Shaping()


def shape(log_probs: Array, shaping: Shaping) -> Array:
    """The distribution to sample from: bans first, then temperature, top-k, top-p; renormalised. -> (B, V)"""
    if shaping.is_neutral:
        return log_probs
    log_probs = forbid(log_probs, shaping.forbid)
    log_probs = warm(log_probs, shaping.temperature)
    if shaping.top_k is not None:
        log_probs = keep_top_k(log_probs, shaping.top_k)
    if shaping.top_p is not None:
        log_probs = keep_top_p(log_probs, shaping.top_p)
    return log_probs


def forbid(log_probs: Array, ids: frozenset[int]) -> Array:
    """Zero probability for the given tokens, the rest renormalised."""
    return normalise(without(log_probs, ids)) if ids else log_probs


def without(log_probs: Array, ids: frozenset[int]) -> Array:
    """-inf for the given tokens; the rest is not renormalised."""
    vocab_size = log_probs.shape[1]
    foreign = [token for token in ids if not 0 <= token < vocab_size]
    if foreign:
        raise UsageError(
            f"there is no token {min(foreign)} to forbid: the vocabulary has {vocab_size} tokens", code="unknown-word"
        )
    if not ids:
        return log_probs
    log_probs = log_probs.copy()
    log_probs[:, sorted(ids)] = -np.inf
    return log_probs


def warm(log_probs: Array, temperature: float) -> Array:
    """p ** (1 / temperature), normalised; at 0 all probability is on the likeliest token (ties: the first)."""
    if temperature == 1:
        return log_probs
    best = log_probs.argmax(axis=1)[:, None]
    top = np.take_along_axis(log_probs, best, axis=1)
    _check_possible(top)
    if temperature == 0:
        greedy = np.full_like(log_probs, -np.inf)
        np.put_along_axis(greedy, best, 0.0, axis=1)
        return greedy
    # The maximum is subtracted first, in float64: with a tiny temperature the others overflow to -inf, as they should.
    with np.errstate(over="ignore"):
        scaled = ((log_probs - top).astype(np.float64) / temperature).astype(log_probs.dtype)
    return normalise(scaled)


def likeliest(log_probs: Array, k: int) -> Array:
    """The ids of the k likeliest tokens, likeliest first, ties by id. (V,) -> (k,)"""
    # The k-th best of the block maxima is at most the k-th best of all: 25 times faster than sorting 87,000 tokens.
    block_maxima = np.maximum.reduceat(log_probs, np.arange(0, len(log_probs), 256))
    threshold = np.sort(block_maxima)[-k] if k <= len(block_maxima) else -np.inf
    candidates = np.flatnonzero(log_probs >= threshold)
    return np.asarray(candidates[np.argsort(-log_probs[candidates], kind="stable")[:k]])


def keep_top_k(log_probs: Array, k: int) -> Array:
    """Only the k likeliest tokens of each row (ties: the first), renormalised."""
    if k >= log_probs.shape[1]:
        return log_probs
    threshold_B1 = np.partition(log_probs, -k, axis=1)[:, -k, None]
    return _keep_largest(log_probs, threshold_B1, np.full((len(log_probs), 1), k))


def keep_top_p(log_probs: Array, p: float) -> Array:
    """Only the nucleus: the fewest likeliest tokens whose probability reaches p, at least one, renormalised."""
    if p >= 1:
        return log_probs
    descending_BV = -np.sort(-log_probs, axis=1)
    mass_BV = np.cumsum(np.exp(descending_BV.astype(np.float64)), axis=1)
    count_B1 = 1 + (mass_BV[:, :-1] < p).sum(axis=1, keepdims=True)
    threshold_B1 = np.take_along_axis(descending_BV, count_B1 - 1, axis=1)
    return _keep_largest(log_probs, threshold_B1, count_B1)


def normalise(log_probs: Array) -> Array:
    """Renormalise each row to sum to one. A row without a possible token is an error."""
    top = log_probs.max(axis=1, keepdims=True)
    _check_possible(top)
    shifted = log_probs - top
    total = np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64))
    return np.asarray(shifted - total, dtype=log_probs.dtype)


def _keep_largest(log_probs: Array, threshold_B1: Array, count_B1: Array) -> Array:
    """The tokens above the threshold, and of those equal to it the first ones, `count` in all."""
    is_kept_BV = log_probs >= threshold_B1
    if (is_kept_BV.sum(axis=1, keepdims=True) > count_B1).any():  # too many ties: the first are kept
        above_BV = log_probs > threshold_B1
        equal_BV = log_probs == threshold_B1
        num_ties_B1 = count_B1 - above_BV.sum(axis=1, keepdims=True)
        is_kept_BV = above_BV | (equal_BV & (equal_BV.cumsum(axis=1) <= num_ties_B1))
    return normalise(np.where(is_kept_BV, log_probs, log_probs.dtype.type(-np.inf)))


def _check_possible(top: Array) -> None:
    if np.isneginf(top).any():
        raise UsageError(
            "no token is left to choose from: all tokens of non-zero probability are forbidden",
            code="nothing-possible",
            hint="forbid fewer tokens",
        )
