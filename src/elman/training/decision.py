"""What a run does next: step, validate, roll back, finish or stop. The only place where it is decided that a run is over.

Everything that can end a run is asked here: signals, patience, the budget, the number of steps, and weights that became
NaN. The answer is a plain value: of several processes the first decides and sends its decision to the others.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from elman.core.errors import UsageError
from elman.training.pace import Pace
from elman.training.run_state import RunState

Action = Literal["step", "validate", "roll back", "finish", "stop"]


@dataclass(frozen=True)
class Decision:
    """What to do next."""

    action: Action
    reason: str = ""  # for the user, where the run is rolled back or over
    signum: int | None = None  # of the signal that stops the run
    fraction: float = 0.0  # of the run that is done, by the clock of the process that decides

    @property
    def is_over(self) -> bool:
        """Whether there will be no more steps, because all is done or because a signal came."""
        return self.action in ("finish", "stop")


def decide(
    state: RunState, *, pace: Pace, signum: int | None, describe_bad_weight: Callable[[], str | None]
) -> Decision:
    """What to do next. A signal comes first, then the end of the run, then a validation that is due.

    signum: of the signal that this process, or one that trains with it, has caught, if any.
    describe_bad_weight: a sentence about a weight that is NaN or infinite, or None. It reads all weights, so it is called
    only before a run ends; in between, the loss of the next step shows it.
    """
    decision = _decide_by_state(state, pace, signum)
    if decision.is_over and (bad := describe_bad_weight()) is not None:
        return Decision("roll back", bad)
    return decision


def _decide_by_state(state: RunState, pace: Pace, signum: int | None) -> Decision:
    patience = pace.config.patience
    if signum is not None:
        return Decision("stop", f"stopped by {signal.Signals(signum).name}", signum)
    if patience is not None and state.stale >= patience:
        return Decision("finish", f"{state.stale} validations without a gain")
    if not pace.has_time():
        return Decision("finish", "the budget is used up")
    if pace.has_made_all_steps(state):
        return Decision("finish", "all steps are done")
    return Decision("validate" if state.is_validation_due else "step", fraction=pace.fraction(state))


def should_interrupt(pace: Pace, *, signum: int | None) -> bool:
    """Whether a validation has to be left unfinished: a signal came, or there is only the time left to save."""
    return signum is not None or pace.is_late()


def require_an_end(*, has_end: bool, has_validation: bool) -> None:
    """Refuse a run that nothing would ever end."""
    if not has_end and not has_validation:
        raise UsageError(
            "without validation text there is no telling when to stop",
            code="missing-option",
            hint="give --budget, --epochs or --valid",
        )
