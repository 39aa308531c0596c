"""Word vectors from counts: which words stand beside which, by positive pointwise mutual information, factored.

For a word w, a place d beside it (one or two words before or after) and a frequent word c,

    x_wdc = max(0, log p(w, c at d) / (p(w) q(c))),    q(c) in proportion to count(c)^0.75      (Levy et al. 2015)

and X = U S V', of which the largest values are kept; the vector of w is its row of U S^0.5, turned at random, so that
every unit has a share of all of them. A net that begins with these knows in its first step what it would learn
in its first pass (docs/log.md). V words · C words beside them · W width · R rank
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elman.core.arrays import Array

DISTANCES = (1, 2)  # words before and after that describe a word
MAX_CONTEXTS = 1_000  # words, the most frequent, that describe others
SMOOTHING = 0.75  # exponent of the counts of those: makes rare ones less telling
MAX_TOKENS = 1 << 22  # of a text that is counted, from its beginning: more tell nothing new
OVERSAMPLED = (
    16  # columns more than wanted, so that a random projection has the largest values in it (Halko et al. 2011)
)
ROUNDS = 2  # of power iteration: one leaves the net 3 % worse, a third makes it no better (docs/log.md)
SPREAD = 0.12  # standard deviation of all numbers
TINY = 1e-6  # smallest square that is divided by


def count_word_vectors(ids: Array, *, vocab_size: int, width: int, rng: np.random.Generator) -> Array:
    """A vector for each word of a text, NaN for those that it does not have. -> (V, W) float32"""
    matrix = _information(np.asarray(ids[:MAX_TOKENS]), vocab_size)
    rank = min(width + OVERSAMPLED, *matrix.shape)
    basis_CR = rng.standard_normal((matrix.shape[1], rank), np.float32)
    for _ in range(ROUNDS):
        basis_CR = np.linalg.qr(matrix.T @ (matrix @ basis_CR)).Q
    product_VR = matrix @ basis_CR  # = U S of the basis, turned: U S^0.5 by its Gram matrix, which is small
    squares_R, turn_RR = np.linalg.eigh(product_VR.T @ product_VR)
    kept = min(rank, width)
    vectors_VW = np.zeros((vocab_size, width), np.float32)
    vectors_VW[:, :kept] = product_VR @ (turn_RR[:, -kept:] * np.maximum(squares_R[-kept:], TINY) ** -0.25)
    vectors_VW @= np.linalg.qr(rng.standard_normal((width, width), np.float32)).Q
    vectors_VW *= SPREAD / (vectors_VW.std() or 1.0)
    vectors_VW[~vectors_VW.any(axis=1)] = np.nan
    return vectors_VW


def _information(ids: Array, vocab_size: int) -> Any:
    """How much more often than by chance each frequent word stands at each place beside each word: sparse, (V, places C)."""
    from scipy import sparse

    counts_V = np.bincount(ids, minlength=vocab_size).astype(np.float64)
    num_contexts = min(vocab_size, MAX_CONTEXTS)
    contexts = np.argsort(-counts_V, kind="stable")[:num_contexts]
    places_V = np.full(vocab_size, -1)
    places_V[contexts] = np.arange(num_contexts)
    chances_C = counts_V[contexts] ** SMOOTHING / (counts_V**SMOOTHING).sum()

    def information(words: Array, beside: Array, counts: Array) -> Any:
        places = places_V[beside]
        is_kept = places >= 0
        words, places, counts = words[is_kept], places[is_kept], counts[is_kept]
        found = np.log(counts / (counts_V[words] * chances_C[places])).astype(np.float32)
        is_positive = found > 0
        cells = (found[is_positive], (words[is_positive], places[is_positive]))
        return sparse.csr_array(cells, shape=(vocab_size, num_contexts))

    parts = []
    for distance in DISTANCES:
        pairs, counts = np.unique(ids[:-distance].astype(np.int64) * vocab_size + ids[distance:], return_counts=True)
        first, second = np.divmod(pairs, vocab_size)
        parts += [information(first, second, counts), information(second, first, counts)]
    return sparse.hstack(parts, format="csr")
