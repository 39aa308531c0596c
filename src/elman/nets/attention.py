"""Attention of a decoder to a source: scores of a query against keys, normalised by a softmax.

B rows · T target steps · S source positions · H hidden of the query · M width of the memory · A inner width
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module, Parameter

from elman.core.errors import UsageError
from elman.nets.config import Score
from elman.nets.layer import draw_weights


class Attention(Module):
    """Content-based attention (Bahdanau et al. 2015, Luong et al. 2015).

    dot: s·h · scaled: s·h / sqrt(H) · bilinear: s·W h · additive: v·tanh(W s + U h)
    """

    def __init__(self, score: Score, *, query: int, memory: int, inner: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.score: Score = score
        self._memory = memory
        if score in ("dot", "scaled") and query != memory:
            raise UsageError(
                f"model.score={score} needs decoder and encoder states of one width; these have {query} and {memory}",
                code="bad-value",
                hint="model.score=bilinear takes any widths",
            )
        if score == "bilinear":
            self.weight = Parameter(torch.zeros(query, memory, dtype=dtype))
        if score == "additive":
            self.weight_query = Parameter(torch.zeros(inner, query, dtype=dtype))
            self.weight_memory = Parameter(torch.zeros(inner, memory, dtype=dtype))
            self.vector = Parameter(torch.zeros(inner, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Uniform weights, also of the additive vector: from zero, with uniform attention, it would start slowly."""
        for weight in self.parameters():
            draw_weights(rng, weight, inputs=weight.shape[-1])

    def keys(self, memory_BSM: Tensor) -> tuple[Tensor, ...]:
        """What is computed once per source: U h of additive scores, (B, S, A)."""
        return (F.linear(memory_BSM, self.weight_memory),) if self.score == "additive" else ()

    def forward(
        self, queries_BTH: Tensor, memory_BSM: Tensor, lengths_B: Tensor, keys: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """The weighted memory, (B, T, M), and the weights, (B, T, S), which are 0 at padding."""
        energies_BTS = self._energies(queries_BTH, memory_BSM, keys)
        is_padding_BS = torch.arange(memory_BSM.shape[1], device=lengths_B.device) >= lengths_B[:, None]
        weights_BTS = energies_BTS.masked_fill(is_padding_BS[:, None], -math.inf).softmax(-1)
        return torch.bmm(weights_BTS, memory_BSM), weights_BTS

    def _energies(self, queries_BTH: Tensor, memory_BSM: Tensor, keys: tuple[Tensor, ...]) -> Tensor:
        """The unnormalised score of each query at each position. -> (B, T, S)"""
        match self.score:
            case "dot":
                return torch.bmm(queries_BTH, memory_BSM.transpose(1, 2))
            case "scaled":
                return torch.bmm(queries_BTH * queries_BTH.shape[-1] ** -0.5, memory_BSM.transpose(1, 2))
            case "bilinear":
                return torch.bmm(queries_BTH @ self.weight, memory_BSM.transpose(1, 2))
            case "additive":
                inner_BTA = F.linear(queries_BTH, self.weight_query)
                return torch.tanh(inner_BTA[:, :, None] + keys[0][:, None]) @ self.vector

    def multiply_adds(self, source_length: int) -> float:
        """Multiply-adds for one target step that attends to `source_length` positions."""
        num_weights = sum(
            weight.numel() for name, weight in self.named_parameters() if name in ("weight", "weight_query")
        )
        compared = len(self.vector) if self.score == "additive" else self._memory
        return float(num_weights + source_length * (compared + self._memory))
