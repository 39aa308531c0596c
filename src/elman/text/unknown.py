"""The words that a text has and a vocabulary has not: their spelling costs too, where bytes are counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elman.core.arrays import Array
from elman.text.spool import Spool
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

SAMPLED_WORDS = 1 << 15  # spelling is learned from at most so many


class UnknownWords:
    """Encodes a text and keeps its unknown words in order: each distinct one once, and their numbers in a spool."""

    def __init__(self, tokenizer: Tokenizer, directory: Path | None) -> None:
        self.tokenizer = tokenizer
        self._numbers: dict[str, int] = {}
        self._order = Spool(np.uint32, directory)

    def encode(self, lines: bytes) -> Array:
        """The ids of whole lines."""
        ids = self.tokenizer.encode_lines(lines)
        if words := self.tokenizer.unknown_words(lines, ids):
            numbers = self._numbers
            self._order.append(np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.uint32))
        return ids

    def counts(self, *, skip: int = 0) -> dict[str, int]:
        """How often each was there, after the first `skip` unknown words of the text."""
        found = np.zeros(len(self._numbers), dtype=np.int64)
        for part in self._order.parts():
            found += np.bincount(part[skip:], minlength=len(found))
            skip = max(0, skip - len(part))
        self._order.close()
        return {word: count for word, count in zip(self._numbers, found.tolist(), strict=True) if count}


def sample_rare_words(symbols: Sequence[str], counts: Array, chosen: Array) -> list[str]:
    """Words like those that will be unknown.

    Of a training text's words that were not chosen, each as often as it is there, evenly drawn if they are many; where
    all were chosen, the rarer half of them once each. None of a text that has <unk> itself: how the words are spelled
    for which it stands, nobody knows.
    """
    if counts[UNK_ID]:
        return []
    is_rare = counts > 0
    is_rare[: EOS_ID + 1] = False
    is_rare[chosen] = False
    numbers = np.flatnonzero(is_rare)
    weights = counts[numbers]
    if not len(numbers):
        numbers = chosen[len(chosen) // 2 :]
        weights = np.ones(len(numbers), dtype=np.int64)
    ends = np.cumsum(weights)
    total = int(ends[-1])
    size = min(total, SAMPLED_WORDS)
    drawn = np.searchsorted(ends, np.arange(size) * total // size, side="right")
    return [symbols[number] for number in numbers[drawn].tolist()]
