"""Learning rates are functions of the part of the run that is done: known at the edges, never negative, no jumps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import UsageError
from elman.training import schedule
from elman.training.config import TrainConfig

fractions = st.floats(0, 1)
KINDS = ("linear", "cosine", "one-cycle")


def rate(kind: str, fraction: float) -> float:
    return schedule.rate(TrainConfig(schedule=kind), fraction, peak=1.0, step=10_000)  # type: ignore[arg-type]


def test_linear_rises_stays_and_falls_to_zero() -> None:
    def at(fraction: float) -> float:
        return schedule.linear(fraction, warmup=0.1, flat=0.5)

    assert at(0.0) == pytest.approx(0.01)
    assert at(0.05) == pytest.approx(0.505)
    assert [at(0.1), at(0.3), at(0.5)] == [1.0, 1.0, 1.0]
    assert at(0.75) == pytest.approx(0.5)
    assert at(1.0) == 0.0


def test_cosine_is_half_way_down_in_the_middle_of_its_fall() -> None:
    assert schedule.cosine(0.1, warmup=0.1) == 1.0
    assert schedule.cosine(0.55, warmup=0.1) == pytest.approx(0.5)
    assert schedule.cosine(1.0, warmup=0.1) == pytest.approx(0.0)


def test_one_cycle_is_highest_after_three_tenths() -> None:
    assert schedule.one_cycle(0.0) == pytest.approx(0.04)
    assert schedule.one_cycle(0.3) == 1.0
    assert schedule.one_cycle(0.65) == pytest.approx(0.5)
    assert schedule.one_cycle(1.0) == pytest.approx(1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_no_schedule_jumps(kind: str) -> None:
    values = [rate(kind, i / 1000) for i in range(1001)]
    assert max(abs(b - a) for a, b in pairwise(values)) < 0.03
    assert max(values) == 1.0


@given(fractions, st.sampled_from(KINDS))
def test_a_rate_is_between_nothing_and_its_peak(fraction: float, kind: str) -> None:
    assert 0.0 <= rate(kind, fraction) <= 1.0


def test_without_a_known_end_the_rate_warms_up_by_steps_and_stays() -> None:
    config = TrainConfig(schedule="plateau")
    assert schedule.rate(config, 0.0, peak=2.0, step=0) == pytest.approx(0.02)
    assert schedule.rate(config, 0.0, peak=2.0, step=100) == 2.0
    assert schedule.rate(TrainConfig(schedule="constant", warmup=0), 0.0, peak=2.0, step=0) == 2.0


def test_what_is_not_set_is_chosen_by_whether_the_end_is_known() -> None:
    known = schedule.choose(TrainConfig(), has_end=True)
    assert (known.schedule, known.patience) == ("linear", None)
    open_end = schedule.choose(TrainConfig(), has_end=False)
    assert open_end.schedule == "plateau" and open_end.patience is not None
    assert schedule.choose(TrainConfig(patience=2, schedule="cosine"), has_end=True).patience == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_towards_an_end_needs_one(kind: str) -> None:
    with pytest.raises(UsageError, match="needs to know where the run ends"):
        schedule.choose(TrainConfig(schedule=kind), has_end=False)  # type: ignore[arg-type]


def test_a_tail_needs_an_end() -> None:
    with pytest.raises(UsageError, match="tail"):
        schedule.choose(TrainConfig(average="tail"), has_end=False)


def test_settings_that_cannot_apply_are_refused_and_a_dump_can_be_read_back() -> None:
    for wrong in ({"momentum": 0.9}, {"optimiser": "sgd", "beta1": 0.9}, {"average": "none", "average_decay": 0.9}):
        with pytest.raises(ValueError, match="does not apply"):
            TrainConfig.model_validate(wrong)
    with pytest.raises(ValueError, match="not both"):
        TrainConfig(epochs=1, steps=1)
    config = TrainConfig(optimiser="sgd", momentum=0.9, epochs=3)
    assert TrainConfig.model_validate(config.model_dump()) == config
