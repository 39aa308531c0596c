"""Drawings on a terminal: lines of pieces with shades."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elman.cli import terminal
from elman.core.screen import escape

if TYPE_CHECKING:
    from elman.explain.explanation import Line


def print_drawing(drawing: Sequence[Line]) -> None:
    """The drawing, in colours on a terminal."""
    fancy = terminal.is_fancy(sys.stdout)
    for line in drawing:
        print("".join(coloured(span.text, span.shade) if fancy else span.text for span in line).rstrip())


def coloured(text: str, shade: float) -> str:
    """Text on orange for positive shades, on blue for negative ones; the larger, the stronger."""
    strength = min(1.0, abs(shade))
    if strength < 0.02:
        return escape(text)
    end = (230, 97, 1) if shade > 0 else (33, 102, 172)
    red, green, blue = (round(255 + (part - 255) * strength) for part in end)
    ink = "30" if 0.3 * red + 0.6 * green + 0.1 * blue > 110 else "97"
    return f"\x1b[48;2;{red};{green};{blue};{ink}m{escape(text)}\x1b[0m"
