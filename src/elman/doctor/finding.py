"""One thing that an examination found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from elman.core.errors import ElmanError


@dataclass(frozen=True)
class Finding:
    """A sentence, and what to do where something is to be done."""

    level: Literal["fine", "note", "wrong"]
    what: str
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        """By the names of its fields."""
        return asdict(self)


def fine(what: str) -> Finding:
    """As it should be."""
    return Finding("fine", what)


def note(what: str, remedy: str | None = None) -> Finding:
    """Nothing is broken, but it is good to know."""
    return Finding("note", what, remedy)


def wrong(what: str, remedy: str | None = None) -> Finding:
    """Something does not work as it is."""
    return Finding("wrong", what, remedy)


def wrong_by(error: ElmanError) -> Finding:
    """What an error says."""
    return Finding("wrong", error.what, error.hint)
