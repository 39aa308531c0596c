"""Cutoffs of an adaptive softmax, chosen by its cost in multiply-adds. Numpy only."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array

# Frequent words are predicted better in the head than through a cluster, so the head is made larger than the cheapest
# one, up to a cost of MAX_COST_RATIO times the minimum or MAX_COST_SHARE of a full softmax. (Grave et al. 2017 say to do
# so, not how far; this comes near the usual cutoffs, 1000 or 2000 words in the head for the Penn Treebank and 2000 to
# 4000 for WikiText-2.)
MAX_COST_RATIO, MAX_COST_SHARE = 4.0, 0.25


def choose_cutoffs(counts: Array, features: int, *, shrink: float) -> tuple[int, ...]:
    """The ranks at which the two clusters of rarer words begin; none for a very small vocabulary."""
    counts = -np.sort(-np.asarray(counts, dtype=np.float64))
    vocab_size = len(counts)
    if vocab_size < 16:
        return ()
    covered = np.concatenate([[0.0], np.cumsum(counts + 1e-9)])
    covered /= covered[-1]
    ranks = np.unique(np.geomspace(4, vocab_size - 1, 200).astype(np.int64))
    firsts, seconds = ranks[:, None], ranks[None, :]
    cost = multiply_adds(firsts, seconds, vocab_size, covered, features, shrink)
    cost = np.where(firsts < seconds, cost, np.inf)
    lowest = cost.min()
    allowed = cost <= max(lowest, min(MAX_COST_RATIO * lowest, MAX_COST_SHARE * features * vocab_size))
    first = int(np.flatnonzero(allowed.any(axis=1))[-1])
    return int(ranks[first]), int(ranks[np.argmin(cost[first])])


def multiply_adds(
    firsts: Array, seconds: Array, vocab_size: int, covered: Array, features: int, shrink: float
) -> Array:
    """Mean multiply-adds per row: the head always, a cluster for the share of tokens that are in it."""
    cost = features * (firsts + 2.0)
    for index, (low, high) in enumerate(((firsts, seconds), (seconds, np.array(vocab_size)))):
        width = cluster_width(features, index, shrink)
        share = covered[high] - covered[low]
        cost = cost + share * (width * (high - low) + (features * width if shrink != 1 else 0))
    return np.asarray(cost)


def cluster_width(features: int, index: int, shrink: float) -> int:
    """The width of the word vectors in a cluster."""
    return max(1, int(features / shrink ** (index + 1))) if features else 0
