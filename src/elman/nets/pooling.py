"""Pools the encoder outputs of all words into one vector per text. T words · B rows · O width"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter

from elman.nets.encoder import Encoding
from elman.nets.layer import draw_weights

PoolKind = Literal["last", "mean", "max", "attention"]


class Pool(Module):
    """The last state; the mean or maximum over words; or a mean with learned attention weights."""

    def __init__(self, kind: PoolKind, width: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.kind = kind
        self.inner: Linear | None = None
        if kind == "attention":
            self.inner = Linear(width, width, dtype=dtype)
            self.query = Parameter(torch.zeros(width, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        if self.inner is not None:
            draw_weights(rng, self.inner.weight, self.inner.bias, self.query, inputs=len(self.query))

    def forward(self, encoding: Encoding, lengths_B: Tensor) -> Tensor:
        """-> (B, O); rows have at least one word"""
        outputs_TBO = encoding.outputs
        is_word_TB = torch.arange(outputs_TBO.shape[0], device=lengths_B.device)[:, None] < lengths_B
        match self.kind:
            case "last":
                return encoding.last() if encoding.backward else encoding.forward[-1][0]
            case "mean":
                return outputs_TBO.sum(0) / lengths_B[:, None]
            case "max":
                return outputs_TBO.masked_fill(~is_word_TB[:, :, None], -torch.inf).amax(0)
            case "attention":
                return (self.weights(encoding, lengths_B)[:, :, None] * outputs_TBO).sum(0)

    def weights(self, encoding: Encoding, lengths_B: Tensor) -> Tensor:
        """The attention weight of each word, attention only (Yang et al. 2016). -> (T, B), columns sum to one"""
        assert self.inner is not None
        outputs_TBO = encoding.outputs
        is_word_TB = torch.arange(outputs_TBO.shape[0], device=lengths_B.device)[:, None] < lengths_B
        scores_TB = torch.tanh(self.inner(outputs_TBO)) @ self.query
        return scores_TB.masked_fill(~is_word_TB, -torch.inf).softmax(0)
