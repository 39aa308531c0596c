"""Steps by hand, what an optimiser remembers, and averages of weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from elman.config import TrainConfig
from elman.train.optimiser import Average, make_optimiser, optimiser_tensors, restore_optimiser, set_rate


def parameter(*values: float) -> dict[str, Parameter]:
    return {"weight": Parameter(torch.tensor(values, dtype=torch.float64))}


def descend(named: dict[str, Parameter], optimiser: torch.optim.Optimizer, gradients: list[float]) -> list[float]:
    seen = []
    for gradient in gradients:
        named["weight"].grad = torch.full_like(named["weight"], gradient)
        optimiser.step()
        seen.append(float(named["weight"].detach()[0]))
    return seen


def test_sgd_with_momentum_by_hand() -> None:
    named = parameter(1.0)
    optimiser = make_optimiser(TrainConfig(optimiser="sgd", momentum=0.5), named)
    set_rate(optimiser, 0.1)
    # velocity 2, then .5 * 2 + 1 = 2
    assert descend(named, optimiser, [2.0, 1.0]) == pytest.approx([0.8, 0.6])


def test_adam_without_momentum_by_hand() -> None:
    named = parameter(1.0)
    optimiser = make_optimiser(TrainConfig(beta1=0.0, beta2=0.9), named)
    set_rate(optimiser, 0.1)
    # v = .1 * 4 = .4, corrected 4: step 2 / 2; then v = .36 + .1 = .46, corrected .46 / .19
    wanted = [1.0 - 0.1, 0.9 - 0.1 / np.sqrt(0.46 / 0.19)]
    assert descend(named, optimiser, [2.0, 1.0]) == pytest.approx(wanted, rel=1e-6)


def test_decay_is_part_of_the_gradient_for_adam_and_apart_from_it_for_adamw() -> None:
    coupled, apart = parameter(1.0), parameter(1.0)
    for name, named in (("adam", coupled), ("adamw", apart)):
        optimiser = make_optimiser(TrainConfig(optimiser=name, weight_decay=0.5), named)  # type: ignore[arg-type]
        set_rate(optimiser, 0.1)
        descend(named, optimiser, [1.0])
    assert float(coupled["weight"].detach()) == pytest.approx(0.9, rel=1e-6)  # sign of (1 + .5)
    assert float(apart["weight"].detach()) == pytest.approx(1.0 - 0.05 - 0.1, rel=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "sgd"},
        {"optimiser": "sgd", "momentum": 0.9},
        {"optimiser": "rmsprop", "momentum": 0.3},
        {"optimiser": "adam", "beta1": 0.9},
        {"optimiser": "adamw", "weight_decay": 0.1},
    ],
)
def test_an_optimiser_restored_goes_on_to_the_bit(settings: dict[str, object]) -> None:
    config = TrainConfig.model_validate(settings)
    named = parameter(0.3, -0.7)
    optimiser = make_optimiser(config, named)
    set_rate(optimiser, 0.01)
    descend(named, optimiser, [1.0, -2.0, 0.5])
    other = {"weight": Parameter(named["weight"].detach().clone())}
    again = make_optimiser(config, other)
    restore_optimiser(again, other, optimiser_tensors(optimiser, named))
    set_rate(again, 0.01)
    assert descend(named, optimiser, [0.1, 3.0]) == descend(other, again, [0.1, 3.0])


def test_the_exponential_average_by_hand() -> None:
    named = parameter(1.0)
    average = Average(TrainConfig(average_decay=0.5), named)
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
    average = Average(TrainConfig(average="tail", average_tail=0.5), named)
    for step, value in enumerate([9.0, 9.0, 1.0, 2.0, 6.0]):
        with torch.no_grad():
            named["weight"].fill_(value)
        average.update(step / 4)
        assert average.is_used == (step >= 2)
    assert float(average.mean[0]) == pytest.approx(3.0)


def test_the_average_is_in_place_only_inside_the_block_and_the_weights_come_back_to_the_bit() -> None:
    named = parameter(0.1)
    average = Average(TrainConfig(), named)
    with torch.no_grad():
        named["weight"].fill_(0.7)
    average.update(0.0)
    before = named["weight"].detach().clone()
    with pytest.raises(RuntimeError), average.in_place():
        assert float(named["weight"].detach()) not in (0.1, 0.7)
        raise RuntimeError
    assert torch.equal(named["weight"].detach(), before)


def test_no_average_is_no_average() -> None:
    named = parameter(0.1)
    average = Average(TrainConfig(average="none"), named)
    average.update(1.0)
    assert not average.is_used and average.tensors() == {}
