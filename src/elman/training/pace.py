"""The timing of a run: how much of it is done, how much time is left, when a validation or a checkpoint is due."""

from __future__ import annotations

import math

from elman.training.budget import Budget, Clock, Reserve, check_feasible, training_end
from elman.training.config import TrainConfig
from elman.training.protocols import Batches
from elman.training.run_state import RunState
from elman.training.speed import Meter

# A long pass over the corpus is validated after every so many steps, not only at its end.
LONG_EPOCH_STEPS = 5_000
# Validations before the last one take at most this share of a budget.
VALIDATION_SHARE = 0.025
# Under a budget there is at least this share of it between two validations.
VALIDATION_INTERVAL = 0.05
# Checkpoints take at most this share of the time.
SAVE_SHARE = 0.02
# This share of the epochs counts as all of them: sums of fractions are not exact.
ALL_EPOCHS = 1.0 - 1e-9


class Pace:
    """The clock of a run. Time already spent in earlier processes counts."""

    def __init__(
        self,
        config: TrainConfig,
        batches: Batches,
        *,
        budget: Budget | None,
        clock: Clock,
        spent: float,
        finishing_seconds: float = 0.0,
    ) -> None:
        self.config = config
        self.batches = batches
        self.clock = clock
        self.budget = budget.after(spent) if budget is not None else None
        self.reserve = Reserve(finishing_seconds)
        self.meter = Meter()
        self.validates = True  # whether there is time to, and anything to choose by it
        self.step_estimate = 0.0  # seconds that a step should take; used until one was timed
        self._origin = clock() - spent
        self._saved_at = self._validated_at = clock()
        self._eta_start: tuple[float, float] | None = None  # fraction and time when the end was first estimated

    @property
    def has_end(self) -> bool:
        """Whether it is known where the run ends; otherwise the validation loss decides."""
        return self.budget is not None or self.config.epochs is not None or self.config.steps is not None

    def spent(self) -> float:
        """Seconds of this run so far; under a budget, since its process began."""
        return self.clock() - (self._origin if self.budget is None else self.budget.started)

    def epochs(self, state: RunState) -> float:
        """Passes over the corpus, with the fraction of the current one."""
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

    def has_made_all_steps(self, state: RunState) -> bool:
        """Whether the epochs or the steps that were asked for are done."""
        epochs, steps = self.config.epochs, self.config.steps
        if epochs is not None and self.epochs(state) >= epochs * ALL_EPOCHS:
            return True
        return steps is not None and state.step >= steps

    def has_time(self, *, besides: float = 0.0) -> bool:
        """Whether a budget, if there is one, has room for one more step and for so many seconds besides."""
        if self.budget is None:
            return True
        next_step = self.meter.slowest or self.step_estimate
        return self.clock() + next_step + besides <= training_end(self.budget, self.reserve)

    def refuse_short_budget(self) -> None:
        """Raise an error if the budget, if there is one, has no room for a single step."""
        if self.budget is not None:
            check_feasible(self.budget, self.reserve, now=self.clock(), step_seconds=self.step_estimate)

    def evaluation_end(self) -> float:
        """When the final evaluation has to be done, so that the run can still be saved in time."""
        if self.budget is None:
            return math.inf
        kept = Reserve(self.reserve.finishing_seconds, save_seconds=self.reserve.save_seconds * 2 / 3)
        return training_end(self.budget, kept)

    def spare_seconds(self) -> float | None:
        """What a budget leaves after saving the model, for optional work; None where there is no budget."""
        if self.budget is None:
            return None
        return self.budget.deadline - self.clock() - 1.05 * self.reserve.save_seconds - self.budget.exit_seconds

    def is_late(self) -> bool:
        """Whether a budget, if there is one, leaves only the time to save: the machine was slower than measured."""
        return self.clock() >= self.evaluation_end()

    def is_validation_due(self, state: RunState, *, epoch_before: int) -> bool:
        """Every `validate_steps`; else under a budget as often as costs little; else after every pass."""
        if self.config.validate_steps is not None:
            return state.step % self.config.validate_steps == 0
        if not self.validates:
            return False
        if self.budget is not None:
            cost = self.reserve.validation_seconds
            interval = max(cost / VALIDATION_SHARE, VALIDATION_INTERVAL * self.budget.seconds)
            return self.clock() - self._validated_at > interval and self.has_time(besides=2 * cost)
        return state.position.epoch > epoch_before or state.step % LONG_EPOCH_STEPS == 0

    def is_save_due(self, state: RunState) -> bool:
        """Every `checkpoint_steps`; else every minute and after a pass, or less often where saving takes long."""
        if self.config.checkpoint_steps is not None and state.step % self.config.checkpoint_steps == 0:
            return True
        since = self.clock() - self._saved_at
        is_cheap = since > self.reserve.save_seconds / SAVE_SHARE
        is_edge = state.position.offset == 0 and state.position.block == 0
        return is_cheap and (is_edge or since > self.config.checkpoint_seconds)

    def record_save(self, began: float) -> None:
        """A checkpoint was written, begun at this time."""
        self._saved_at = self.clock()
        self.reserve.save_seconds = max(self.reserve.save_seconds, self._saved_at - began)

    def record_validation(self, began: float) -> None:
        """All of the validation data was read, begun at this time."""
        self._validated_at = self.clock()
        self.reserve.validation_seconds = self._validated_at - began

    def eta(self, state: RunState) -> float | None:
        """Estimated seconds to the end; None where the end is open, or before anything was measured."""
        if self.budget is not None:
            return max(0.0, self.budget.deadline - self.clock())
        fraction, now = self.fraction(state), self.clock()
        if self._eta_start is None:
            self._eta_start = (fraction, now)
        if not self.has_end or fraction <= self._eta_start[0]:
            return None
        return (now - self._eta_start[1]) * (1.0 - fraction) / (fraction - self._eta_start[0])
