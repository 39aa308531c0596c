"""A learned weighted mean of the layers of a pretrained net (Peters et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module, Parameter


class LayerMix(Module):
    """gamma * sum_j softmax(s)_j h_j over layers h_j; initially their mean."""

    def __init__(self, num_layers: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.scores = Parameter(torch.zeros(num_layers, dtype=dtype))
        self.gamma = Parameter(torch.ones((), dtype=dtype))

    def forward(self, layers: Tensor) -> Tensor:
        """layers (L, ...) -> (...)"""
        mixed: Tensor = self.gamma * torch.tensordot(self.scores.softmax(0), layers, dims=1)
        return mixed
