"""Special tokens, and the rule that chooses the words of a vocabulary."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array

UNK = "<unk>"
EOS = "</s>"
BOS = "<s>"  # never a token: start symbols are internal to models
UNK_ID = 0
EOS_ID = 1


def by_frequency(counts: Array) -> Array:
    """Every symbol but the first two, by descending frequency, ties by number."""
    symbols = np.arange(EOS_ID + 1, len(counts))
    return symbols[np.argsort(-counts[symbols].astype(np.int64), kind="stable")]


def choose_words(counts: Array, *, min_count: int, max_words: int) -> Array:
    """The words of the vocabulary, by descending frequency.

    counts: count of each symbol in the training text, numbered by first appearance. -> numbers
    If the text contains <unk>, all its other words are in the vocabulary. Otherwise a word must occur min_count times,
    and there are at most max_words.
    """
    words = by_frequency(counts)
    if counts[UNK_ID] > 0:
        return words[counts[words] > 0]
    return words[counts[words] >= min_count][:max_words]
