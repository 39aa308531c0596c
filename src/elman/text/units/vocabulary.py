"""The symbols a model knows, by number: the two that are the same everywhere, and the rule that chooses the rest."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array

UNK = "<unk>"
EOS = "</s>"
BOS = "<s>"  # never a token: models keep their start symbol inside, no caller sees it
UNK_ID = 0
EOS_ID = 1


def by_frequency(counts: Array) -> Array:
    """Every symbol but the first two, the most frequent first; of equal ones the one with the lower number."""
    symbols = np.arange(EOS_ID + 1, len(counts))
    return symbols[np.argsort(-counts[symbols].astype(np.int64), kind="stable")]


def choose_words(counts: Array, *, min_count: int, max_words: int) -> Array:
    """The words to know, the most frequent first.

    counts: how often each symbol is in the training text, by number, in order of first appearance. -> numbers
    A text that has <unk> itself says by that which words are known: all the others in it. Otherwise a word must be
    there min_count times, and there are at most max_words.
    """
    words = by_frequency(counts)
    if counts[UNK_ID] > 0:
        return words[counts[words] > 0]
    return words[counts[words] >= min_count][:max_words]
