"""Where a generated text ends: at the first of its stop texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elman.core.errors import UsageError


class StopTexts:
    """Finds the first stop text in a growing text; what may be the beginning of one is held back until it is not."""

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise UsageError("a stop text is empty", code="bad-value", hint="give at least one character")
        self._stops = stops
        self._held = ""
        self.is_found = False

    def push(self, piece: str) -> str:
        """The text that is certain to stand before any stop text."""
        held = self._held + piece
        found = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        if found:
            self._held, self.is_found = "", True
            return held[: min(found)]
        keep = max(
            (size for stop in self._stops for size in range(1, len(stop)) if held.endswith(stop[:size])), default=0
        )
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        """What was held back, now that the text has ended."""
        held, self._held = self._held, ""
        return held


def until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The text of the pieces up to the first stop text."""
    found = StopTexts(stops)
    for piece in pieces:
        if ready := found.push(piece):
            yield ready
        if found.is_found:
            return
    if held := found.finish():
        yield held
