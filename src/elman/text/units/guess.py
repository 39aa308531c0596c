"""Guesses the units of a text from its beginning, with a reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elman.text.units.vocabulary import UNK

SAMPLE_BYTES = 1 << 20  # bytes of the text to look at
_ATTACHED = re.compile(r"(?:^|\s)[^\s\w]*\w[\w'’-]*[.,;:!?”\")]+(?=\s|$)")  # a word with its punctuation
_ALONE = re.compile(r"(?:^|\s)[.,;:!?](?=\s|$)")  # punctuation by itself


@dataclass(frozen=True)
class Guess:
    """Units, and the reason for them as a clause."""

    units: str
    why: str


def guess_units(sample: bytes) -> Guess:
    """The units for a text with this beginning (whole lines, UTF-8)."""
    text = sample.decode(errors="replace")
    symbols = text.split()
    if UNK in symbols:
        return Guess("space", f"it contains {UNK}, so it is tokenised already")
    lines = [line for line in text.split("\n") if line.strip()]
    per_line = len(symbols) / max(1, len(lines))
    mean_length = sum(map(len, symbols)) / max(1, len(symbols))
    num_types = len(set(symbols))
    if mean_length > 20:
        return Guess("char", f"it has hardly any spaces (one every {mean_length:.0f} characters)")
    if per_line < 1.5 and num_types > len(symbols) / 2:
        return Guess("char", "most lines are one word, and most words occur once")
    attached, alone = len(_ATTACHED.findall(text)), len(_ALONE.findall(text))
    if alone > 4 * attached:
        return Guess("space", "punctuation stands by itself in it, so it is tokenised already")
    if attached < len(symbols) / 1000:
        return Guess("space", "no punctuation is attached to its words, so spaces separate them")
    return Guess("word", "it is running text, punctuation attached to words")
