"""Surface forms: the words of a line as written, one for each token, to copy unknown words."""

from __future__ import annotations

import re

from elman.text.units.letters import SPACE_MARK, split_words

_WHITESPACE = re.compile(r"[ \t\n\v\f\r]+")


def surfaces(line: str, units: str) -> list[str] | None:
    """The surface form of each token of the line; None for units whose tokens are not words."""
    match units:
        case "space":
            return [symbol for symbol in _WHITESPACE.split(line) if symbol]
        case "word":
            return [word.replace(SPACE_MARK, "") for word in split_words(line)]
        case _:
            return None
