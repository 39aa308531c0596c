"""Layers on top of each other, and what leads past them. Knows neither words nor time.

A layer takes (..., I) values and its own state and gives (..., H) values and its next state; feed-forward layers have
no state. `...` is (T, B).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList

from elman.config import Skip
from elman.nets.dropout import locked_dropout

CellState = tuple[Tensor, ...]


class Layer(Protocol):
    """What a stack is made of."""

    hidden: int
    num_states: int

    def __call__(self, inputs: Tensor, state: CellState, weight_drop: float = 0.0) -> tuple[Tensor, CellState]: ...

    def initialise(self, rng: torch.Generator) -> None: ...

    def multiply_adds(self) -> float: ...


class Stack(Module):
    """Layers, joined by none, residual, highway or dense connections.

    residual: what a layer gives is added to what it read. highway: a gate mixes the two (Srivastava et al. 2015).
    dense: a layer reads the words and all layers below, and the output reads all layers (Godin et al. 2017).
    """

    def __init__(
        self, layers: Sequence[Module], *, inputs: int, skip: Skip, layer_norm: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.skip = skip
        self.layers = ModuleList(layers)
        self.widths = layer_inputs(skip, inputs, [int(layer.hidden) for layer in layers])  # type: ignore[arg-type]
        self.features = self.widths.pop()
        hidden = self.widths[1:]
        self.gates = ModuleList(Linear(size, size, dtype=dtype) for size in hidden) if skip == "highway" else None
        normed = [*self.widths, self.features] if layer_norm else []
        self.norms = ModuleList(LayerNorm(size, dtype=dtype) for size in normed) if layer_norm else None

    def initialise(self, rng: torch.Generator) -> None:
        """Each layer as it likes; gates nearly closed, so that what was read goes past at first."""
        for layer in self.layers:
            layer.initialise(rng)  # type: ignore[operator]
        for gate in self.gates or ():
            with torch.no_grad():
                bound = gate.in_features**-0.5
                gate.weight.uniform_(-bound, bound, generator=rng)  # type: ignore[union-attr]
                gate.bias.fill_(-2.0)  # type: ignore[union-attr]
        for norm in self.norms or ():
            norm.reset_parameters()  # type: ignore[operator]

    def forward(
        self, inputs: Tensor, states: Sequence[CellState], *, dropout: float = 0.0, weight_drop: float = 0.0
    ) -> tuple[Tensor, list[CellState]]:
        """-> (..., features) and each layer's state. `dropout` is between layers, locked over time."""
        seen = [inputs]  # dense: the words, then what each layer gave
        values = inputs
        after: list[CellState] = []
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                values = locked_dropout(values, dropout)
            read = values if self.norms is None else self.norms[index](values)
            given, state = layer(read, state, weight_drop)
            after.append(state)
            if self.skip == "dense":
                seen.append(given)
                values = torch.cat(seen, dim=-1)
            elif index and self.skip == "residual":
                values = values + given
            elif index and self.gates is not None:
                gate = torch.sigmoid(self.gates[index - 1](values))
                values = torch.lerp(values, given, gate)
            else:
                values = given
        if self.skip == "dense":
            values = torch.cat(seen[1:], dim=-1)
        return (values if self.norms is None else self.norms[-1](values)), after

    def multiply_adds(self) -> float:
        """Of one step of one row."""
        gates = sum(gate.weight.numel() for gate in self.gates or ())  # type: ignore[union-attr,operator]
        return float(gates) + sum(layer.multiply_adds() for layer in self.layers)  # type: ignore[operator]


def layer_inputs(skip: Skip, inputs: int, hidden: Sequence[int]) -> list[int]:
    """How wide what each layer reads is, and at the end what the output reads."""
    if not hidden:
        return [inputs]
    if skip == "dense":
        return [inputs + sum(hidden[:index]) for index in range(len(hidden))] + [sum(hidden)]
    return [inputs, *hidden]
