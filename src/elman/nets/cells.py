"""Recurrent layers: inputs over time and a state in, outputs over time and the state after the last step out.

Time comes first, so that every step is one block of memory. T steps · B rows · I inputs · H hidden
A state is a tuple of (B, H) tensors.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from elman.nets.dropout import drop_weights

CellState = tuple[Tensor, ...]


class LstmLayer(Module):
    """An LSTM with forget gates (Gers et al. 2000), by the fused kernel. Gates in PyTorch's order: i f g o."""

    num_states = 2

    def __init__(self, inputs: int, hidden: int, *, forget_bias: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden = hidden
        self.forget_bias = forget_bias
        self.weight_in = Parameter(torch.zeros(4 * hidden, inputs, dtype=dtype))
        self.weight_back = Parameter(torch.zeros(4 * hidden, hidden, dtype=dtype))
        self.bias = Parameter(torch.zeros(4 * hidden, dtype=dtype))
        # The kernel wants two biases; only their sum means anything, so one learns and one stays zero.
        self.register_buffer("_no_bias", torch.zeros(4 * hidden, dtype=dtype), persistent=False)

    def initialise(self, rng: torch.Generator) -> None:
        """PyTorch's uniform weights, and a forget gate that begins open."""
        bound = 1 / math.sqrt(self.hidden)
        with torch.no_grad():
            self.weight_in.uniform_(-bound, bound, generator=rng)
            self.weight_back.uniform_(-bound, bound, generator=rng)
            self.bias.zero_()
            self.bias[self.hidden : 2 * self.hidden] = self.forget_bias

    def forward(self, inputs_TBI: Tensor, state: CellState, weight_drop: float = 0.0) -> tuple[Tensor, CellState]:
        """-> (T, B, H), (h, c)"""
        weights = [self.weight_in, drop_weights(self.weight_back, weight_drop), self.bias, cast(Tensor, self._no_bias)]
        h_BH, c_BH = state
        before = (h_BH[None], c_BH[None])
        outputs_TBH, h_1BH, c_1BH = torch._VF.lstm(  # type: ignore[attr-defined]
            inputs_TBI, before, weights, True, 1, 0.0, False, False, False
        )
        return outputs_TBH, (h_1BH[0], c_1BH[0])

    def multiply_adds(self) -> float:
        """Of one step of one row."""
        return float(self.weight_in.numel() + self.weight_back.numel())
