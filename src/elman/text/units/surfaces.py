"""The words of a line as they stand in it, one for each token: what an unknown one was."""

from __future__ import annotations

import re

from elman.text.units.letters import SPACE_MARK, split_words

_WHITESPACE = re.compile(r"[ \t\n\v\f\r]+")


def surfaces(line: str, units: str) -> list[str] | None:
    """A word for each token of the line; None for units whose tokens are not words."""
    match units:
        case "space":
            return [symbol for symbol in _WHITESPACE.split(line) if symbol]
        case "word":
            return [word.replace(SPACE_MARK, "") for word in split_words(line)]
        case _:
            return None
