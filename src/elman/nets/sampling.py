"""Which words a sampled criterion compares its targets with. Numpy only.

Every word is drawn on its own, with probability min(1, c count^alpha), c so that about `samples` words are drawn. So no
word is drawn twice, the chance of each is known exactly, and with as many samples as words all of them are there.
"""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError

# The classic choices: words as they occur for NCE, flatter for the others, BlackOut's own for a vocabulary of 64,000.
ALPHAS = {"sampled": 0.75, "nce": 1.0, "blackout": 0.4}
FEWEST, PART = 512, 16  # words, or this part of the vocabulary


def choose_samples(vocab_size: int, wanted: int | None = None) -> int:
    """How many words to draw: what was asked for, or a sixteenth of the vocabulary and at least 512."""
    if wanted is not None and wanted > vocab_size:
        raise UsageError(
            f"model.samples={wanted} is more than the vocabulary has words ({vocab_size})",
            hint="fewer samples, or model.head=full, which takes all words",
        )
    return wanted or min(vocab_size, max(FEWEST, vocab_size // PART))


def inclusion_chances(counts: Array, samples: int, alpha: float) -> Array:
    """The probability of each word to be drawn. They sum to `samples`, and a word never seen counts as seen once. -> (V,)"""
    sizes = np.maximum(np.asarray(counts, dtype=np.float64), 1.0) ** alpha
    chances = np.zeros(len(sizes))
    certain = np.zeros(len(sizes), dtype=bool)
    while True:  # each round some of the most frequent words reach one and leave their rest to the others
        left = samples - int(certain.sum())
        chances = np.where(certain, 1.0, sizes * (left / max(sizes[~certain].sum(), 1e-300)))
        above = (chances >= 1.0) & ~certain
        if not above.any():
            return chances
        certain |= above


def log_frequencies(counts: Array) -> Array:
    """log of how often each word occurs; never seen counts as once. -> (V,)"""
    seen = np.maximum(np.asarray(counts, dtype=np.float64), 1.0)
    return np.asarray(np.log(seen / seen.sum()))
