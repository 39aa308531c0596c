"""Examiners measure a net on held-out data: quickly during training, and once more when it is over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from elman.core.arrays import Array
from elman.lm.evaluate import Tally
from elman.lm.protocol import FreeModel
from elman.text.batches import LineBatches, StreamBatches
from elman.training.pace import VALIDATION_SHARE, Pace
from elman.training.protocols import Batches, Net
from elman.training.run import Run
from elman.training.temperature import fit_temperature
from elman.training.validation import Validation, score_exactly, validate

# Each measurement of how fast held-out data is read takes at most this share of a budget.
MEASUREMENT_SHARE = 0.005
# Exact scoring is timed on so many tokens: 16 + 32 + ... + 512, the pieces in which it reads.
MEASURED_TOKENS = 1008
# The temperature is fitted in so many rounds, on so many tokens, or as many of them as this share of a budget allows.
TEMPERATURE_ROUNDS = 7
TEMPERATURE_TOKENS, FEWEST_TEMPERATURE_TOKENS = 1 << 15, 1 << 11
TEMPERATURE_SHARE = 0.02
# Exact scoring at the end takes at most this share of a budget.
EXACT_SHARE = 0.1

ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class FinalEvaluation:
    """What was measured on the final weights."""

    tally: Tally | None = None
    is_whole: bool = True  # the tally is of all of the text, not of its first part
    temperature: float | None = None  # of the softmax, where one was fitted
    notes: tuple[str, ...] = ()  # sentences for the user


class Examiner(Protocol):
    """Measures a net on held-out data."""

    def validate(self, run: Run, *, should_stop: ShouldStop) -> Validation:
        """The loss of the weights to keep, on all of the data, in batches."""

    def reserve_time(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the data how long all of it takes, and reserve that time at the end of the budget."""

    def evaluate_final_weights(self, run: Run, pace: Pace, *, should_stop: ShouldStop) -> FinalEvaluation:
        """Measure the final weights, as far as there is time."""


class LossExaminer:
    """For nets whose held-out data is batches like those they are trained on. Their task computes its metrics later.

    error: what the best weights are chosen by, lower is better; the likelihood if not given.
    """

    def __init__(self, model: Net, batches: Batches, *, error: Callable[[], float] | None = None) -> None:
        self.model = model
        self.batches = batches
        self._error = error

    def validate(self, run: Run, *, should_stop: ShouldStop) -> Validation:
        """The loss of the weights to keep, on all of the data, in batches."""
        with run.average.applied():
            validation = validate(self.model, self.batches, should_stop=should_stop)
            if self._error is None or not validation.is_whole:
                return validation
            was_training = self.model.training
            self.model.eval()
            try:
                return Validation(validation.nats, validation.tokens, True, error=self._error())
            finally:
                self.model.train(was_training)

    def reserve_time(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the data how long all of it takes, and reserve that time at the end of the budget."""
        per_token = _time_validation(self.model, self.batches, pace, max_tokens=4 * self.batches.tokens_per_step)
        readings = 1 if self._error is None else 2  # for the likelihood, and once more for the error
        pace.reserve.validation_seconds = readings * per_token * self.batches.tokens_per_epoch

    def evaluate_final_weights(self, run: Run, pace: Pace, *, should_stop: ShouldStop) -> FinalEvaluation:
        """Nothing: metrics are computed by the task, after training."""
        return FinalEvaluation()


class MemberExaminer(LossExaminer):
    """For language models that will be members of a mixture, which is what is measured at the end.

    No temperature is fitted: a mixture's weights do what it would (71.56 without, 71.56 with 1.1; docs/log.md).
    """

    def reserve_time(self, pace: Pace, *, with_temperature: bool) -> None:
        """As for any net; where it would take long, the last weights are kept, whatever a validation would say."""
        assert pace.budget is not None
        super().reserve_time(pace, with_temperature=with_temperature)
        if pace.reserve.validation_seconds > VALIDATION_SHARE * pace.budget.seconds:
            pace.validates, pace.reserve.validation_seconds = False, 0.0

    def evaluate_final_weights(self, run: Run, pace: Pace, *, should_stop: ShouldStop) -> FinalEvaluation:
        """Nothing: the mixture is measured."""
        return FinalEvaluation(is_whole=False)


class StreamExaminer(LossExaminer):
    """For language models: reads held-out text in batches during training, and exactly as `evaluate` does at the end."""

    def __init__(self, model: Net, batches: StreamBatches | LineBatches, ids: Array, *, reset_lines: bool) -> None:
        super().__init__(model, batches)
        self.ids = ids
        self._reset_lines = reset_lines
        self._exact_seconds = 0.0  # of exact scoring, per token; 0 until it was timed
        self._temperature_tokens = TEMPERATURE_TOKENS

    def reserve_time(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the text how long all of it takes, and reserve that time at the end of the budget."""
        assert pace.budget is not None
        super().reserve_time(pace, with_temperature=with_temperature)
        reserve, num_tokens = pace.reserve, len(self.ids)
        per_token = reserve.validation_seconds / num_tokens
        self._temperature_tokens = wanted = min(num_tokens, TEMPERATURE_TOKENS)
        most = TEMPERATURE_SHARE * pace.budget.seconds
        if TEMPERATURE_ROUNDS * per_token * wanted > most:
            self._temperature_tokens = int(most / (TEMPERATURE_ROUNDS * per_token))
        if with_temperature and self._temperature_tokens >= min(wanted, FEWEST_TEMPERATURE_TOKENS):
            reserve.temperature_seconds = TEMPERATURE_ROUNDS * per_token * self._temperature_tokens
        self._exact_seconds = self._time_exact_scoring(pace)
        reserve.exact_seconds = min(self._exact_seconds * num_tokens, EXACT_SHARE * pace.budget.seconds)

    def evaluate_final_weights(self, run: Run, pace: Pace, *, should_stop: ShouldStop) -> FinalEvaluation:
        """Fit the temperature; then score the text as `evaluate` does, or its first part where time is short."""
        notes, temperature = [], None
        if run.config.fit_temperature:
            if not pace.is_late() and (pace.budget is None or pace.reserve.temperature_seconds):
                temperature = self._fit_temperature(run, should_stop=should_stop)
            else:
                notes.append("this budget has no time to fit the temperature of the softmax")
        tally = self._score_in_time(pace, should_stop=should_stop)
        is_whole = tally.tokens == len(self.ids)
        if not is_whole:
            notes.append(
                f"this budget had time to measure {tally.tokens:,} of {len(self.ids):,} tokens of validation text"
            )
        return FinalEvaluation(tally if tally.tokens else None, is_whole, temperature, tuple(notes))

    def _fit_temperature(self, run: Run, *, should_stop: ShouldStop) -> float | None:
        """Fit the temperature of the model's softmax, if it has one; evaluations that are cut short do not count."""

        def loss() -> float:
            validation = validate(
                self.model, self.batches, max_tokens=self._temperature_tokens, should_stop=should_stop
            )
            return math.nan if should_stop() else validation.nats_per_token

        return fit_temperature(run.module, loss, rounds=TEMPERATURE_ROUNDS)

    def _score_in_time(self, pace: Pace, *, should_stop: ShouldStop) -> Tally:
        """What `evaluate` says of the text, or of as much of it as there is time for."""
        began = pace.clock()

        def tokens_left(done: int) -> float:
            now = pace.clock()
            per_token = (now - began) / done if done else self._exact_seconds
            seconds = (pace.evaluation_end() - now) / 1.1
            return 0.0 if should_stop() or seconds <= 0 else seconds / max(per_token, 1e-12)

        return self._score(self.ids, tokens_left)

    def _time_exact_scoring(self, pace: Pace) -> float:
        """Seconds per token of exact scoring, measured in very little of the budget."""
        assert pace.budget is not None
        began, limit = pace.clock(), MEASUREMENT_SHARE * pace.budget.seconds
        tally = self._score(self.ids[:MEASURED_TOKENS], lambda _: math.inf if pace.clock() - began < limit else 0.0)
        return (pace.clock() - began) / max(tally.tokens, 1)

    def _score(self, ids: Array, tokens_left: Callable[[int], float]) -> Tally:
        was_training = self.model.training
        self.model.eval()
        try:
            lm = cast(FreeModel[object], self.model)
            return score_exactly(lm, ids, reset_lines=self._reset_lines, tokens_left=tokens_left)
        finally:
            self.model.train(was_training)


def _time_validation(model: Net, batches: Batches, pace: Pace, *, max_tokens: int) -> float:
    """Seconds per token of a validation, measured in very little of the budget."""
    assert pace.budget is not None
    began, limit = pace.clock(), MEASUREMENT_SHARE * pace.budget.seconds
    measured = validate(model, batches, max_tokens=max_tokens, should_stop=lambda: pace.clock() - began > limit)
    return (pace.clock() - began) / max(measured.tokens, 1)
