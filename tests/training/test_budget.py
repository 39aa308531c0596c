"""Durations, and a bound on time that is kept by a run on a clock of our own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from elman.core.errors import UsageError
from elman.training import examiner, keeper
from elman.training import loop as trainer_module
from elman.training.budget import Budget, Reserve, format_duration, parse_duration, process_started, training_end
from elman.training.loop import Trainer
from tests.training.tiny import Tiny, error_of, notes, run, text, trainer


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800)]
)
def test_durations_as_people_write_them(written: str, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", "soon", "10x", "-5m", "5m!", "0s", "m"])
def test_what_is_no_duration_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(written)


def test_durations_as_people_read_them() -> None:
    shown = [format_duration(seconds) for seconds in (0.34, 12, 59.7, 200, 600, 7500, 7200)]
    assert shown == ["0.3 s", "12 s", "1 min", "3 min 20 s", "10 min", "2 h 5 min", "2 h"]


def test_the_start_of_the_process_is_before_the_first_line_of_python() -> None:
    code = (
        "import time; time.sleep(.3); now = time.monotonic()\n"
        "from elman.training.budget import process_started\n"
        "print(now - process_started())"
    )
    began = time.monotonic()
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.29 < age < time.monotonic() - began


def test_without_proc_the_start_is_when_we_were_imported(tmp_path: Path) -> None:
    assert time.monotonic() - 3600 * 24 < process_started(tmp_path / "none") <= time.monotonic()


class FakeClock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Timed(Tiny):
    """A net that takes its time: so many seconds a step, a token of quick validation, a token of exact scoring."""

    def __init__(self, clock: FakeClock, *, step: float, valid: float, exact: float, jitter: float = 0.0) -> None:
        super().__init__(hidden=2)
        self.clock = clock
        self.costs = (step, valid, exact)
        self.rng = np.random.default_rng(0)
        self.jitter = jitter

    def loss(self, inputs, targets, lengths, state):  # type: ignore[no-untyped-def]
        cost = self.costs[0] if self.training else self.costs[1] * inputs.numel()
        self.clock.now += cost * (1 + self.jitter * float(self.rng.uniform(-1, 1)))
        return super().loss(inputs, targets, lengths, state)

    def score(self, tokens, lengths, state):  # type: ignore[no-untyped-def]
        self.clock.now += self.costs[2] * tokens.size
        return super().score(tokens, lengths, state)


def timed_run(
    seconds: float, *, ready: float, directory: Path | None = None, jitter: float = 0.0, **costs: float
) -> tuple[Trainer, FakeClock, float]:
    """A run under a budget. -> the trainer, the clock, and the seconds from start to end"""
    clock = FakeClock()
    started = clock.now
    clock.now += ready
    model = Timed(clock, jitter=jitter, **costs)
    budget = Budget(seconds, started)
    made = trainer(
        directory, model=model, budget=budget, clock=clock, epochs=None, batch=2, bptt=3, checkpoint_steps=None
    )
    run(made)
    return made, clock, clock.now - started


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(
    seconds=st.floats(20, 2000),
    steps=st.integers(60, 160),
    ready=st.floats(0, 0.1),
    valid=st.floats(0, 0.2),
    exact=st.floats(0, 0.5),
    jitter=st.floats(0, 0.3),
)
def test_a_budget_is_never_overrun_and_at_most_a_twentieth_is_left(
    seconds: float, steps: int, ready: float, valid: float, exact: float, jitter: float
) -> None:
    """The costs are parts of the budget; validation text has 150 tokens. A twentieth is 5 %."""
    made, _, took = timed_run(
        seconds,
        ready=ready * seconds,
        step=seconds / steps,
        valid=valid * seconds / steps / 6,  # per token; cheaper than training
        exact=exact * seconds / 150,
        jitter=jitter,
    )
    assert took <= seconds
    assert took >= 0.95 * seconds
    assert made.outcome is not None and made.outcome.why == "the budget is used up"


@pytest.mark.parametrize(("fewest", "is_fitted"), [(30, True), (100, False)])
def test_where_validation_is_slow_the_temperature_is_fitted_on_fewer_tokens(
    fewest: int, is_fitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven rounds of all 150 tokens would take a twentieth of the time; a fiftieth is given, which is enough for 60."""
    monkeypatch.setattr(examiner, "FEWEST_TEMPERATURE_TOKENS", fewest)
    made, _, took = timed_run(1000.0, ready=0.0, step=5.0, valid=50.0 / (7 * 150), exact=0.0)
    assert made.outcome is not None and (made.outcome.temperature is not None) == is_fitted
    assert took <= 1000.0


def test_the_rate_is_annealed_by_time() -> None:
    clock = FakeClock()
    model = Timed(clock, step=1.0, valid=0.0, exact=0.0)
    made = trainer(None, model=model, budget=Budget(100.0, clock.now), clock=clock, epochs=None, learning_rate=1e-3)
    seen = [(p.fraction, p.learning_rate) for p in made.run() if p.step]
    assert len(seen) > 95
    by_time = dict(seen)
    assert max(by_time.values()) == pytest.approx(1e-3)
    assert list(by_time.values())[-1] < 5e-5
    assert all(0 <= fraction <= 1 for fraction, _ in seen if fraction is not None)


def test_a_slow_exact_number_is_cut_short_and_said_so() -> None:
    made, _, took = timed_run(100.0, ready=1.0, step=0.5, valid=0.0, exact=1.0)
    assert took <= 100.0
    assert made.outcome is not None and not made.outcome.is_whole
    assert made.outcome.tally is not None and 5 <= made.outcome.tally.tokens < 20


@pytest.mark.parametrize("slower", [2.0, 5.0, 20.0])
def test_a_machine_that_becomes_slower_than_it_was_measured_is_still_on_time(slower: float) -> None:
    """A run on a busy machine was 0.6 s late: reading the validation text took longer than in the rehearsal."""
    clock = FakeClock()
    started = clock.now
    model = Timed(clock, step=0.5, valid=0.01, exact=0.01)
    made = trainer(None, model=model, budget=Budget(100.0, started), clock=clock, epochs=None, batch=2, bptt=3)
    said = []
    for progress in made.run():
        said += progress.notes
        if clock.now - started > 80.0:
            model.costs = (0.5, 0.01 * slower, 0.01 * slower)
    assert clock.now - started <= 100.0
    if slower == 20.0:
        assert "this budget had no time to validate the last weights, which are kept" in said
    assert made.outcome is not None and all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_saving_is_counted_and_the_last_save_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    real = keeper.write_checkpoint

    def slow(*arguments: object) -> Path:
        clock.now += 2.0
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(keeper, "write_checkpoint", slow)
    model = Timed(clock, step=0.5, valid=0.001, exact=0.001)
    started = clock.now
    budget = Budget(200.0, started)
    made = trainer(
        tmp_path, model=model, budget=budget, clock=clock, epochs=None, checkpoint_steps=None, checkpoint_seconds=20.0
    )
    run(made)
    took = clock.now - started + 2.0  # the model itself is saved by the caller
    assert 190.0 <= took <= 200.0


@pytest.mark.parametrize(("ready", "step"), [(2.0, 0.001), (0.9, 0.2), (0.0, 5.0)])
def test_a_budget_too_short_for_a_step_is_refused_with_the_least_that_would_do(
    ready: float, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "measure_peak", lambda **_: 6.0 * 2 * Tiny(hidden=2).count_flops() * 6 / step)
    error = error_of(lambda: timed_run(1.0, ready=ready, step=step, valid=0.0, exact=0.0))
    assert isinstance(error, UsageError) and error.exit_code == 2
    assert "too short" in error.what and "at least" in (error.hint or "")


def test_a_budget_run_goes_on_with_the_time_that_is_left(tmp_path: Path) -> None:
    clock = FakeClock()
    model = Timed(clock, step=1.0, valid=0.0, exact=0.0)
    first = trainer(
        tmp_path, model=model, budget=Budget(100.0, clock.now), clock=clock, epochs=None, checkpoint_steps=10
    )
    for progress in first.run():
        if progress.step == 40:
            break
    spent_before = first.state.seconds
    clock.now += 5000.0  # nobody was at work
    again = trainer(
        tmp_path,
        model=Timed(clock, step=1.0, valid=0.0, exact=0.0),
        budget=Budget(100.0, clock.now),
        clock=clock,
        epochs=None,
        checkpoint_steps=10,
        resume=True,
    )
    began = clock.now
    found = run(again)
    assert "going on after step 40" in notes(found)
    assert 95.0 <= spent_before + clock.now - began <= 100.0
    fractions = [p.fraction for p in found if p.fraction is not None]
    assert fractions[0] == pytest.approx(0.4, abs=0.03)


def test_epochs_and_a_budget_together_end_with_whichever_comes_first() -> None:
    clock = FakeClock()
    model = Timed(clock, step=0.01, valid=0.0, exact=0.0)
    made = trainer(None, model=model, budget=Budget(1000.0, clock.now), clock=clock, epochs=1.0)
    run(made)
    assert made.outcome is not None and made.outcome.why == "all steps are done" and made.outcome.epochs == 1.0


def test_a_reserve_is_the_sum_of_what_the_end_takes() -> None:
    reserve = Reserve(save_seconds=1.0, validation_seconds=2.0, temperature_seconds=3.0, exact_seconds=4.0)
    assert reserve.total(Budget(100.0, 0.0)) == pytest.approx(1.05 * 12 + 0.25 + 0.4)


def test_a_real_minute_in_miniature(tmp_path: Path) -> None:
    started = time.monotonic()
    made = trainer(
        tmp_path, model=Tiny(dtype=torch.float32), ids=text(20_000), epochs=None, budget=Budget(4.0, started)
    )
    run(made)
    assert (
        2.0 <= time.monotonic() - started <= 4.0
    )  # how much of it is used depends on the load; that it is kept does not


def test_on_a_crowded_machine_more_is_kept_free_for_the_end() -> None:
    """At a load of four times the cores, runs of 30 s ended after 30.3 to 31.9 s."""
    reserve = Reserve(save_seconds=1.0)
    calm, crowded = Budget(30.0, 0.0), Budget(30.0, 0.0, crowding=4.0)
    assert reserve.total(calm) == pytest.approx(1.05 * 3 + 0.25 + 0.12)
    assert reserve.total(crowded) == pytest.approx(1.2 * 3 + 4 * 0.37)
    assert crowded.after(10.0).crowding == 4.0
    assert training_end(crowded, reserve) < training_end(calm, reserve) - 1.5
