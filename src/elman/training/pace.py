"""When things are due: how much of a run is done, when it is over, when to look at the validation text, when to save."""

from __future__ import annotations

import math

from elman.training.budget import EXIT_SECONDS, Budget, Clock, Reserve, training_end
from elman.training.config import TrainConfig
from elman.training.protocols import Batches
from elman.training.speed import Meter
from elman.training.steps import RunState

LONG_EPOCH = 5_000  # steps after which a pass is too long to wait for its end with a validation
VALIDATION_SHARE = 0.025  # of a budget, at most, for looking at the validation text on the way
SAVE_SHARE = 0.02  # of the time, at most, for checkpoints
DONE = 1.0 - 1e-9


class Pace:
    """The clock of a run. Time already spent in earlier processes counts."""

    def __init__(
        self, config: TrainConfig, batches: Batches, *, budget: Budget | None, clock: Clock, spent: float
    ) -> None:
        self.config = config
        self.batches = batches
        self.clock = clock
        self.budget = budget.after(spent) if budget is not None else None
        self.reserve = Reserve()
        self.meter = Meter()
        self.step_estimate = 0.0  # seconds, until a step was made
        self._origin = clock() - spent
        self._saved_at = self._validated_at = clock()
        self._first: tuple[float, float] | None = None

    @property
    def has_end(self) -> bool:
        return self.budget is not None or self.config.epochs is not None or self.config.steps is not None

    def spent(self) -> float:
        """Seconds of this run so far; under a budget, since its process began."""
        return self.clock() - (self._origin if self.budget is None else self.budget.started)

    def epochs(self, state: RunState) -> float:
        """Passes over the corpus, with the part of the present one."""
        return state.position.epoch + self.batches.fraction(state.position)

    def fraction(self, state: RunState) -> float:
        """How much of the run is done, in [0, 1]; 0 where its end is open."""
        parts = [0.0]
        if self.config.epochs is not None:
            parts.append(self.epochs(state) / self.config.epochs)
        if self.config.steps is not None:
            parts.append(state.step / self.config.steps)
        if self.budget is not None and state.began_seconds is not None:
            end = self.budget.seconds - self.reserve.total(self.budget)
            parts.append((self.spent() - state.began_seconds) / max(end - state.began_seconds, 1e-9))
        return min(1.0, max(parts))

    def why_over(self, state: RunState) -> str | None:
        """Why another step would be one too many, or None."""
        if self.config.patience is not None and state.stale >= self.config.patience:
            return f"{state.stale} validations without a gain"
        if not self.has_time():
            return "the budget is used up"
        if self.has_end and self.budget is None and self.fraction(state) >= DONE:
            return "all steps are done"
        if self.budget is not None and self._is_counted_out(state):
            return "all steps are done"
        return None

    def _is_counted_out(self, state: RunState) -> bool:
        epochs, steps = self.config.epochs, self.config.steps
        return (epochs is not None and self.epochs(state) >= epochs * DONE) or (
            steps is not None and state.step >= steps
        )

    def has_time(self, *, besides: float = 0.0) -> bool:
        """Whether a budget, if there is one, has room for one more step, and for so many seconds besides."""
        if self.budget is None:
            return True
        next_step = self.meter.slowest or self.step_estimate
        return self.clock() + next_step + besides <= training_end(self.budget, self.reserve)

    def scoring_end(self) -> float:
        """When the number to report has to be there, so that the run can still be saved in time."""
        if self.budget is None:
            return math.inf
        return training_end(self.budget, Reserve(save_seconds=self.reserve.save_seconds * 2 / 3))

    def spare_seconds(self) -> float | None:
        """What a budget leaves, once the model is saved, for what can be done without; None where there is no budget."""
        if self.budget is None:
            return None
        return self.budget.deadline - self.clock() - 1.05 * self.reserve.save_seconds - EXIT_SECONDS

    def is_late(self) -> bool:
        """Whether a budget, if there is one, leaves only the time to save: the machine was slower than measured."""
        return self.clock() >= self.scoring_end()

    def is_validation_due(self, state: RunState, *, epoch_before: int) -> bool:
        """Every so many steps; else once a pass; under a budget as often as costs little."""
        if self.config.validate_steps is not None:
            return state.step % self.config.validate_steps == 0
        if self.budget is not None:
            cost = self.reserve.validation_seconds
            interval = max(cost / VALIDATION_SHARE, 0.05 * self.budget.seconds)
            return self.clock() - self._validated_at > interval and self.has_time(besides=2 * cost)
        return state.position.epoch > epoch_before or state.step % LONG_EPOCH == 0

    def is_save_due(self, state: RunState) -> bool:
        """Every so many steps; else every minute and at the end of a pass, or less often where saving takes long."""
        if self.config.checkpoint_steps is not None and state.step % self.config.checkpoint_steps == 0:
            return True
        since = self.clock() - self._saved_at
        is_cheap = since > self.reserve.save_seconds / SAVE_SHARE
        is_edge = state.position.offset == 0 and state.position.block == 0
        return is_cheap and (is_edge or since > self.config.checkpoint_seconds)

    def note_save(self, began: float) -> None:
        """A checkpoint was written."""
        self._saved_at = self.clock()
        self.reserve.save_seconds = max(self.reserve.save_seconds, self._saved_at - began)

    def note_validation(self, began: float) -> None:
        """All of the validation text was read."""
        self._validated_at = self.clock()
        self.reserve.validation_seconds = self._validated_at - began

    def eta(self, state: RunState) -> float | None:
        """Seconds to the end; None where that is open, or before anything can be said."""
        if self.budget is not None:
            return max(0.0, self.budget.deadline - self.clock())
        fraction, now = self.fraction(state), self.clock()
        if self._first is None:
            self._first = (fraction, now)
        if not self.has_end or fraction <= self._first[0]:
            return None
        return (now - self._first[1]) * (1.0 - fraction) / (fraction - self._first[0])
