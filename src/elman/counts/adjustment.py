"""The adjustment function of the sparse non-negative matrix model, fitted to held-out text.

A link (feature i, word j) seen C_ij times among the C_i* events of its feature weighs M_ij = exp(A) * C_ij / C_i*, and
p(j | active features) = sum of M_ij / sum of M_i*, with M_i* = sum over j of M_ij. A does not depend on the words
themselves (Chelba & Pereira 2015: nothing is lost): for each template it adds three tables looked up by log-bucketed counts,
    A = a[C_i*, C_ij] + b[C_i*, D_i] + c[C_ij, C_j]        D_i: different words after the feature, C_j: count of the word.
Tables are piecewise linear between powers of two. The loss is that of the distribution itself (multinomial), its
gradient exact, and neighbouring knots are regularised towards each other, so that unseen counts are extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array

BUCKETS = 64  # number of count buckets: 1 to 8 exactly, then four per octave; 131,072 and more share one
KNOTS = 19  # knots of the piecewise linear tables, at counts 1, 2, 4 .. 2**18
FACTORS = ((0, 1), (0, 2), (1, 3))  # the pairs of (C_i*, C_ij, D_i, C_j) that index the tables a, b and c
SMOOTHNESS = 1.0  # nats per squared difference of neighbouring knots; a tenth and ten times are 0.5 to 1 % worse
SHRINKAGE = 0.01  # nats per squared weight, only to make the optimum unique
MAX_STEPS = 150  # iterations of L-BFGS


def bucket(counts: Array) -> Array:
    """The log-bucket of each count >= 1. -> 0 .. BUCKETS-1"""
    octaves = np.log2(np.maximum(counts, 8)) - 3
    fine = np.minimum(7 + np.floor(4 * octaves + 1e-9), BUCKETS - 1)
    return np.where(np.asarray(counts) <= 8, np.maximum(counts, 1) - 1, fine).astype(np.int64)


def coarse_bucket(counts: Array) -> Array:
    """The bucket of a word's own count, rounded to two octaves to keep histograms short."""
    return bucket(counts) // 8 * 8


def code(total: Array, count: Array, diversity: Array, target: Array) -> Array:
    """Four buckets as one number."""
    return ((total * BUCKETS + count) * BUCKETS + diversity) * BUCKETS + target


def _decode(codes: Array) -> list[Array]:
    return [codes // BUCKETS**power % BUCKETS for power in (3, 2, 1, 0)]


def _interpolation() -> Array:
    """The weight of each knot in each bucket: linear in the logarithm of the bucket's middle. -> (BUCKETS, KNOTS)"""
    index = np.arange(BUCKETS)
    middle = np.where(index < 7, np.log2(index + 1.0), 3 + (index - 7 + 0.5) / 4)
    distance = np.abs(np.minimum(middle, KNOTS - 1)[:, None] - np.arange(KNOTS))
    return np.asarray(np.maximum(0.0, 1 - distance))


INTERPOLATION = _interpolation()


@dataclass(frozen=True)
class Evidence:
    """Statistics of one template on held-out text: which features were active, and their links before adjustment."""

    num_rows: int  # features that were active at least once
    link_rows: Array  # the links of those features, summed by bucket: the feature,
    link_codes: Array  # the buckets, and
    link_shares: Array  # the sum of C_ij / C_i*
    use_tokens: Array  # every time a feature was active: at which token, and
    use_rows: Array  # which feature
    hit_tokens: Array  # every time an active feature had a link to the next word: at which token,
    hit_codes: Array  # the buckets of the link, and
    hit_shares: Array  # its C_ij / C_i*


@dataclass(frozen=True)
class Adjustment:
    """The tables of A for every template, and the weight of the always active uniform distribution."""

    tables: Array  # (P, 3, BUCKETS, BUCKETS)
    floor: float

    def factors(self, template: int, codes: Array) -> Array:
        """exp(A) of links, by their codes."""
        buckets = _decode(codes)
        logs = [self.tables[template, i][buckets[a], buckets[b]] for i, (a, b) in enumerate(FACTORS)]
        return np.asarray(np.exp(np.sum(logs, axis=0)))


@dataclass(frozen=True)
class Fit:
    """An adjustment, and its nats per held-out token."""

    adjustment: Adjustment
    nats_per_token: float


def fit_adjustment(evidence: Sequence[Evidence], *, num_tokens: int, vocab_size: int) -> Fit:
    """The adjustment that maximises the likelihood of held-out text, by L-BFGS from A = 0."""
    from scipy.optimize import minimize

    loss = _Loss(evidence, num_tokens=num_tokens, vocab_size=vocab_size)
    start = np.zeros(len(evidence) * len(FACTORS) * KNOTS**2 + 1)
    if num_tokens == 0:
        return Fit(loss.adjustment(start), float("nan"))
    options = {"maxiter": MAX_STEPS, "maxcor": 20}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return Fit(loss.adjustment(best), loss.nats(best) / num_tokens)


class _Loss:
    """-log p of the held-out text as a function of the knots and log floor (the last weight), and its gradient.

    log p(w_t) = log N_t - log D_t, with N_t = sum of M_iw over active features, D_t = sum of M_i*.
    """

    def __init__(self, evidence: Sequence[Evidence], *, num_tokens: int, vocab_size: int) -> None:
        self.num_templates = len(evidence)
        self.num_tokens = num_tokens
        self.vocab_size = vocab_size
        first_row = np.cumsum([0] + [part.num_rows for part in evidence])
        self.num_rows = int(first_row[-1])
        self.link_rows = np.concatenate([part.link_rows + row for part, row in zip(evidence, first_row, strict=False)])
        self.use_rows = np.concatenate([part.use_rows + row for part, row in zip(evidence, first_row, strict=False)])
        self.link_shares = np.concatenate([part.link_shares for part in evidence])
        self.use_tokens = np.concatenate([part.use_tokens for part in evidence])
        self.hit_tokens = np.concatenate([part.hit_tokens for part in evidence])
        self.hit_shares = np.concatenate([part.hit_shares for part in evidence])
        # millions of links, but only thousands of distinct inputs of A
        template = BUCKETS**4 * np.arange(len(evidence))
        codes = [part.link_codes + offset for part, offset in zip(evidence, template, strict=True)]
        codes += [part.hit_codes + offset for part, offset in zip(evidence, template, strict=True)]
        kinds, kind = np.unique(np.concatenate(codes), return_inverse=True)
        self.link_kinds, self.hit_kinds = np.split(kind, [len(self.link_rows)])
        buckets = _decode(kinds)
        table = kinds // BUCKETS**4 * len(FACTORS)
        self.cells = [((table + i) * BUCKETS + buckets[a]) * BUCKETS + buckets[b] for i, (a, b) in enumerate(FACTORS)]

    def adjustment(self, weights: Array) -> Adjustment:
        knots = weights[:-1].reshape(self.num_templates, len(FACTORS), KNOTS, KNOTS)
        return Adjustment(INTERPOLATION @ knots @ INTERPOLATION.T, float(np.exp(weights[-1])))

    def nats(self, weights: Array) -> float:
        return self._forward(weights)[0]

    def _forward(self, weights: Array) -> tuple[float, Array, Array, Array, Array, float]:
        adjustment = self.adjustment(weights)
        tables, floor = adjustment.tables.ravel(), adjustment.floor
        factors = np.exp(np.sum([tables[cells] for cells in self.cells], axis=0))
        links = self.link_shares * factors[self.link_kinds]
        hits = self.hit_shares * factors[self.hit_kinds]
        rows = np.bincount(self.link_rows, weights=links, minlength=self.num_rows)
        numerators = np.bincount(self.hit_tokens, weights=hits, minlength=self.num_tokens) + floor / self.vocab_size
        denominators = np.bincount(self.use_tokens, weights=rows[self.use_rows], minlength=self.num_tokens) + floor
        nats = float(np.log(denominators).sum() - np.log(numerators).sum())
        return nats, links, hits, numerators, denominators, floor

    def __call__(self, weights: Array) -> tuple[float, Array]:
        nats, links, hits, numerators, denominators, floor = self._forward(weights)
        row_weights = np.bincount(self.use_rows, weights=1 / denominators[self.use_tokens], minlength=self.num_rows)
        kinds = np.bincount(self.link_kinds, weights=links * row_weights[self.link_rows], minlength=len(self.cells[0]))
        kinds -= np.bincount(self.hit_kinds, weights=hits / numerators[self.hit_tokens], minlength=len(self.cells[0]))
        shape = (self.num_templates, len(FACTORS), BUCKETS, BUCKETS)
        slopes = sum(np.bincount(cells, weights=kinds, minlength=int(np.prod(shape))) for cells in self.cells)
        knots = weights[:-1].reshape(*shape[:2], KNOTS, KNOTS)
        gradient = INTERPOLATION.T @ np.reshape(slopes, shape) @ INTERPOLATION + SHRINKAGE * knots
        penalty = SHRINKAGE / 2 * float((weights**2).sum())
        for axis in (2, 3):
            steps = np.diff(knots, axis=axis)
            penalty += SMOOTHNESS / 2 * float((steps**2).sum())
            edge = np.zeros_like(np.take(knots, [0], axis=axis))
            gradient -= SMOOTHNESS * np.diff(steps, axis=axis, prepend=edge, append=edge)
        floor_slope = (
            floor * float((1 / denominators).sum() - (1 / numerators).sum() / self.vocab_size) + SHRINKAGE * weights[-1]
        )
        return (nats + penalty) / self.num_tokens, np.append(gradient, floor_slope) / self.num_tokens
