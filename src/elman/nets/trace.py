"""What the layers of a net did, step by step, in plain operations that gradients can go through.

T steps · B rows · H hidden · A attention heads · S tokens attended to
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from elman.core.arrays import Array


class Use(NamedTuple):
    """One use of a recurrent weight: `product` is `operand` times rows of the weight, transposed."""

    operand: Tensor  # (B, H)
    product: Tensor  # (B, rows)
    rows: slice


class Step(NamedTuple):
    """One step of a layer. Its output is the first of its states, where it has any."""

    output: Tensor  # (B, H)
    state: tuple[Tensor, ...]
    gates: Mapping[str, Tensor] = {}
    uses: Sequence[Use] = ()


@dataclass(frozen=True)
class LayerTrace:
    """All steps of a layer, each a tensor of its own, so that a gradient can be taken with respect to it."""

    outputs: Sequence[Tensor]  # T of (B, H)
    after: tuple[Tensor, ...]  # the state after the last step
    states: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)  # T of (B, H) by name
    gates: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    uses: Sequence[Sequence[Use]] = ()  # of the recurrent weight, by step
    attention: Mapping[str, Tensor] = field(default_factory=dict)  # (B, A, T, S) by what is attended to

    def output(self) -> Tensor:
        """The outputs as one. -> (T, B, H)"""
        return torch.stack(list(self.outputs))


@dataclass(frozen=True)
class NetTrace:
    """What a net did with some tokens."""

    words: Tensor  # (T, B, E), as they were read
    features: Tensor  # (T, B, P), as the output reads them
    layers: Sequence[LayerTrace]  # from the bottom up
    outputs: Sequence[Tensor] = ()  # (T, B, D), what is there after each layer, skip connections included
    attention: Mapping[str, Tensor] = field(default_factory=dict)  # (B, T, S) of what is outside of layers


def trace_steps(steps: Sequence[Step], names: Sequence[str]) -> LayerTrace:
    """The steps of a layer whose states have these names."""
    return LayerTrace(
        outputs=[step.output for step in steps],
        after=steps[-1].state,
        states={name: [step.state[place] for step in steps] for place, name in enumerate(names)},
        gates={name: [step.gates[name] for step in steps] for name in steps[0].gates},
        uses=[step.uses for step in steps],
    )


def join_traces(parts: Sequence[LayerTrace]) -> LayerTrace:
    """One layer over several parts of a text."""
    return LayerTrace(
        outputs=[output for part in parts for output in part.outputs],
        after=parts[-1].after,
        states={name: [step for part in parts for step in part.states[name]] for name in parts[0].states},
        gates={name: [step for part in parts for step in part.gates[name]] for name in parts[0].gates},
        uses=[step for part in parts for step in part.uses],
    )


def layer_arrays(layers: Sequence[LayerTrace], outputs: Sequence[Tensor]) -> dict[str, Array]:
    """What was recorded of one row, by the names of `lm.trace.Trace`; the layers are counted from 1."""
    found: dict[str, Array] = {}
    for number, (layer, values_TBD) in enumerate(zip(layers, outputs, strict=True), 1):
        found[f"layers.{number}.outputs"] = _numpy(values_TBD[:, 0])
        for kind, named in (("states", layer.states), ("gates", layer.gates)):
            for name, steps in named.items():
                found[f"layers.{number}.{kind}.{name}"] = _numpy(torch.stack(list(steps))[:, 0])
        for name, weights_BATS in layer.attention.items():
            kind = "attention" if name == "self" else f"attention.{name}"
            found[f"layers.{number}.{kind}"] = _numpy(weights_BATS[0].transpose(0, 1))
    return found


def _numpy(tensor: Tensor) -> Array:
    return tensor.detach().to(torch.float32).cpu().numpy()
