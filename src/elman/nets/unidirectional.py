"""Recurrent layers that read whole texts in one direction, with padding masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import Module

from elman.nets.config import Skip
from elman.nets.encoder import Encoding, read_padded
from elman.nets.layer import Layer, LayerState, LayerVectors
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import LayerTrace


class UnidirectionalStack(Module):
    """Like `BidirectionalStack`, in one direction: padding never changes anything. T steps · B rows · H hidden"""

    def __init__(
        self,
        make_layer: Callable[[int], Layer],
        *,
        inputs: int,
        hidden: int,
        num_layers: int,
        skip: Skip = "none",
        layer_norm: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        widths = layer_inputs(skip, inputs, [hidden] * num_layers)
        layers = [PaddedLayer(make_layer(width)) for width in widths[:-1]]
        self.stack = Stack(layers, inputs=inputs, skip=skip, layer_norm=layer_norm, dtype=dtype)
        self.output_width = self.stack.output_width

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        self.stack.initialise(rng)

    def forward(self, values_TBI: Tensor, lengths_B: Tensor, *, dropout: float = 0.0) -> Encoding:
        """Read each row up to its length. `dropout` is between layers, locked over time."""
        outputs_TBH, after = self.stack(values_TBI, self._start(values_TBI, lengths_B), dropout=dropout)
        times_T1 = torch.arange(outputs_TBH.shape[0], device=lengths_B.device)[:, None]
        outputs_TBH = outputs_TBH * (times_T1 < lengths_B)[:, :, None]
        return Encoding(outputs_TBH, tuple(state[1:] for state in self.stack.split(after)), ())

    def vectors(self, values_TBI: Tensor, lengths_B: Tensor) -> list[LayerVectors]:
        """What each layer makes of every token, with what leads past it."""
        layers, _ = self.stack.vectors(values_TBI, self._start(values_TBI, lengths_B))
        return [LayerVectors(values) for values in layers]

    def trace(self, values_TBI: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Encoding]:
        """What each layer did, what is there after each, and the encoding; of rows without padding."""
        traces, outputs, after = self.stack.trace(values_TBI, self._start(values_TBI, lengths_B))
        return traces, outputs, Encoding(outputs[-1], tuple(state[1:] for state in self.stack.split(after)), ())

    def _start(self, values_TBI: Tensor, lengths_B: Tensor) -> list[Tensor]:
        """What the layers carry before the first token."""
        carried: list[Tensor] = []
        for layer in self.stack.parts:
            zeros = [values_TBI.new_zeros(lengths_B.shape[0], layer.hidden) for _ in range(layer.num_states - 1)]
            carried += [lengths_B, *zeros]
        return carried

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return self.stack.multiply_adds()


class PaddedLayer(Layer):
    """A layer that stops each row at its length. The state is the lengths, then the layer's own."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer.hidden)
        self.layer = layer
        self.num_states = 1 + layer.num_states

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        self.layer.initialise(rng)

    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, H), the lengths and the state after each row's own last step"""
        lengths_B, *inner = state
        outputs_TBH, after = read_padded(self.layer, inputs_TBI, tuple(inner), lengths_B, weight_drop)
        return outputs_TBH, (lengths_B, *after)

    def trace(self, inputs_TBI: Tensor, state: LayerState) -> LayerTrace:
        """That of the layer."""
        lengths_B, *inner = state
        traced = self.layer.trace(inputs_TBI, tuple(inner))
        return replace(traced, after=(lengths_B, *traced.after))

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return self.layer.multiply_adds()
