"""Where a generated text ends: at the first of its stop texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elman.core.errors import UsageError


def until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The text of the pieces up to the first stop text; what may be the beginning of one is held back until it is not."""
    if any(not stop for stop in stops):
        raise UsageError("a stop text is empty", hint="give at least one character")
    held = ""
    for piece in pieces:
        held += piece
        found = [place for stop in stops if (place := held.find(stop)) >= 0]
        if found:
            yield held[: min(found)]
            return
        keep = max((size for stop in stops for size in range(1, len(stop)) if held.endswith(stop[:size])), default=0)
        if ready := held[: len(held) - keep]:
            yield ready
        held = held[len(held) - keep :]
    if held:
        yield held
