"""What a run does next is decided in one place, in one order, and told as a plain value."""

from __future__ import annotations

import dataclasses
import json
import signal
from typing import Any

import pytest

from elman.core.errors import UsageError
from elman.text.batches import Position, StreamBatches
from elman.training.budget import Budget
from elman.training.config import TrainConfig
from elman.training.decision import Decision, decide, require_an_end, should_interrupt
from elman.training.pace import Pace
from elman.training.run_state import RunState
from tests.training.tiny import text


def pace(*, budget: Budget | None = None, now: float = 0.0, **settings: Any) -> Pace:
    batches = StreamBatches(text(400), rows=4, bptt=6)
    return Pace(TrainConfig(**settings), batches, budget=budget, clock=lambda: now, spent=0.0)


def decision(state: RunState, pace: Pace, *, signum: int | None = None, bad: str | None = None) -> Decision:
    return decide(state, pace=pace, signum=signum, describe_bad_weight=lambda: bad)


def test_a_run_steps_until_a_validation_is_due() -> None:
    assert decision(RunState(), pace(epochs=1.0)) == Decision("step")
    assert decision(RunState(is_validation_due=True), pace(epochs=1.0)) == Decision("validate")


@pytest.mark.parametrize(
    ("state", "settings", "reason"),
    [
        (RunState(step=7), {"steps": 7}, "all steps are done"),
        (RunState(position=Position(epoch=2)), {"epochs": 2.0}, "all steps are done"),
        (RunState(position=Position(epoch=1, offset=50)), {"epochs": 1.5}, "all steps are done"),
        (RunState(stale=3), {"patience": 3}, "3 validations without a gain"),
    ],
)
def test_a_run_is_finished_for_a_reason(state: RunState, settings: dict[str, Any], reason: str) -> None:
    assert decision(state, pace(**settings)) == Decision("finish", reason)


def test_a_step_before_the_end_is_not_the_end() -> None:
    assert decision(RunState(step=6), pace(steps=7)).action == "step"
    assert decision(RunState(position=Position(offset=99)), pace(epochs=1.0)).action == "step"
    assert decision(RunState(stale=2), pace(patience=3)).action == "step"


def test_a_budget_ends_when_one_more_step_would_be_late() -> None:
    """The reserve of 100 s is .25 s to exit and .4 s for errors of measurement."""
    budget = Budget(100.0, 0.0)
    for now, action in ((97.0, "step"), (98.4, "finish")):
        timed = pace(budget=budget, now=now)
        timed.step_estimate = 1.0
        assert decision(RunState(), timed).action == action
    assert decision(RunState(), timed).reason == "the budget is used up"
    assert decision(RunState(step=5), pace(budget=budget, steps=5)).reason == "all steps are done"


def test_a_signal_comes_before_everything_else() -> None:
    over = RunState(step=7, is_validation_due=True)
    wanted = Decision("stop", "stopped by SIGTERM", signal.SIGTERM)
    assert decision(over, pace(steps=7), signum=signal.SIGTERM) == wanted
    assert decision(RunState(), pace(steps=7), signum=signal.SIGTERM) == wanted


@pytest.mark.parametrize("signum", [None, signal.SIGINT])
def test_a_run_with_bad_weights_is_rolled_back_before_it_ends(signum: int | None) -> None:
    found = decision(RunState(step=7), pace(steps=7), signum=signum, bad="the weight w is not finite")
    assert found == Decision("roll back", "the weight w is not finite") and not found.is_over


def test_weights_are_not_read_at_every_step() -> None:
    def read() -> str:
        raise AssertionError("all weights were read")

    for state in (RunState(), RunState(is_validation_due=True)):
        decide(state, pace=pace(steps=7), signum=None, describe_bad_weight=read)


def test_a_decision_can_be_sent_to_another_process_as_json() -> None:
    for sent in (Decision("step"), Decision("finish", "all steps are done"), Decision("stop", "stopped by SIGINT", 2)):
        assert Decision(**json.loads(json.dumps(dataclasses.asdict(sent)))) == sent


def test_a_validation_is_interrupted_by_a_signal_or_for_lack_of_time() -> None:
    budget = Budget(100.0, 0.0)
    assert not should_interrupt(pace(epochs=1.0), signum=None)
    assert should_interrupt(pace(epochs=1.0), signum=signal.SIGINT)
    assert not should_interrupt(pace(budget=budget, now=99.0), signum=None)
    assert should_interrupt(pace(budget=budget, now=99.5), signum=None)


def test_a_run_that_nothing_would_end_is_refused() -> None:
    with pytest.raises(UsageError, match="no telling when to stop"):
        require_an_end(has_end=False, has_validation=False)
    require_an_end(has_end=False, has_validation=True)
    require_an_end(has_end=True, has_validation=False)
