"""The end of a run, and who judges it: validation on the way, a rehearsal of how long the end takes, the last word."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.evaluate import Tally
from elman.lm.protocol import FreeModel
from elman.text.batches import Lines, Streams, validation_batches
from elman.training.budget import check_feasible
from elman.training.pace import Pace
from elman.training.protocols import Batches, Net
from elman.training.steps import Run
from elman.training.validation import Quick, fit_temperature, score_exactly, validate

REHEARSAL_SHARE = 0.005  # of a budget

TEMPERATURE_TOKENS = 1 << 15  # enough for one number
TEMPERATURE_ROUNDS = 7
TEMPERATURE_SHARE = 0.02  # of a budget, at most
EXACT_SHARE = 0.1  # of a budget, at most, for the number as `evaluate` says it
REHEARSED_TOKENS = 1008  # 16 + 32 + ... + 512

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


class StreamExaminer:
    """Reads the validation text: quickly in batches on the way, exactly at the end."""

    def __init__(self, model: Net, ids: Array, *, rows: int, bptt: int, reset_lines: bool) -> None:
        self.model = model
        self.ids = ids
        self.batches: Streams | Lines = validation_batches(ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
        self._rehearsal = 4 * rows * bptt
        self._reset_lines = reset_lines
        self._exact_seconds = 0.0  # a token, once it is known

    def look(self, run: Run, *, should_stop: Stop) -> Quick:
        """The weights to keep on all of the text, in batches."""
        with run.average.in_place():
            return validate(self.model, self.batches, should_stop=should_stop)

    def rehearse(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the text how long reading all of it will take."""
        assert pace.budget is not None
        reserve, num_tokens = pace.reserve, len(self.ids)
        per_token = rehearse_validation(self.model, self.batches, pace, max_tokens=self._rehearsal)
        reserve.validation_seconds = per_token * num_tokens
        rounds = TEMPERATURE_ROUNDS * per_token * min(num_tokens, TEMPERATURE_TOKENS)
        if with_temperature and rounds <= TEMPERATURE_SHARE * pace.budget.seconds:
            reserve.temperature_seconds = rounds
        self._exact_seconds = self._rehearse_exactly(pace)
        reserve.exact_seconds = min(self._exact_seconds * num_tokens, EXACT_SHARE * pace.budget.seconds)

    def _rehearse_exactly(self, pace: Pace) -> float:
        """Seconds a token, from as many as can be scored in very little of the budget."""
        assert pace.budget is not None
        began, limit = pace.clock(), REHEARSAL_SHARE * pace.budget.seconds
        tally = self._score(self.ids[:REHEARSED_TOKENS], lambda _: math.inf if pace.clock() - began < limit else 0.0)
        return (pace.clock() - began) / max(tally.tokens, 1)

    def conclude(self, run: Run, pace: Pace, *, should_stop: Stop) -> Conclusion:
        """The temperature, and what `evaluate` says of the text, or of its first part where time is short."""
        notes, temperature = [], None
        if run.config.fit_temperature:
            if not pace.is_late() and (pace.budget is None or pace.reserve.temperature_seconds):
                temperature = self.fit_temperature(run, should_stop=should_stop)
            else:
                notes.append("this budget has no time to fit the temperature of the softmax")
        tally = self.score_exactly(pace, should_stop=should_stop)
        is_whole = tally.tokens == len(self.ids)
        if not is_whole:
            notes.append(
                f"this budget had time to measure {tally.tokens:,} of {len(self.ids):,} tokens of validation text"
            )
        return Conclusion(tally if tally.tokens else None, is_whole, temperature, tuple(notes))

    def fit_temperature(self, run: Run, *, should_stop: Stop) -> float | None:
        """Fit the temperature of the model's softmax, if it has one; looks that are cut off do not count."""

        def look() -> float:
            quick = validate(self.model, self.batches, max_tokens=TEMPERATURE_TOKENS, should_stop=should_stop)
            return math.nan if should_stop() else quick.nats_per_token

        return fit_temperature(run.module, look, rounds=TEMPERATURE_ROUNDS)

    def score_exactly(self, pace: Pace, *, should_stop: Stop) -> Tally:
        """What `evaluate` says, for as long as there is time."""
        began = pace.clock()

        def room(done: int) -> float:
            now = pace.clock()
            per_token = (now - began) / done if done else self._exact_seconds
            left = (pace.scoring_end() - now) / 1.1
            return 0.0 if should_stop() or left <= 0 else left / max(per_token, 1e-12)

        return self._score(self.ids, room)

    def _score(self, ids: Array, room: Callable[[int], float]) -> Tally:
        was_training = self.model.training
        self.model.eval()
        try:
            lm = cast(FreeModel[object], self.model)
            return score_exactly(lm, ids, reset_lines=self._reset_lines, room=room)
        finally:
            self.model.train(was_training)
