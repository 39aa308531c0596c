"""One hypothesis of an n-best list, and what a layout of such lists has to say of itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Hypothesis(NamedTuple):
    """One line of a list."""

    id: str  # of its list
    score: float  # the higher the better
    text: str
    place: str = ""  # `line 12 of nbest.tsv`
    rest: str = ""  # what else its layout says of it


@dataclass(frozen=True)
class Layout:
    """How lists are written down."""

    name: str
    write: Callable[[Hypothesis, float, float], str]  # a line, given the new score and the model's log-probability


def finite_number(text: str) -> float | None:
    """The number that a text says; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def write_tsv(hypothesis: Hypothesis, total: float, log_prob: float) -> str:
    """`id TAB score TAB text`"""
    return f"{hypothesis.id}\t{total:.6f}\t{hypothesis.text}"
