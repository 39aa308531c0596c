"""Weights of members by EM.

`N` tokens, `V` vocabulary, `M` members.
"""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array

OWN_BUCKET = 100  # occurrences in the held-out text from which a word has a bucket of its own
MAX_ROUNDS = 1_000  # limit of EM iterations


def bucket_words(ids: Array, *, vocab_size: int) -> Array:
    """The bucket of each word by its count: one of its own, or one of words of similar frequency. -> (V,)"""
    counts = np.bincount(ids, minlength=vocab_size)
    is_frequent = counts >= OWN_BUCKET
    classes = np.floor(np.log2(counts + 1)).astype(np.int32)
    own_buckets = int(classes[~is_frequent].max(initial=-1)) + np.cumsum(is_frequent)
    return np.where(is_frequent, own_buckets, classes).astype(np.int32)


def fit_weights(log_probs: Array, *, prior: Array | None = None, prior_tokens: float = 0.0) -> Array:
    """The weights that maximise the likelihood of the tokens, by EM. (M, N) log-probabilities -> (M,)

    lambda_m <- mean over tokens of lambda_m p_m / sum of lambda p, with prior_tokens pseudo-counts by the prior.
    """
    prior = np.full(len(log_probs), 1 / len(log_probs)) if prior is None else prior
    best = log_probs.max(axis=0, initial=-np.inf)
    possible = np.isfinite(best)
    probs = np.exp(log_probs[:, possible].astype(np.float64) - best[possible])
    weights, num_tokens = prior, probs.shape[1] + prior_tokens
    if num_tokens == 0:
        return prior
    for _ in range(MAX_ROUNDS):
        new = (weights * (probs @ (1.0 / (weights @ probs))) + prior_tokens * prior) / num_tokens
        change = float(np.abs(new - weights).max())
        weights = new
        if change < 1e-6:
            break
    return np.asarray(weights / weights.sum())


def log_mixed(log_probs: Array, weights: Array) -> Array:
    """log of the weighted sum for each token. (M, N), (1 or N, M) -> (N,)"""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(log_probs.astype(np.float64) + np.log(weights.T), axis=0))
