"""Text for people to look at: what a terminal can show, and numbers as people write them."""

from __future__ import annotations

import os
from typing import IO


def is_fancy(stream: IO[str]) -> bool:
    """Whether colour and moving bars make sense there (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def escape(text: str, *, keep: str = "\n\t") -> str:
    """The text with control characters made visible: a corpus must not be able to steer a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def format_float(value: float) -> str:
    """A number as people write it."""
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4f}"
