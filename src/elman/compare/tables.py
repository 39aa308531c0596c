"""What the nats of every token of one text say of several models: which differ for sure, on which words, where, on which lines.

Knows no models, only their nats. L lines · N tokens · U units that are drawn together · M models
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.lm.evaluate import MAX_UNITS, MIN_UNITS, line_starts
from elman.text.units.vocabulary import UNK_ID

RESAMPLES = 1_000
LEVEL = 0.95
POSITIONS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560)  # last places of the bins; longer lines: one more
MIN_LINE_TOKENS = 4  # shorter lines say little
LINES_EACH = 3  # lines shown for each model that wins any

Nats = Mapping[str, Array]  # of every token, (N,), by the name of the model


def differences(nats: Nats, ids_N: Array, *, seed: int) -> list[dict[str, Any]]:
    """The ratio of perplexities of every two models, and whether it could be chance: the paired bootstrap over lines.

    The same lines are drawn for all models, so what makes a text hard for all of them cancels out.
    """
    if len(nats) < 2:
        return []
    starts = line_starts(ids_N)
    starts = starts[:: -(-len(starts) // MAX_UNITS)]
    tokens_U = np.diff(starts, append=len(ids_N)).astype(np.float64)
    nats_UM = np.stack([np.add.reduceat(column, starts, dtype=np.float64) for column in nats.values()], axis=1)
    means_M = nats_UM.sum(axis=0) / tokens_U.sum()
    drawn_RM = _resampled_means(nats_UM, tokens_U, seed=seed) if len(tokens_U) >= MIN_UNITS else None
    found = []
    for (place_a, a), (place_b, b) in combinations(enumerate(nats), 2):
        low = high = None
        if drawn_RM is not None:
            difference_R = drawn_RM[:, place_a] - drawn_RM[:, place_b]
            low, high = np.exp(np.quantile(difference_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])).tolist()
        found.append(
            {
                "a": a,
                "b": b,
                "ratio": float(np.exp(means_M[place_a] - means_M[place_b])),
                "low": low,
                "high": high,
                "significant": low is not None and high is not None and not low <= 1.0 <= high,
            }
        )
    return found


def _resampled_means(nats_UM: Array, tokens_U: Array, *, seed: int) -> Array:
    """Nats a token of every model on texts of as many units, drawn with replacement. -> (R, M)"""
    rng = np.random.default_rng(seed)
    num_units = len(tokens_U)
    means_RM = np.empty((RESAMPLES, nats_UM.shape[1]))
    for resample in range(RESAMPLES):
        times_U = np.bincount(rng.integers(0, num_units, num_units), minlength=num_units)
        means_RM[resample] = times_U @ nats_UM / (times_U @ tokens_U)
    return means_RM


def by_frequency(nats: Nats, ids_N: Array, counts_V: Array) -> list[dict[str, Any]]:
    """Nats a token by how often its word is in the training text; unknown words are in it 0 times, whatever they are."""
    counts_V = counts_V.copy()
    counts_V[UNK_ID] = 0
    seen_N = counts_V[ids_N]
    edges = [0]
    while edges[-1] < int(seen_N.max(initial=0)):
        edges.append(max(10, edges[-1] * 10))
    return _by_bin(nats, seen_N, edges)


def by_position(nats: Nats, ids_N: Array) -> list[dict[str, Any]]:
    """Nats a token by its place in the line, from 1; the end of a line is the last place."""
    starts = line_starts(ids_N)
    lengths = np.diff(starts, append=len(ids_N))
    places_N = np.arange(len(ids_N)) - np.repeat(starts, lengths) + 1
    longest = int(places_N.max(initial=0))
    return _by_bin(nats, places_N, [*(edge for edge in POSITIONS if edge < longest), longest])


def _by_bin(nats: Nats, values_N: Array, edges: Sequence[int]) -> list[dict[str, Any]]:
    """Means within bins that end with the edges."""
    least = min(edges[0], 1)  # the value of the first bin
    found = []
    for before, last in pairwise([least - 1, *edges]):
        inside_N = (values_N > before) & (values_N <= last)
        if inside_N.any():
            means = {name: float(column[inside_N].mean(dtype=np.float64)) for name, column in nats.items()}
            found.append({"from": before + 1, "to": last, "tokens": int(inside_N.sum()), "nats": means})
    return found


def telling_lines(nats: Nats, ids_N: Array) -> list[tuple[int, dict[str, Any]]]:
    """Where each model wins: of every model the lines that it likes most beside the next best, the largest lead first.

    -> numbers of lines from 0, each with who is best and the nats a token of all.
    """
    if len(nats) < 2:
        return []
    starts = line_starts(ids_N)
    lengths_L = np.diff(starts, append=len(ids_N))
    means_ML = np.stack([np.add.reduceat(one, starts, dtype=np.float64) / lengths_L for one in nats.values()])
    best_L = means_ML.argmin(axis=0)
    two_best = np.partition(means_ML, 1, axis=0)[:2]
    lead_L = np.where(lengths_L >= MIN_LINE_TOKENS, two_best[1] - two_best[0], -1.0)
    chosen: list[int] = []
    for place in range(len(nats)):
        own = np.flatnonzero((best_L == place) & (lead_L > 0))
        chosen += own[np.argsort(-lead_L[own], kind="stable")][:LINES_EACH].tolist()
    chosen.sort(key=lambda line: -lead_L[line])
    names = list(nats)
    return [
        (line, {"best": names[best_L[line]], "nats": dict(zip(names, means_ML[:, line].tolist(), strict=True))})
        for line in chosen
    ]
