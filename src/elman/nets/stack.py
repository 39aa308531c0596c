"""Stacks of layers with skip connections. Knows neither words nor time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import LayerNorm, Module, ModuleList, Parameter

from elman.nets.config import Skip
from elman.nets.dropout import draw_mask, locked_dropout
from elman.nets.int8 import linear
from elman.nets.layer import Layer, LayerState, draw_weights
from elman.nets.trace import LayerTrace

Run = Callable[[Layer, Tensor, LayerState, float], tuple[Tensor, LayerState]]  # a layer over its inputs


class Highway(Module):
    """A gate between the input and the output of a layer (Srivastava et al. 2015)."""

    int8_weights = ("weight",)

    def __init__(self, size: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = Parameter(torch.zeros(size, size, dtype=dtype))
        self.bias = Parameter(torch.zeros(size, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Nearly closed: at first the input is passed on."""
        draw_weights(rng, self.weight, inputs=len(self.bias))
        with torch.no_grad():
            self.bias.fill_(-2.0)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """g * outputs + (1 - g) * inputs, g = sigmoid(W inputs + b)"""
        return torch.lerp(inputs, outputs, torch.sigmoid(linear(inputs, self.weight, self.bias)))


class Stack(Module):
    """Layers joined by none, residual, highway or dense connections.

    residual: a layer's output is added to its input. highway: a gate mixes the two. dense: a layer reads the
    embeddings and all layers below, and the output reads all layers (Godin et al. 2017). The first layer is never skipped.
    """

    def __init__(
        self, layers: Sequence[Layer], *, inputs: int, skip: Skip, layer_norm: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.skip = skip
        self.layers = ModuleList(layers)
        widths = layer_inputs(skip, inputs, [layer.hidden for layer in layers])
        self._widths = widths
        self.output_width = widths[-1]
        self.gates = ModuleList(Highway(size, dtype=dtype) for size in widths[1:-1] if skip == "highway")
        self.norms = ModuleList(LayerNorm(size, dtype=dtype) for size in widths if layer_norm)

    @property
    def parts(self) -> list[Layer]:
        """The layers, from the bottom up."""
        return cast(list[Layer], list(self.layers))

    def state_names(self) -> list[str]:
        """What each of the tensors of its state is called, layers being counted from 1."""
        return [f"{name}_{number}" for number, layer in enumerate(self.parts, 1) for name in layer.state_names]

    def initialise(self, rng: torch.Generator) -> None:
        """Draw all weights."""
        for layer in self.parts:
            layer.initialise(rng)
        for gate in cast(list[Highway], list(self.gates)):
            gate.initialise(rng)

    def split(self, carried: Sequence[Tensor]) -> list[LayerState]:
        """The carried state of each layer."""
        states, first = [], 0
        for layer in self.parts:
            states.append(tuple(carried[first : first + layer.num_states]))
            first += layer.num_states
        return states

    def draw_masks(self, inputs: Tensor, rate: float) -> list[Tensor]:
        """What locked dropout multiplies each layer's inputs with, but the first's, for calls that are steps of one text."""
        return [draw_mask(inputs.new_empty(1, inputs.shape[1], width), rate) for width in self._widths[1:-1]]

    def forward(
        self,
        inputs: Tensor,
        carried: Sequence[Tensor],
        *,
        dropout: float = 0.0,
        masks: Sequence[Tensor] = (),
        weight_drop: float = 0.0,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """-> (T, B, features), and what to carry on.

        `dropout` is between layers, locked over time; `masks` are those of `draw_masks` instead.
        """
        outputs, after = self.read_all(inputs, carried, dropout=dropout, masks=masks, weight_drop=weight_drop)
        return (self.norms[-1](outputs[-1]) if len(self.norms) else outputs[-1]), after

    def vectors(self, inputs: Tensor, carried: Sequence[Tensor]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """What is there after each layer; of the top one, as the output reads it. -> (T, B, D) each, and the new state"""
        (*below, top), after = self.read_all(inputs, carried)
        return [*below, self.norms[-1](top) if len(self.norms) else top], after

    def trace(
        self, inputs: Tensor, carried: Sequence[Tensor]
    ) -> tuple[list[LayerTrace], list[Tensor], tuple[Tensor, ...]]:
        """What each layer did, what is there after each as `vectors` has it, and the new state."""
        traces: list[LayerTrace] = []

        def record(layer: Layer, values: Tensor, state: LayerState, weight_drop: float) -> tuple[Tensor, LayerState]:
            traces.append(layer.trace(values, state))
            return traces[-1].output(), traces[-1].after

        outputs, after = self.read_all(inputs, carried, run=record)
        *below, top = outputs
        return traces, [*below, self.norms[-1](top) if len(self.norms) else top], after

    def read_all(
        self,
        inputs: Tensor,
        carried: Sequence[Tensor],
        *,
        run: Run = Layer.__call__,
        dropout: float = 0.0,
        masks: Sequence[Tensor] = (),
        weight_drop: float = 0.0,
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """The output of each layer with its skip connection, before any norm, and the new state. `run` runs a layer."""
        outputs: list[Tensor] = []
        lower_outputs = [inputs]  # for dense connections
        values = inputs
        after: list[Tensor] = []
        for index, (layer, state) in enumerate(zip(self.parts, self.split(carried), strict=True)):
            if index:
                values = values * masks[index - 1] if masks else locked_dropout(values, dropout)
            read = self.norms[index](values) if len(self.norms) else values
            layer_output, state = run(layer, read, state, weight_drop)
            after += state
            if self.skip == "dense":
                lower_outputs.append(layer_output)
                is_top = index == len(self.layers) - 1
                values = torch.cat(lower_outputs[1:] if is_top else lower_outputs, dim=-1)
            elif index and self.skip == "residual":
                values = values + layer_output
            elif index and self.skip == "highway":
                values = self.gates[index - 1](values, layer_output)
            else:
                values = layer_output
            outputs.append(values)
        return outputs or [inputs], tuple(after)

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        gates = sum(gate.weight.numel() for gate in cast(list[Highway], list(self.gates)))
        return gates + sum(layer.multiply_adds() for layer in self.parts)


def layer_inputs(skip: Skip, inputs: int, hidden: Sequence[int]) -> list[int]:
    """The input width of each layer, and last the width of the stack's output."""
    if skip == "dense":
        return [inputs + sum(hidden[:index]) for index in range(len(hidden))] + [sum(hidden)]
    return [inputs, *hidden]
