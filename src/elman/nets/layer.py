"""The base class of the layers of a stack."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from elman.core.errors import UsageError
from elman.nets.operators import Operator, read_by
from elman.nets.trace import LayerTrace, Step, trace_steps

LayerState = tuple[Tensor, ...]  # each (B, H); empty for a layer without a state


class LayerVectors(NamedTuple):
    """What one layer of a net makes of every token. What stands at padding means nothing."""

    values: Tensor  # (T, B, D)
    reads_back: Tensor | None = None  # (D,) bool: the numbers that come from reading a row from its end


class Layer(Module):
    """Maps a sequence of inputs and a state to a sequence of outputs and the state after the last step.

    Time is the first axis, so that every step is contiguous in memory. T steps · B rows · I inputs · H hidden
    """

    num_states: int
    state_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden

    @abstractmethod
    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""

    @abstractmethod
    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, H) and the state; `weight_drop` is the dropout rate of the recurrent weights."""

    @abstractmethod
    def trace(self, inputs_TBI: Tensor, state: LayerState) -> LayerTrace:
        """What `forward` does, without padding, in plain operations and recorded."""

    @abstractmethod
    def multiply_adds(self) -> float:
        """Multiply-adds of the matrix products for one step of one row."""


class SteppedLayer(Layer):
    """A layer that is defined by one step."""

    @abstractmethod
    def read_inputs(self, inputs: Tensor) -> Tensor:
        """What each step needs of its input: its product with the input weights. -> (..., G)"""

    @abstractmethod
    def step(self, values_BG: Tensor, state: LayerState) -> Step:
        """One step by its formula, given what `read_inputs` made of its input: what `forward` computes faster, for all."""

    def forward_by_steps(self, inputs_TBI: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """`forward` by the formula, for layers whose weights are 8-bit integers."""
        outputs = []
        for values_BG in self.read_inputs(inputs_TBI):
            step = self.step(values_BG, state)
            state = step.state
            outputs.append(step.output)
        return torch.stack(outputs), state

    def operator(self) -> Operator:
        """All steps as one operator, for an exported graph that reads texts of any length."""
        raise UsageError(
            f"{type(self).__name__} is no operator of ONNX",
            code="not-for-this-model",
            hint="only steps of such a layer can be exported",
        )

    def _export(
        self, inputs_TBI: Tensor, state: LayerState, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """What `forward` is in an exported graph: one step by its formula, more of them as one operator."""
        if inputs_TBI.shape[0] == 1:
            return self.forward_by_steps(inputs_TBI, state)
        return read_by(self.operator(), inputs_TBI, state, lengths_B)

    def trace(self, inputs_TBI: Tensor, state: LayerState) -> LayerTrace:
        """See `Layer`. There has to be a step."""
        steps: list[Step] = []
        for values_BG in self.read_inputs(inputs_TBI):
            steps.append(self.step(values_BG, steps[-1].state if steps else state))
        return trace_steps(steps, self.state_names)


def draw_weights(rng: torch.Generator, *weights: Tensor, inputs: int) -> None:
    """Uniform in +-1/sqrt(inputs), as PyTorch initialises its layers."""
    bound = max(inputs, 1) ** -0.5
    with torch.no_grad():
        for weight in weights:
            weight.uniform_(-bound, bound, generator=rng)
