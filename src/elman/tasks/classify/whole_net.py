"""A classifier as one function of tensors: the net, the linear model beside it, and what their scores lead to.

B rows · T words · P phrases · U phrases with a weight · L labels
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module

from elman.nets.graphs import BATCH, EXAMPLE_LENGTH, LENGTH, ROWS, Graph, TensorModule, in_float32
from elman.tasks.classify.linear import LinearModel
from elman.tasks.classify.net import TextClassifier
from elman.tasks.classify.parts import PartWeights

NO_PHRASE = -1  # where a text has fewer phrases than another


class PhraseScorer(Module):
    """`LinearModel.scores` of texts that are numbers of phrases already."""

    rows: Tensor  # of each hash bucket, the row of its weights; the last one is that of phrases without
    weights: Tensor
    rarity: Tensor
    bias: Tensor

    def __init__(self, linear: LinearModel) -> None:
        super().__init__()
        used = np.flatnonzero(linear.rarity)
        rows = np.full(len(linear.rarity) + 1, len(used), dtype=np.int32)  # NO_PHRASE is the last of them
        rows[used] = np.arange(len(used))
        self.register_buffer("rows", torch.from_numpy(rows))
        self.register_buffer("weights", F.pad(torch.from_numpy(linear.weights[used]), (0, 0, 0, 1)))
        self.register_buffer("rarity", F.pad(torch.from_numpy(linear.rarity[used]), (0, 1)))
        self.register_buffer("bias", torch.from_numpy(linear.bias.astype(np.float32)))

    def forward(self, phrases_BP: Tensor) -> Tensor:
        """-> (B, L)"""
        places_BP = torch.where(phrases_BP == NO_PHRASE, len(self.rows) - 1, phrases_BP)
        rows_BP = self.rows[places_BP].long()
        values_BP = self.rarity[rows_BP]
        norms_B1 = values_BP.square().sum(1, keepdim=True).sqrt().clamp(min=1e-9)
        return torch.einsum("bp,bpl->bl", values_BP / norms_B1, self.weights[rows_BP]) + self.bias


class WholeClassifier(Module):
    """The parts of a classifier that are used."""

    def __init__(self, net: TextClassifier, linear: LinearModel | None, weights: PartWeights) -> None:
        super().__init__()
        self.net = in_float32(net)
        self.phrases = PhraseScorer(linear) if linear is not None and weights.linear else None
        self.part_weights = weights

    def classify(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """words (B, T) and lengths (B,), phrases (B, P), as far as they are used -> scores, and what they lead to"""
        scores_BL: Tensor | float = 0.0
        if self.part_weights.net:
            scores_BL = self.part_weights.net * self.net.score_ids(inputs[0], inputs[1])
        if self.phrases is not None:
            scores_BL = scores_BL + self.part_weights.linear * self.phrases(inputs[-1])
        assert isinstance(scores_BL, Tensor)
        match self.net.config.output:
            case "softmax":
                return scores_BL, scores_BL.softmax(1)
            case "sigmoid":
                return scores_BL, scores_BL.sigmoid()
            case "linear":
                return scores_BL, self.net.first.centre + self.net.first.spread * scores_BL

    def graph(self) -> Graph:
        """All of it."""
        inputs: dict[str, Tensor] = {}
        if self.part_weights.net:
            inputs["words"] = torch.zeros(ROWS, EXAMPLE_LENGTH, dtype=torch.int64)
            inputs["lengths"] = torch.tensor([EXAMPLE_LENGTH, 1])
        if self.phrases is not None:
            inputs["phrases"] = torch.zeros(ROWS, EXAMPLE_LENGTH, dtype=torch.int64)
        axes = {"words": {0: BATCH, 1: LENGTH}, "lengths": {0: BATCH}, "phrases": {0: BATCH, 1: "phrases"}}
        answers = "values" if self.net.config.output == "linear" else "probabilities"
        return Graph("model", TensorModule(self, WholeClassifier.classify), inputs, axes, ["scores", answers])
