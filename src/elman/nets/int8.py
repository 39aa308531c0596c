"""Matrices of 8-bit integers with a scale for each row, for nets that are only used, not trained.

One row of generation waits for its weights to come from memory: a quarter of the bytes, and a net of a few million weights that
stays in the processor's cache. Inputs are rounded to 8 bits as they come, each row by its own largest value, so that a row
does not depend on the others of its batch; the products are exact. N rows of a matrix · K columns · R rows of inputs
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module, Parameter

LARGEST = 127  # symmetric: -128 is not used
ZERO_POINT = 128  # what fbgemm takes for 0: its inputs are unsigned
SMALLEST = 1e-28  # largest value of a row, for one of zeros


class Int8Matrix(Module):
    """An (N, K) matrix as 8-bit integers times a scale for each row."""

    values: Tensor  # (N, K) int8
    scales: Tensor  # (N,) float32

    def __init__(self, values_NK: Tensor, scales_N: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values_NK)
        self.register_buffer("scales", scales_N)
        self._parts: dict[tuple[int, int], Int8Matrix] = {}
        self._factor: _Factor | None = None

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
        first, last, _ = rows.indices(len(self))
        if (first, last) not in self._parts:
            self._parts[first, last] = Int8Matrix(self.values[first:last], self.scales[first:last])
        return self._parts[first, last]

    def numel(self) -> int:
        """The number of weights."""
        return self.values.numel()

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows, as vectors. -> (..., K)"""
        return self.values[ids] * self.scales[ids][..., None]

    def product(self, inputs: Tensor, bias_N: Tensor | None = None) -> Tensor:
        """inputs (..., K) times the transposed matrix. -> (..., N)"""
        if self._factor is None:
            self._factor = _Factor(self.values, self.scales)
        num_inputs = inputs.shape[-1]
        outputs_RN = self._factor.product(inputs.reshape(-1, num_inputs), bias_N)
        return outputs_RN.reshape(*inputs.shape[:-1], outputs_RN.shape[1])


class _Factor:
    """A matrix as the fastest product here reads it. Each product is a few operators: for one row each of them costs
    as much as the product of a small layer."""

    def __init__(self, values_NK: Tensor, scales_N: Tensor) -> None:
        self._scales_N = scales_N
        self._packed = pack(values_NK, scales_N) if values_NK.numel() and packs_exactly() else None
        self._values_KN: Tensor | None = None
        self._floats_NK: Tensor | None = None
        if self._packed is None and values_NK.shape[1] > 1 and multiplies_exactly():
            self._values_KN = values_NK.t()  # of one column, torch 2.13 gives numbers that mean nothing
        elif self._packed is None:
            self._floats_NK = values_NK.to(torch.float32)

    def product(self, inputs_RK: Tensor, bias_N: Tensor | None) -> Tensor:
        """inputs_RK times the transposed matrix, plus a bias. -> (R, N)"""
        if self._packed is not None:
            shares_RK, largest_R1 = _shares(inputs_RK)
            outputs_RN, scales_R1 = packed_product(shares_RK, self._packed), largest_R1
        else:
            integers_RK, scales_R1 = _integers(inputs_RK)
            if self._values_KN is not None:
                outputs_RN = torch._int_mm(integers_RK.to(torch.int8), self._values_KN) * self._scales_N
            else:
                outputs_RN = F.linear(integers_RK, cast(Tensor, self._floats_NK)).mul_(self._scales_N)
        # in place: large results that are made anew at every step cost more than their arithmetic
        if bias_N is None:
            return outputs_RN.mul_(scales_R1)
        return torch.addcmul(bias_N, outputs_RN, scales_R1, out=outputs_RN)


def rounded(values_RK: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as 8-bit integers, and the scale that gives it back. -> (R, K) int8, (R,) float32"""
    integers_RK, scales_R1 = _integers(values_RK)
    return integers_RK.to(torch.int8), scales_R1[:, 0]


def _integers(values_RK: Tensor) -> tuple[Tensor, Tensor]:
    """`rounded`, the integers still as floats. -> (R, K) float32, (R, 1) float32"""
    shares_RK, largest_R1 = _shares(values_RK)
    return shares_RK.mul_(LARGEST).round_(), largest_R1.div_(LARGEST)


def _shares(values_RK: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as shares of its largest value, and that. -> (R, K) from -1 to 1, (R, 1)"""
    if values_RK.shape[1] == 0:
        return values_RK.clone(), values_RK.new_ones(len(values_RK), 1)
    largest_R1 = values_RK.abs().amax(1, keepdim=True).clamp_min_(SMALLEST)
    return values_RK / largest_R1, largest_R1


def pack(values_NK: Tensor, scales_N: Tensor) -> Any:
    """A matrix of 8-bit integers in the order in which fbgemm reads it: one row comes from memory in 0.6 of the time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13: tensors of this type are to go; then `packs_exactly` is False
        no_shift_N = torch.zeros(len(scales_N), dtype=torch.int64)
        quantised_NK = torch._make_per_channel_quantized_tensor(
            values_NK.contiguous(), scales_N.double(), no_shift_N, 0
        )
        return torch.ops.quantized.linear_prepack(quantised_NK, None)


def packed_product(shares_RK: Tensor, packed: Any) -> Tensor:
    """Numbers from -1 to 1, rounded to 127 steps either way, times a matrix from `pack`. -> (R, N) float32"""
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        shares_RK, 1 / LARGEST, ZERO_POINT, packed
    )
    return cast(Tensor, product)


@cache
def multiplies_exactly() -> bool:
    """Whether sums of 8-bit products are exact here: without VNNI they may be cut off at 16 bits on the way."""
    values = torch.full((16, 1024), LARGEST, dtype=torch.int8)
    return bool((torch._int_mm(values, values.t()) == 1024 * LARGEST**2).all())


@cache
def packs_exactly() -> bool:
    """Whether fbgemm is here, in PyTorch's private functions for it, and its sums are exact."""
    values = torch.full((16, 1024), LARGEST, dtype=torch.int8)
    try:
        found = packed_product(torch.ones(16, 1024), pack(values, torch.full((16,), float(LARGEST))))
    except (AttributeError, RuntimeError):
        return False
    return bool(((found - 1024 * LARGEST**2).abs() < LARGEST).all())  # cut off, they would be half of that


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
