"""A net as graphs: functions of tensors alone, with what is carried from step to step among their inputs and outputs.

A net says which graphs it consists of, and how far somebody's runs of them are from its own predictions. Knows no format.
B rows · V vocabulary
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from elman.core.arrays import Array
from elman.nets.neural_lm import Carried, NeuralLm, NeuralState
from elman.text.units.vocabulary import EOS_ID

M = TypeVar("M", bound=Module)
Run = Callable[[str, Mapping[str, Array]], dict[str, Array]]  # the name of a graph, its inputs -> its outputs

BATCH, LENGTH, SOURCE = "batch", "length", "source"  # names of sizes that vary
ROWS = 2  # of examples that a graph is traced with: sizes of 0 and 1 would be taken for fixed ones
EXAMPLE_LENGTH = 3  # of their texts
CHECKED_ROWS = 3  # others than it was traced with
NEW = "new_"  # before the name of a state that comes out


@dataclass(frozen=True)
class Graph:
    """A module that takes one tuple of tensors and returns another.

    inputs: an example of each by name. axes: of each the names of its axes that vary in size, by their number.
    """

    name: str
    module: Module
    inputs: Mapping[str, Tensor]
    axes: Mapping[str, Mapping[int, str]]
    outputs: Sequence[str]


@dataclass(frozen=True)
class NetGraphs:
    """The graphs of a net.

    difference: given a way to run them and a number of steps, the largest difference from the net's own predictions.
    state: names of inputs that are carried on, and of the outputs that they are taken from. start: their first values.
    """

    graphs: Sequence[Graph]
    difference: Callable[[Run, int], float]
    state: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)


def in_float32(net: M) -> M:
    """A net that computes in float32 without noise: itself, or a copy."""
    if all(not tensor.is_floating_point() or tensor.dtype == torch.float32 for tensor in net.parameters()):
        return net.eval()
    return copy.deepcopy(net).to(torch.float32).eval()


def float64_runner(graphs: Sequence[Graph]) -> Run:
    """Runs graphs by torch in float64: how far that is from a net's predictions is what the net loses by rounding."""
    modules = {graph.name: copy.deepcopy(graph.module).to(torch.float64) for graph in graphs}
    by_name = {graph.name: graph for graph in graphs}

    def run(name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        tensors = [torch.from_numpy(np.asarray(inputs[port])) for port in by_name[name].inputs]
        with torch.no_grad():
            found = modules[name](tuple(one.double() if one.is_floating_point() else one for one in tensors))
        return {port: tensor.numpy() for port, tensor in zip(by_name[name].outputs, found, strict=True)}

    return run


# ------------------------------------------------------------------------------------------- steps of a language model


class StepModule(Module):
    """One token a row: the log-probabilities of the next, and what has changed of the state."""

    def __init__(self, net: NeuralLm[Any], changing: Sequence[int]) -> None:
        super().__init__()
        self.net = net
        self.changing = changing

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """tokens (B,), the state -> log-probabilities (B, V), the parts of the state that change"""
        log_probs_BV, after = self.net.read_one(inputs[0], inputs[1:])
        return log_probs_BV, *(after[place] for place in self.changing)


def step_graph(net: NeuralLm[Any], name: str, carried: Carried, axes: Callable[[Tensor], dict[int, str]]) -> Graph:
    """A step from a state; `axes` says which axes of a part of it vary in size."""
    names = net.carried_names()
    carried = tuple(leaf.clone() for leaf in carried)  # each a tensor of its own
    assert len(names) == len(carried), f"{names} are not the names of {len(carried)} tensors"
    tokens_B = torch.full((len(carried[0]),), EOS_ID, dtype=torch.int64)
    with torch.no_grad():
        _, after = net.read_one(tokens_B, carried)
    changing = [place for place, leaf in enumerate(after) if leaf is not carried[place]]
    return Graph(
        name,
        StepModule(net, changing),
        {"tokens": tokens_B, **dict(zip(names, carried, strict=True))},
        {"tokens": {0: BATCH}, **{name: axes(leaf) for name, leaf in zip(names, carried, strict=True)}},
        ["log_probs", *(NEW + names[place] for place in changing)],
    )


def state_of(graph: Graph) -> dict[str, str]:
    """The inputs of a step that are carried on, and the outputs that they are taken from."""
    return {name.removeprefix(NEW): name for name in graph.outputs if name.startswith(NEW)}


def start_values(graph: Graph) -> dict[str, float]:
    """The value that all of each part of a first state has, where the graph's example is one."""
    found = {}
    for name in state_of(graph):
        leaf = graph.inputs[name]
        value = leaf.flatten()[0].item() if leaf.numel() else 0
        assert bool((leaf == value).all()), f"{name} does not begin with one value"
        found[name] = value
    return found


def step_difference(
    net: NeuralLm[Any], run: Run, step: Graph, *, state: NeuralState, carried: Mapping[str, Array], steps: int
) -> float:
    """The largest difference of log-probabilities and states over some steps, the first from what is `carried`.

    Every other begins with the state of the net itself: it is the step that is compared, not what a recurrent net makes in
    hundreds of steps of the last digit (3e-5 was seen). The first row reads what the net would write, the others anything.
    """
    rng = np.random.default_rng(steps)
    rows, found = len(state.features), []
    tokens = np.full(rows, EOS_ID, dtype=np.int64)
    for _ in range(steps):
        outputs = run(step.name, {"tokens": tokens, **carried})
        expected = net.predict(state)
        found.append(difference(outputs["log_probs"], expected))
        after = {name: leaf.numpy() for name, leaf in zip(net.carried_names(), state.carried, strict=True)}
        found += [difference(outputs[new], after[name]) for name, new in state_of(step).items()]
        carried = {**carried, **{name: after[name] for name in state_of(step)}}
        tokens = rng.integers(0, net.vocab_size, rows)
        tokens[0] = np.argmax(expected[0] + rng.gumbel(size=net.vocab_size))
        state = net.advance(tokens, state)
    return largest(found)


def difference(found: Array, expected: Array) -> float:
    """The largest difference of two arrays; infinite where one has another shape, or is no number."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return math.inf
    return float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))


def largest(differences: Iterable[float]) -> float:
    """The largest of some differences; what is no number is infinite."""
    return max((math.inf if math.isnan(one) else one for one in differences), default=0.0)


# ----------------------------------------------------------------------------------------------------- nets over texts


class TensorModule(Module, Generic[M]):
    """A function of a net and of tensors, as a module."""

    def __init__(self, net: M, function: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.net = net
        self.function = function

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What the function returns."""
        return self.function(self.net, *inputs)


def text_lengths(num_steps: int, rng: np.random.Generator, *, longest: int = 20) -> list[Array]:
    """Lengths of texts in batches, (B,) each, of so many steps at least in all."""
    found: list[Array] = []
    while sum(int(lengths.max()) for lengths in found) < num_steps:
        found.append(rng.integers(1, longest + 1, CHECKED_ROWS))
    return found
