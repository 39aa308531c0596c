"""One property of the table: what is measured, the figure to hit, and how long measuring it may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SHOWN_FAILURES = 5


@dataclass(frozen=True)
class Allowance:
    """What a measurement may use: so many seconds, a folder of its own, and a seed for whatever is drawn."""

    seconds: float
    folder: Path
    seed: int = 0
    is_full: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.began + self.seconds - time.monotonic()

    def until_spent(self, cases: Iterable[T]) -> Iterator[T]:
        """The cases, as many as fit into the time; at least one."""
        for number, case in enumerate(cases):
            if number and self.left <= 0:
                return
            yield case


@dataclass(frozen=True)
class Figure:
    """What was measured. `failures`: the first few cases that went wrong, for whoever looks into it.

    is_short: nothing failed, but fewer cases were tried than the figure to hit asks for.
    """

    text: str
    is_passed: bool
    failures: tuple[str, ...] = ()
    is_short: bool = False


class NotMeasurableError(Exception):
    """This machine or this installation cannot measure the row, for the reason given."""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    number: int
    name: str
    target: str
    measure: Callable[[Allowance], Figure]
    seconds: float  # of a short run
    full_seconds: float  # of a release's run
    is_alone: bool = True  # it takes both processors, or measures milliseconds: no other row is measured meanwhile


class Count:
    """Counts cases and keeps the first failures."""

    def __init__(self) -> None:
        self.num_cases = 0
        self.num_failed = 0
        self.failures: list[str] = []

    def add(self, failure: str | None) -> None:
        """One more case; None if it went well."""
        self.num_cases += 1
        if failure is not None:
            self.num_failed += 1
            if len(self.failures) < SHOWN_FAILURES:
                self.failures.append(failure)

    def add_good(self, number: int) -> None:
        """So many more cases that went well."""
        self.num_cases += number

    def figure(self, text: str = "", *, least: int = 1) -> Figure:
        """`12/12`, and the text; passed if nothing failed, short if fewer than the least number of cases were tried."""
        good = self.num_cases - self.num_failed
        text = f"{good:,}/{self.num_cases:,}{text}"
        return Figure(text, not self.num_failed, tuple(self.failures), self.num_cases < least)
