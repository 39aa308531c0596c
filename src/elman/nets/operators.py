"""Recurrent layers as single operators, in a graph that is being exported: there a loop over a text of any length is one.

Sizes that such a graph leaves open are read off `shape`, wherever a net may be exported: `len` makes a number of them.

T steps · B rows · I inputs · H hidden · G gates and candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Operator(NamedTuple):
    """A recurrent operator of ONNX with its weights, the gates in its own order."""

    name: Literal["RNN", "GRU", "LSTM"]
    weight_in: Tensor  # (G, I)
    weight_back: Tensor  # (G, H)
    bias: Tensor  # (G,), of the inputs
    bias_back: Tensor  # (G,), of the state
    attributes: Mapping[str, int | Sequence[str]] = {}


def read_by(
    operator: Operator, inputs_TBI: Tensor, state: Sequence[Tensor], lengths_B: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """-> (T, B, H), zeros at padding, and the state after each row's own last step, (B, H) each"""
    num_steps, num_rows = inputs_TBI.shape[:2]
    hidden = operator.weight_back.shape[1]
    biases_1G = torch.cat([operator.bias, operator.bias_back])[None]
    outputs_T1BH, *after = torch.onnx.ops.symbolic_multi_out(
        operator.name,
        (
            inputs_TBI,
            operator.weight_in[None],
            operator.weight_back[None],
            biases_1G,
            None if lengths_B is None else lengths_B.to(torch.int32),
            *(leaf_BH[None] for leaf_BH in state),
        ),
        {"hidden_size": hidden, **operator.attributes},
        dtypes=[inputs_TBI.dtype] * (1 + len(state)),
        shapes=[(num_steps, 1, num_rows, hidden), *((1, num_rows, hidden) for _ in state)],
    )
    return outputs_T1BH[:, 0], tuple(leaf_1BH[0] for leaf_1BH in after)


def reordered(weight: Tensor, order: Sequence[int]) -> Tensor:
    """The gates of a weight or bias, (G, ...), in another order."""
    size = weight.shape[0] // len(order)
    return torch.cat([weight[place * size : (place + 1) * size] for place in order])
