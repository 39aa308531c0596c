"""Bidirectional recurrent layers over whole texts. Knows neither words nor tasks.

T steps · B rows · I inputs · H hidden size of one direction
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module

from elman.nets.cells import ElmanLayer, GruLayer
from elman.nets.config import Reset, Skip
from elman.nets.layer import Layer, LayerState, LayerVectors
from elman.nets.lstm import LstmLayer
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import LayerTrace

Cell = Literal["rnn", "gru", "lstm"]


@dataclass(frozen=True)
class Encoding:
    """A batch of texts read in both directions."""

    outputs: Tensor  # (T, B, 2 H), forward then backward; zeros at padding
    forward: tuple[LayerState, ...]  # each layer's state after its last token, (B, H) each; zeros for an empty row
    backward: tuple[LayerState, ...]  # each layer's state after the first token, read last

    def last(self) -> Tensor:
        """The top layer's final state of both directions. -> (B, 2 H)"""
        return torch.cat([self.forward[-1][0], self.backward[-1][0]], dim=-1)


class BidirectionalStack(Module):
    """Bidirectional layers, each reading the concatenated outputs of the one below (Schuster & Paliwal 1997).

    `make_layer` builds a layer of one direction for an input width. Skip connections and norms are those of `Stack`, for
    layers of twice the width. Padding never changes anything: not an output, not a state, not a gradient.
    """

    def __init__(
        self,
        make_layer: Callable[[int], Layer],
        *,
        inputs: int,
        hidden: int,
        num_layers: int = 1,
        skip: Skip = "none",
        layer_norm: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        widths = layer_inputs(skip, inputs, [2 * hidden] * num_layers)
        layers = [BidirectionalLayer(make_layer(width), make_layer(width)) for width in widths[:-1]]
        self.stack = Stack(layers, inputs=inputs, skip=skip, layer_norm=layer_norm, dtype=dtype)
        self.output_width = self.stack.output_width

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        self.stack.initialise(rng)

    def forward(
        self, values_TBI: Tensor, lengths_B: Tensor, *, dropout: float = 0.0, weight_drop: float = 0.0
    ) -> Encoding:
        """Read each row up to its length. `dropout` is between layers, locked over time."""
        begin = self._start(values_TBI, lengths_B)
        outputs_TBH, after = self.stack(values_TBI, begin, dropout=dropout, weight_drop=weight_drop)
        if self.stack.norms:  # a norm gives its bias where it read zeros
            outputs_TBH = outputs_TBH * _is_token(outputs_TBH.shape[0], lengths_B)[:, :, None]
        return self._encoding(outputs_TBH, after)

    def vectors(self, values_TBI: Tensor, lengths_B: Tensor) -> list[LayerVectors]:
        """What each layer makes of every token, with what leads past it."""
        num_layers, hidden = len(self.stack.parts), self.stack.parts[0].hidden // 2
        both = [False] * hidden + [True] * hidden
        found = []
        layers, _ = self.stack.vectors(values_TBI, self._start(values_TBI, lengths_B))
        for number, values in enumerate(layers, 1):
            columns = both
            if self.stack.skip == "dense":  # the layers side by side, below the top behind what was read
                columns = [False] * (values_TBI.shape[2] if number < num_layers else 0) + both * number
            found.append(LayerVectors(values, torch.tensor(columns, device=values.device)))
        return found

    def trace(self, values_TBI: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Encoding]:
        """What each layer did, what is there after each, and the encoding; of rows without padding."""
        traces, outputs, after = self.stack.trace(values_TBI, self._start(values_TBI, lengths_B))
        return traces, outputs, self._encoding(outputs[-1], after)

    def _encoding(self, outputs_TBH: Tensor, after: Sequence[Tensor]) -> Encoding:
        states = [state[1:] for state in self.stack.split(after)]
        middle = len(states[0]) // 2
        return Encoding(outputs_TBH, tuple(s[:middle] for s in states), tuple(s[middle:] for s in states))

    def _start(self, values_TBI: Tensor, lengths_B: Tensor) -> list[Tensor]:
        """What the layers carry before the first token."""
        carried: list[Tensor] = []
        for layer in self.stack.parts:
            zeros = [values_TBI.new_zeros(lengths_B.shape[0], layer.hidden // 2) for _ in range(layer.num_states - 1)]
            carried += [lengths_B, *zeros]
        return carried

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return self.stack.multiply_adds()


class BidirectionalLayer(Layer):
    """Two layers side by side; the second reads each row from its last token to its first.

    The state is the rows' lengths, then both layers' own.
    """

    def __init__(self, onward: Layer, backward: Layer) -> None:
        super().__init__(2 * onward.hidden)
        self.onward = onward
        self.backward = backward
        self.num_states = 1 + onward.num_states + backward.num_states

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights of both."""
        self.onward.initialise(rng)
        self.backward.initialise(rng)

    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, 2 H), the lengths and both states, each after the row's own last step"""
        lengths_B, *both = state
        middle = self.onward.num_states
        onward_TBH, onward = read_padded(self.onward, inputs_TBI, tuple(both[:middle]), lengths_B, weight_drop)
        reversed_TBI = reverse(inputs_TBI, lengths_B)
        backward_TBH, backward = read_padded(self.backward, reversed_TBI, tuple(both[middle:]), lengths_B, weight_drop)
        return torch.cat([onward_TBH, reverse(backward_TBH, lengths_B)], dim=-1), (lengths_B, *onward, *backward)

    def trace(self, inputs_TBI: Tensor, state: LayerState) -> LayerTrace:
        """Both directions, the steps of each at its token's place."""
        lengths_B, *both = state
        middle = self.onward.num_states
        onward = self.onward.trace(inputs_TBI, tuple(both[:middle]))
        backward = self.backward.trace(inputs_TBI.flip(0), tuple(both[middle:]))
        outputs = zip(onward.outputs, reversed(backward.outputs), strict=True)
        return LayerTrace(
            [torch.cat(pair, dim=-1) for pair in outputs],
            (lengths_B, *onward.after, *backward.after),
            states=_both_ways(onward.states, backward.states),
            gates=_both_ways(onward.gates, backward.gates),
        )

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return self.onward.multiply_adds() + self.backward.multiply_adds()


def _both_ways(
    onward: Mapping[str, Sequence[Tensor]], backward: Mapping[str, Sequence[Tensor]]
) -> dict[str, Sequence[Tensor]]:
    """Steps of both directions by the names of their directions, in the order of the text."""
    return {f"onward.{name}": steps for name, steps in onward.items()} | {
        f"backward.{name}": steps[::-1] for name, steps in backward.items()
    }


def make_cell(
    cell: Cell, inputs: int, hidden: int, *, reset: Reset = None, dtype: torch.dtype = torch.float32
) -> Layer:
    """A recurrent layer with its usual settings; `reset` is of a GRU."""
    match cell:
        case "rnn":
            return ElmanLayer(inputs, hidden, recurrence="plain", activation="tanh", dtype=dtype)
        case "gru":
            return GruLayer(inputs, hidden, reset=reset, dtype=dtype)
        case "lstm":
            return LstmLayer(inputs, hidden, forget_bias=1.0, dtype=dtype)


def reverse(values_TBX: Tensor, lengths_B: Tensor) -> Tensor:
    """Each row's tokens in reverse order; its padding stays at the end. -> (T, B, X)"""
    num_steps, num_rows = values_TBX.shape[:2]
    if _is_full(num_steps, lengths_B):
        return values_TBX.flip(0)
    times_T1 = torch.arange(num_steps, device=values_TBX.device)[:, None]
    from_TB = torch.where(times_T1 < lengths_B, lengths_B - 1 - times_T1, times_T1)
    places_N = (from_TB * num_rows + torch.arange(num_rows, device=values_TBX.device)).flatten()
    return values_TBX.flatten(0, 1).index_select(0, places_N).view(values_TBX.shape)


def read_padded(
    layer: Layer, inputs_TBI: Tensor, state: LayerState, lengths_B: Tensor, weight_drop: float
) -> tuple[Tensor, LayerState]:
    """A layer's outputs, zero at padding, and each row's state after its own last token."""
    if _is_full(inputs_TBI.shape[0], lengths_B):
        outputs_TBH, after = layer(inputs_TBI, state, weight_drop)
        return outputs_TBH, after
    is_token_TB = _is_token(inputs_TBI.shape[0], lengths_B)
    if isinstance(layer, LstmLayer):
        outputs_TBH, after = layer(inputs_TBI, state, weight_drop, is_padding_TB=~is_token_TB)
    else:
        outputs_TBH, after = layer(inputs_TBI, state, weight_drop)
    outputs_TBH = outputs_TBH * is_token_TB[:, :, None]
    rows_B = torch.arange(lengths_B.shape[0], device=lengths_B.device)
    last_BH = outputs_TBH[(lengths_B - 1).clamp(min=0), rows_B]
    h_BH = torch.where((lengths_B > 0)[:, None], last_BH, state[0])
    return outputs_TBH, (h_BH, *after[1:])  # after[1:] is the cell state of an LSTM, which is kept at padding


def _is_token(num_steps: int, lengths_B: Tensor) -> Tensor:
    return torch.arange(num_steps, device=lengths_B.device)[:, None] < lengths_B


def _is_full(num_steps: int, lengths_B: Tensor) -> bool:
    """Whether there is no padding; an exported graph takes rows with and without."""
    return not torch.compiler.is_exporting() and bool((lengths_B == num_steps).all())
