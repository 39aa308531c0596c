"""Steps by hand, what an optimiser remembers, and averages of weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from elman.nets.maxent import RareParameter
from elman.training.config import TrainConfig
from elman.training.optimiser import RARE_GRADIENT, RARE_RATE, Optimiser, WeightAverage


def parameter(*values: float) -> dict[str, Parameter]:
    return {"weight": Parameter(torch.tensor(values, dtype=torch.float64))}


def descend(optimiser: Optimiser, gradients: list[float], rate: float = 0.1) -> list[float]:
    seen = []
    weight = optimiser.parameters["weight"]
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimiser.step(rate)
        seen.append(float(weight.detach()[0]))
    return seen


def test_sgd_with_momentum_by_hand() -> None:
    optimiser = Optimiser(TrainConfig(optimiser="sgd", momentum=0.5), parameter(1.0))
    # velocity 2, then .5 * 2 + 1 = 2
    assert descend(optimiser, [2.0, 1.0]) == pytest.approx([0.8, 0.6])


def test_adam_without_momentum_by_hand() -> None:
    optimiser = Optimiser(TrainConfig(beta1=0.0, beta2=0.9), parameter(1.0))
    # v = .1 * 4 = .4, corrected 4: step 2 / 2; then v = .36 + .1 = .46, corrected .46 / .19
    wanted = [1.0 - 0.1, 0.9 - 0.1 / np.sqrt(0.46 / 0.19)]
    assert descend(optimiser, [2.0, 1.0]) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_weights_that_are_rarely_touched_remember_every_gradient(optimiser: str) -> None:
    """By hand: the sum of squares grows, and a weight without a gradient stays where it is."""
    config = TrainConfig(optimiser=optimiser, learning_rate=0.2)  # type: ignore[arg-type]
    weight = RareParameter(torch.tensor([1.0, 1.0], dtype=torch.float64))
    made = Optimiser(config, {"weight": weight, "other": Parameter(torch.zeros(1))})
    seen = []
    for slope in (3 * RARE_GRADIENT, -4 * RARE_GRADIENT):
        weight.grad = torch.tensor([slope, 0.0], dtype=torch.float64)
        made.step(0.1)  # half of the highest rate
        seen.append(weight.tolist())
    step = RARE_RATE / 2
    assert seen[0] == pytest.approx([1 - step * 3 / np.sqrt(1 + 9), 1])
    assert seen[1] == pytest.approx([seen[0][0] + step * 4 / np.sqrt(1 + 9 + 16), 1])
    assert made.tensors()["weight/squares"].tolist() == pytest.approx([25 * RARE_GRADIENT**2, 0])


def test_decay_is_part_of_the_gradient_for_adam_and_apart_from_it_for_adamw() -> None:
    coupled = Optimiser(TrainConfig(optimiser="adam", weight_decay=0.5), parameter(1.0))
    apart = Optimiser(TrainConfig(optimiser="adamw", weight_decay=0.5), parameter(1.0))
    assert descend(coupled, [1.0]) == pytest.approx([0.9], rel=1e-6)  # sign of (1 + .5)
    assert descend(apart, [1.0]) == pytest.approx([1.0 - 0.05 - 0.1], rel=1e-6)


CASES: list[tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = [
    ({"optimiser": "sgd"}, torch.optim.SGD, {}),
    ({"optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.9}),
    ({"optimiser": "rmsprop", "beta2": 0.9}, torch.optim.RMSprop, {"alpha": 0.9}),
    ({"optimiser": "rmsprop", "momentum": 0.3, "weight_decay": 0.1, "beta2": 0.9}, torch.optim.RMSprop,
     {"momentum": 0.3, "alpha": 0.9}),
    ({"optimiser": "adam", "beta1": 0.9}, torch.optim.Adam, {"betas": (0.9, 0.999), "foreach": False}),
    ({"optimiser": "adam", "weight_decay": 0.1}, torch.optim.Adam, {"betas": (0.0, 0.999), "foreach": False}),
    ({"optimiser": "adamw", "weight_decay": 0.1}, torch.optim.AdamW, {"betas": (0.0, 0.999), "foreach": False}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "kind", "options"), CASES)
def test_every_optimiser_is_torchs_own(
    settings: dict[str, Any], kind: Callable[..., torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    """The oracle is torch.optim. One parameter has no gradient at times, as rare words' clusters do."""
    config = TrainConfig.model_validate(settings)
    rng = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 2, generator=rng, dtype=torch.float64), torch.randn(4, generator=rng, dtype=torch.float64)]
    ours = {f"p{i}": Parameter(value.clone()) for i, value in enumerate(start)}
    theirs = [Parameter(value.clone()) for value in start]
    optimiser = Optimiser(config, ours)
    oracle = kind(theirs, lr=0.01, weight_decay=config.weight_decay, **options)
    for step in range(8):
        for i, (mine, other) in enumerate(zip(ours.values(), theirs, strict=True)):
            gradient = torch.randn(mine.shape, generator=rng, dtype=torch.float64)
            mine.grad = other.grad = None if i == 1 and step % 3 == 0 else gradient
        optimiser.step(0.01)
        oracle.step()
    for mine, other in zip(ours.values(), theirs, strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [case[0] for case in CASES])
def test_an_optimiser_restored_goes_on_to_the_bit(settings: dict[str, Any]) -> None:
    config = TrainConfig.model_validate(settings)
    optimiser = Optimiser(config, parameter(0.3, -0.7))
    descend(optimiser, [1.0, -2.0, 0.5])
    again = Optimiser(config, {"weight": Parameter(optimiser.parameters["weight"].detach().clone())})
    again.restore({name: tensor.clone() for name, tensor in optimiser.tensors().items()})
    assert descend(optimiser, [0.1, 3.0]) == descend(again, [0.1, 3.0])


def test_no_gradient_no_step() -> None:
    optimiser = Optimiser(TrainConfig(), parameter(1.0))
    optimiser.step(0.1)
    descend(optimiser, [1.0])
    optimiser.zero_grad()
    before = optimiser.parameters["weight"].detach().clone()
    optimiser.step(0.1)
    assert torch.equal(optimiser.parameters["weight"].detach(), before)


def test_the_compiler_is_not_imported() -> None:
    code = (
        "import sys, torch\nfrom elman.training.config import TrainConfig\nfrom elman.training.optimiser import Optimiser\n"
        "p = torch.nn.Parameter(torch.ones(2)); p.grad = torch.ones(2)\n"
        "for name in ('sgd', 'rmsprop', 'adam', 'adamw'): Optimiser(TrainConfig(optimiser=name), {'p': p}).step(.1)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_exponential_average_by_hand() -> None:
    named = parameter(1.0)
    average = WeightAverage(TrainConfig(average_decay=0.5), named)
    assert not average.is_used
    for value in (2.0, 4.0):
        with torch.no_grad():
            named["weight"].fill_(value)
        average.update(0.0)
    # kept: min(.5, 2/11) = 2/11, then min(.5, 3/12) = .25
    first = 1.0 * 2 / 11 + 2.0 * 9 / 11
    assert float(average.mean[0]) == pytest.approx(first * 0.25 + 4.0 * 0.75)


def test_the_tail_average_is_the_mean_of_the_last_part() -> None:
    named = parameter(1.0)
    average = WeightAverage(TrainConfig(average="tail", average_tail=0.5), named)
    for step, value in enumerate([9.0, 9.0, 1.0, 2.0, 6.0]):
        with torch.no_grad():
            named["weight"].fill_(value)
        average.update(step / 4)
        assert average.is_used == (step >= 2)
    assert float(average.mean[0]) == pytest.approx(3.0)


def test_the_average_is_in_place_only_inside_the_block_and_the_weights_come_back_to_the_bit() -> None:
    named = parameter(0.1)
    average = WeightAverage(TrainConfig(), named)
    with torch.no_grad():
        named["weight"].fill_(0.7)
    average.update(0.0)
    before = named["weight"].detach().clone()
    with pytest.raises(RuntimeError), average.applied():
        assert float(named["weight"].detach()) not in (0.1, 0.7)
        raise RuntimeError
    assert torch.equal(named["weight"].detach(), before)


def test_no_average_is_no_average() -> None:
    named = parameter(0.1)
    average = WeightAverage(TrainConfig(average="none"), named)
    average.update(1.0)
    assert not average.is_used and average.tensors() == {}
