"""The end of a run, and who judges it: validation on the way, a rehearsal of how long the end takes, the last word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elman.core.errors import UsageError
from elman.lm.evaluate import Tally
from elman.training.budget import check_feasible
from elman.training.pace import Pace
from elman.training.protocols import Batches, Net
from elman.training.steps import Run
from elman.training.validation import Quick, validate

REHEARSAL_SHARE = 0.005  # of a budget

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Conclusion:
    """What is known of the weights that are kept."""

    tally: Tally | None = None
    is_whole: bool = True  # the tally is of all of the text, not of its first part
    temperature: float | None = None
    notes: tuple[str, ...] = ()


class Examiner(Protocol):
    """Reads the validation data: quickly on the way, exactly at the end."""

    def look(self, run: Run, *, should_stop: Stop) -> Quick:
        """The weights to keep on all of the data, in batches."""

    def rehearse(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the data how long reading all of it will take, and reserve that."""

    def conclude(self, run: Run, pace: Pace, *, should_stop: Stop) -> Conclusion:
        """The last word on the weights that are kept, for as long as there is time."""


class LossExaminer:
    """For nets whose validation data is batches like those they are trained on. Their task's own numbers come later.

    error: what the weights to keep are chosen by, lower is better; the likelihood if not given.
    """

    def __init__(self, model: Net, batches: Batches, *, error: Callable[[], float] | None = None) -> None:
        self.model = model
        self.batches = batches
        self._error = error

    def look(self, run: Run, *, should_stop: Stop) -> Quick:
        """The weights to keep on all of the data, in batches."""
        with run.average.in_place():
            quick = validate(self.model, self.batches, should_stop=should_stop)
            if self._error is None or not quick.is_whole:
                return quick
            was_training = self.model.training
            self.model.eval()
            try:
                return Quick(quick.nats, quick.tokens, True, error=self._error())
            finally:
                self.model.train(was_training)

    def rehearse(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the data how long reading all of it will take, and reserve that."""
        per_token = rehearse_validation(self.model, self.batches, pace, max_tokens=4 * self.batches.tokens_per_step)
        pace.reserve.validation_seconds = per_token * self.batches.tokens_per_epoch

    def conclude(self, run: Run, pace: Pace, *, should_stop: Stop) -> Conclusion:
        """Nothing more is said here."""
        return Conclusion()


def rehearse_validation(model: Net, batches: Batches, pace: Pace, *, max_tokens: int) -> float:
    """Seconds a token, from as many as can be read in very little of the budget."""
    assert pace.budget is not None
    began, limit = pace.clock(), REHEARSAL_SHARE * pace.budget.seconds
    seen = validate(model, batches, max_tokens=max_tokens, should_stop=lambda: pace.clock() - began > limit)
    return (pace.clock() - began) / max(seen.tokens, 1)


def refuse_if_too_short(pace: Pace) -> None:
    """An error for a budget in which not one step fits."""
    if pace.budget is not None:
        check_feasible(pace.budget, pace.reserve, now=pace.clock(), step_seconds=pace.step_estimate)


def need_an_end(pace: Pace, examiner: Examiner | None) -> None:
    """An error for a run that could not know when to stop."""
    if not pace.has_end and examiner is None:
        raise UsageError(
            "without validation text there is no telling when to stop", hint="give --budget, --epochs or --valid"
        )
