"""Matrices of 8-bit integers with a scale for each row, for nets that are only used, not trained.

One row of generation waits for its weights to come from memory: a quarter of the bytes, and a net of a few million weights that
stays in the processor's cache. Inputs are rounded to 8 bits as they come, each row by its own largest value, so that a row
does not depend on the others of its batch; the products are exact. N rows of a matrix · K columns
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module, Parameter

LARGEST = 127  # symmetric: -128 is not used
SMALLEST_SCALE = 1e-30  # of a row of zeros


class Int8Matrix(Module):
    """An (N, K) matrix as 8-bit integers times a scale for each row."""

    values: Tensor  # (N, K) int8
    scales: Tensor  # (N,) float32
    _floats: Tensor | None  # the integers as float32, where the processor's 8-bit products are not exact

    def __init__(self, values_NK: Tensor, scales_N: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values_NK)
        self.register_buffer("scales", scales_N)
        self._floats = None

    @classmethod
    def of(cls, weight_NK: Tensor) -> Int8Matrix:
        """The nearest integers to a matrix of weights."""
        return cls(*rounded(weight_NK.detach().to(torch.float32)))

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Int8Matrix:
        return Int8Matrix(self.values[rows], self.scales[rows])

    def numel(self) -> int:
        """The number of weights."""
        return self.values.numel()

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows, as vectors. -> (..., K)"""
        return self.values[ids] * self.scales[ids][..., None]

    def product(self, inputs: Tensor, bias_N: Tensor | None = None) -> Tensor:
        """inputs (..., K) times the transposed matrix. -> (..., N)"""
        inputs_RK, scales_R = rounded(inputs.reshape(-1, inputs.shape[-1]))
        if self.shape[1] > 1 and multiplies_exactly():  # of one column, torch 2.13 gives numbers that mean nothing
            sums_RN = torch._int_mm(inputs_RK, self.values.t())
        else:
            if self._floats is None:
                self._floats = self.values.to(torch.float32)
            sums_RN = F.linear(inputs_RK.to(torch.float32), self._floats)
        # in place: large results that are made anew at every step cost more than their arithmetic
        outputs_RN = sums_RN.to(torch.float32).mul_(scales_R[:, None]).mul_(self.scales)
        if bias_N is not None:
            outputs_RN.add_(bias_N)
        return outputs_RN.reshape(*inputs.shape[:-1], len(self))


def rounded(values_RK: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as 8-bit integers, and the scale that gives it back. -> (R, K) int8, (R,) float32"""
    if values_RK.shape[1] == 0:
        return values_RK.to(torch.int8), values_RK.new_ones(len(values_RK))
    scales_R1 = (
        torch.linalg.vector_norm(values_RK, math.inf, dim=1, keepdim=True).div_(LARGEST).clamp_(min=SMALLEST_SCALE)
    )
    return (values_RK / scales_R1).round_().to(torch.int8), scales_R1[:, 0]


@cache
def multiplies_exactly() -> bool:
    """Whether sums of 8-bit products are exact here: without VNNI they may be cut off at 16 bits on the way."""
    values = torch.full((16, 1024), LARGEST, dtype=torch.int8)
    return bool((torch._int_mm(values, values.t()) == 1024 * LARGEST**2).all())


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """inputs times the transposed weight, which may be an `Int8Matrix`, plus a bias."""
    return weight.product(inputs, bias) if isinstance(weight, Int8Matrix) else F.linear(inputs, weight, bias)


def to_int8(net: Module) -> None:
    """Put an `Int8Matrix` in the place of every weight that the parts of a net list as `int8_weights`; shared ones once."""
    made: dict[int, Int8Matrix] = {}
    for part in list(net.modules()):
        for name in getattr(part, "int8_weights", ()):
            weight = getattr(part, name)
            if weight is None:
                continue
            if id(weight) not in made:
                made[id(weight)] = Int8Matrix.of(weight)
            place = part._parameters if isinstance(weight, Parameter) else part._buffers
            del place[name]
            setattr(part, name, made[id(weight)])
