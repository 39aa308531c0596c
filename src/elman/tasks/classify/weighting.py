"""How much a net and the linear model beside it count, fitted on held-out texts.

These are few, so the weights stay near those that are good on many data (docs/log.md); and what is said of them is measured
on texts that they were not fitted on. Numpy and scipy only. P parts, the net first · N texts · L labels
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from elman.core.arrays import Array
from elman.tasks.classify.linear import loss_of
from elman.tasks.classify.parts import LIKELY, Kind, PartWeights

USUAL: dict[Kind, tuple[float, float]] = {"softmax": (0.5, 1.0), "sigmoid": (0.5, 1.0), "linear": (0.5, 0.5)}
# What it costs, in nats, to leave the usual weights: half of this times the square of the distance. Their ratio decides
# which label is given and is hard to tell from a few hundred texts; their size only how sure it is.
RATIO_PULL, SIZE_PULL = 30.0, 1.0
MARGIN = 3.0  # wrong answers that have to be less for another choice: one or two may be chance
MIN_WEIGHT = 0.01  # of a part that is used: its answers stay the same, however unsure
MAX_SCORES = 1 << 17  # texts times labels that weights are fitted on, for the time it takes
HALVINGS = 5  # ways to cut the texts in halves: with one alone the accuracy on 1,101 sentences moved by 2 points
DIGITS = 4


@dataclass(frozen=True)
class Judged:
    """The scores of both parts for some texts, and what they should lead to."""

    kind: Kind
    scores: Array  # (P, N, L)
    wanted: Array  # (N, L), ones and zeros, or numbers; see `LinearModel.wanted`

    def select(self, rows: Array) -> Judged:
        """Some of the texts."""
        return Judged(self.kind, self.scores[:, rows], self.wanted[rows])

    def wrong(self, weights: PartWeights) -> float:
        """Wrong classes, wrong labels, or the errors of numbers in deviations; of all texts."""
        scores_NL = weights.combine(self.scores)
        match self.kind:
            case "softmax":
                return float((scores_NL.argmax(axis=1) != self.wanted.argmax(axis=1)).sum())
            case "sigmoid":
                return float(((scores_NL >= 0) != (self.wanted >= LIKELY)).sum())
            case "linear":
                return float(np.abs(scores_NL - self.wanted).sum())


def usual_weights(kind: Kind) -> PartWeights:
    """Those where there are no held-out texts."""
    net, linear = USUAL[kind]
    return PartWeights(net=net, linear=linear)


def fit_weights(judged: Judged) -> PartWeights:
    """The linear model alone; both together, where these are less often wrong; the net alone, where that is still less."""
    best, *others = (_fit(judged, np.array(used)) for used in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.0)))
    for other in others:
        if judged.wrong(other) <= judged.wrong(best) - MARGIN:
            best = other
    return best


def crosswise(judged: Judged) -> Iterator[Array]:
    """The scores of texts by weights that were fitted without them, on the other half, for several halvings. -> (N, L)"""
    rng = np.random.default_rng(0)
    for _ in range(HALVINGS):
        found = np.zeros(judged.wanted.shape, dtype=np.float32)
        halves = np.array_split(rng.permutation(len(found)), 2)
        for fitted, measured in (halves, halves[::-1]):
            found[measured] = fit_weights(judged.select(fitted)).combine(judged.scores[:, measured])
        yield found


def _fit(judged: Judged, used: Array) -> PartWeights:
    """The weights of least loss; those of parts that are not used are 0."""
    usual = np.array(USUAL[judged.kind]) * used
    along = np.outer(usual, usual) / (usual @ usual)
    pull = RATIO_PULL * (np.eye(2) - along) + SIZE_PULL * along
    scores_PNL = judged.scores.astype(np.float64)

    def loss(weights: Array) -> tuple[float, Array]:
        total, slope_NL = loss_of(np.tensordot(weights, scores_PNL, 1), judged.wanted, judged.kind)
        left = weights - usual
        gradient = (scores_PNL * slope_NL).sum(axis=(1, 2)) + pull @ left
        return total + 0.5 * float(left @ pull @ left), gradient

    bounds = [(MIN_WEIGHT, None) if use else (0.0, 0.0) for use in used]
    options = {"ftol": 1e-14, "gtol": 1e-8}
    found = optimize.minimize(loss, usual, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    net, linear = found.round(DIGITS).tolist()
    return PartWeights(net=net, linear=linear)
