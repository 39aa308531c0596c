"""A net and the linear model beside it as one classifier: the scores of both, each times a weight, are added.

    scores = weight of the net * scores of the net + weight of the linear model * its scores

A softmax (sigmoid, number) of the sum is their geometric mean, calibrated: together the weights are a temperature, and a
weight of 0 leaves a part out. P parts, the net first · N texts · L labels
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from elman.core.arrays import Array
from elman.core.settings import Config

Kind = Literal["softmax", "sigmoid", "linear"]
PARTS = ("net", "linear")
LIKELY = 0.5  # probability from which on a label is given, where several are allowed


class PartWeights(Config):
    """How much the scores of each part count."""

    net: float = Field(ge=0)
    linear: float = Field(ge=0)

    def combine(self, scores_PNL: Array) -> Array:
        """The scores of the classifier. -> (N, L)"""
        return np.asarray(self.net * scores_PNL[0] + self.linear * scores_PNL[1], dtype=np.float32)

    def sentence(self) -> str:
        """What predicts."""
        if not self.linear:
            return "the net alone"
        if not self.net:
            return "the linear model alone"
        return f"the net and the linear model together, scores = {self.net:.4g} * net + {self.linear:.4g} * linear"


def answers_of(scores: Array, kind: Kind, *, centre: float, spread: float) -> Array:
    """Probabilities of the labels, or the number, from their scores. -> (N, L)"""
    scores = np.asarray(scores, dtype=np.float64)
    match kind:
        case "softmax":
            found = np.exp(scores - scores.max(axis=1, keepdims=True))
            found /= found.sum(axis=1, keepdims=True)
        case "sigmoid":
            found = 0.5 * (1.0 + np.tanh(0.5 * scores))
        case "linear":
            found = centre + spread * scores
    return np.asarray(found, dtype=np.float32)
