"""Time budgets: a bound from the start of the process to the saved model. Knows no models; the clock is handed in."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from elman.core.errors import UsageError

Clock = Callable[[], float]
_IMPORTED = time.monotonic()
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# Seconds that a process needs to exit, where it has a core of its own.
EXIT_SECONDS = 0.25
# Share of a budget that is kept free for errors of measurement.
EXIT_SHARE = 0.004


def parse_duration(text: str | float) -> float:
    """Seconds in `90`, `90s`, `10m`, `1h30m`, `2d`."""
    text = str(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
    if not parts or not re.fullmatch(r"(\s*\d+(\.\d+)?\s*[smhd]?)+\s*", text):
        raise UsageError(f"{text!r} is no duration", code="bad-value", hint="write it like 90s, 10m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise UsageError(
            f"a budget of {text} is no time at all", code="bad-value", hint="write it like 90s, 10m or 1h30m"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """A duration as people write it: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def process_started(stat: Path = Path("/proc/self/stat")) -> float:
    """When this process began, on the clock of time.monotonic(): before any Python code ran."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # field 22 of proc(5): start time after boot
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return time.monotonic() - max(0.0, age)


def measure_crowding() -> float:
    """How many processes want each core, from 1 to 8: so many times longer may take what was measured before they came."""
    try:
        return min(8.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    except OSError:
        return 1.0


@dataclass(frozen=True)
class Budget:
    """A run may take so many seconds from `started` on the clock to the saved model. crowding: see `measure_crowding`."""

    seconds: float
    started: float
    crowding: float = 1.0

    @property
    def exit_seconds(self) -> float:
        """Kept free for the end of the process, and for errors of measurement."""
        return self.crowding * (EXIT_SECONDS + EXIT_SHARE * self.seconds)

    @property
    def deadline(self) -> float:
        return self.started + self.seconds

    def spent(self, now: float) -> float:
        """Seconds used so far."""
        return now - self.started

    def after(self, spent: float) -> Budget:
        """The budget of a resumed run, of which so many seconds were spent in earlier processes."""
        return replace(self, started=self.started - spent)


@dataclass
class Reserve:
    """How long the end of a run takes, as measured during it: the last validation, the final evaluation, saving."""

    finishing_seconds: float = 0.0  # what the task does with the trained net; the only one that is known before
    save_seconds: float = 0.0  # one checkpoint; two are written at the end, and the model, which takes no longer
    validation_seconds: float = 0.0  # all of the held-out data, in batches
    temperature_seconds: float = 0.0  # fitting the temperature of the softmax
    exact_seconds: float = 0.0  # scoring the held-out text as `evaluate` does

    def total(self, budget: Budget) -> float:
        """Seconds that steps must leave at the end of the budget."""
        work = 3 * self.save_seconds + self.validation_seconds + self.temperature_seconds + self.exact_seconds
        return (1.0 + 0.05 * budget.crowding) * work + self.finishing_seconds + budget.exit_seconds


def training_end(budget: Budget, reserve: Reserve) -> float:
    """The time at which the last step has to be done."""
    return budget.deadline - reserve.total(budget)


def check_feasible(budget: Budget, reserve: Reserve, *, now: float, step_seconds: float) -> None:
    """Refuse a budget in which not even one step fits."""
    if now + step_seconds <= training_end(budget, reserve):
        return
    needed = budget.spent(now) + 10 * step_seconds + reserve.total(budget)
    raise UsageError(
        f"a budget of {format_duration(budget.seconds)} is too short: starting took "
        f"{format_duration(budget.spent(now))}, a step takes {format_duration(step_seconds)}, "
        f"and the end {format_duration(reserve.total(budget))}",
        code="budget-too-short",
        hint=f"give at least {format_duration(1.2 * needed + 1)}, or a smaller model",
    )
