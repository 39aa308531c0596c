"""Where an adaptive softmax should cut the vocabulary, by the work it would take. Numpy only."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array

# Frequent words are predicted better in the head than through a cluster, so the head is made larger than the cheapest
# one, until the work is this many times the least or this part of a full softmax (Grave et al. 2017 say to do so, not
# how far; this comes near the cut-offs that are in use, 1000 or 2000 words in the head for the Penn Treebank and 2000
# to 4000 for WikiText-2).
GENEROSITY, MOST = 4.0, 0.25


def choose_cutoffs(counts: Array, features: int, *, shrink: float) -> tuple[int, ...]:
    """The ranks at which the two clusters of rarer words begin; none where the vocabulary is too small to cut."""
    counts = -np.sort(-np.asarray(counts, dtype=np.float64))
    vocab_size = len(counts)
    if vocab_size < 16:
        return ()
    covered = np.concatenate([[0.0], np.cumsum(counts + 1e-9)])
    covered /= covered[-1]
    ranks = np.unique(np.geomspace(4, vocab_size - 1, 200).astype(np.int64))
    firsts, seconds = ranks[:, None], ranks[None, :]
    work = multiply_adds(firsts, seconds, vocab_size, covered, features, shrink)
    work = np.where(firsts < seconds, work, np.inf)
    least = work.min()
    allowed = work <= max(least, min(GENEROSITY * least, MOST * features * vocab_size))
    first = int(np.flatnonzero(allowed.any(axis=1))[-1])
    return int(ranks[first]), int(ranks[np.argmin(work[first])])


def multiply_adds(
    firsts: Array, seconds: Array, vocab_size: int, covered: Array, features: int, shrink: float
) -> Array:
    """Of one row on average: the head always, a cluster as often as the text has one of its words."""
    work = features * (firsts + 2.0)
    for index, (low, high) in enumerate(((firsts, seconds), (seconds, np.array(vocab_size)))):
        width = cluster_width(features, index, shrink)
        share = covered[high] - covered[low]
        work = work + share * (width * (high - low) + (features * width if shrink != 1 else 0))
    return np.asarray(work)


def cluster_width(features: int, index: int, shrink: float) -> int:
    """How wide the vectors of a cluster's words are."""
    return max(1, int(features / shrink ** (index + 1))) if features else 0
