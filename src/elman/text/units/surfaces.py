"""The words of a text as they stand in it: what an unknown token was."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import numpy as np

from elman.core.arrays import Array
from elman.text.units.chunks import cut_at_whitespace
from elman.text.units.letters import SPACE_MARK, split_long, split_words
from elman.text.units.vocabulary import EOS_ID, UNK_ID

PIECE_CHARACTERS = 1 << 20  # of a line are split into words at once: the words of a long one do not fit into memory

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


def unknown_words(lines: bytes, ids: Array, units: str, separator: str | None) -> list[str]:
    """What stood for each UNK_ID in these whole lines, in order; nothing for units that are not words.

    In `word` units a word has the space before it as U+2581. Only lines that have an unknown word are split again.
    """
    places = np.flatnonzero(ids == UNK_ID)
    if not len(places) or units not in ("space", "word"):
        return []
    if units == "space" and separator is None:
        return [word.decode() for word in cut_at_whitespace(lines).select(places)]
    found: list[str] = []
    ends = np.flatnonzero(ids == EOS_ID)
    texts = lines.split(b"\n")
    for line in np.unique(np.searchsorted(ends, places)).tolist():
        first = int(ends[line - 1]) + 1 if line else 0
        words = _split(texts[line].decode(), separator)
        found += itertools.compress(words, ids[first : ends[line]] == UNK_ID)
    return found


def _split(line: str, separator: str | None) -> Iterable[str]:
    """The symbols of a line: between separators, or of raw text."""
    if separator is not None:
        return (symbol for symbol in line.split(separator) if symbol)
    return itertools.chain.from_iterable(split_long(line, PIECE_CHARACTERS))
