"""Gradients of many predictions at once, by whatever was recorded on the way.

T tokens · R predictions · C columns · P features
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.explain.reading import Reading
from elman.nets.trace import NetTrace


class Predictions:
    """Some predictions of a reading, each the score of its chosen column."""

    def __init__(self, reading: Reading, traced: NetTrace, scores_RC: Tensor, rows: Array) -> None:
        self._rows = torch.from_numpy(np.asarray(rows, dtype=np.int64))
        chosen = torch.from_numpy(np.asarray(reading.chosen, dtype=np.int64))[self._rows]
        self.scores = scores_RC[self._rows, chosen]  # (R,)
        self._features = traced.features if reading.is_local else None

    def gradients(self, nodes: Sequence[Tensor]) -> list[Tensor]:
        """d score / d node for each prediction and each node; zeros where one does not depend on it. -> (R, *node) each

        Where a prediction is made of its own features alone, the output is gone through once for all of them: to hold
        the gradients of all scores for each prediction would take R * T * V numbers.
        """
        outputs, given = self.scores, torch.eye(len(self.scores), dtype=self.scores.dtype)
        if self._features is not None:
            (own,) = torch.autograd.grad(self.scores.sum(), [self._features], retain_graph=True)
            outputs, given = self._features, own.new_zeros(len(self._rows), *own.shape)
            places = torch.arange(len(self._rows))
            given[places, self._rows] = own[self._rows]
        grads = torch.autograd.grad(
            outputs, list(nodes), grad_outputs=given, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
        return [
            given.new_zeros(len(self._rows), *node.shape) if grad is None else grad
            for grad, node in zip(grads, nodes, strict=True)
        ]
