"""The negative samples of a sampled criterion. Numpy only.

Every word is drawn independently, with probability min(1, c count^alpha), c such that about `samples` words are drawn. So
no word is drawn twice, the probability of each is known exactly, and with as many samples as words all are drawn.
"""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError

# The published choices: unigram frequencies for NCE, flatter for the others, the BlackOut paper's for 64,000 words.
ALPHAS = {"sampled": 0.75, "nce": 1.0, "blackout": 0.4}
MIN_SAMPLES = 512  # fewest words drawn by default, if the vocabulary has as many
VOCAB_DIVISOR = 16  # by default a sixteenth of the vocabulary is drawn


def choose_samples(vocab_size: int, wanted: int | None = None) -> int:
    """How many words to draw: as set, or a sixteenth of the vocabulary and at least 512."""
    if wanted is not None and wanted > vocab_size:
        raise UsageError(
            f"model.samples={wanted} exceeds the vocabulary ({vocab_size} words)",
            code="bad-value",
            hint="use fewer samples, or model.head=full",
        )
    return wanted or min(vocab_size, max(MIN_SAMPLES, vocab_size // VOCAB_DIVISOR))


def inclusion_chances(counts: Array, samples: int, alpha: float) -> Array:
    """The probability of each word to be drawn, summing to `samples`; an unseen word counts as seen once. -> (V,)"""
    sizes = np.maximum(np.asarray(counts, dtype=np.float64), 1.0) ** alpha
    chances = np.zeros(len(sizes))
    certain = np.zeros(len(sizes), dtype=bool)
    while True:  # each round the words above 1 are clipped, and their excess goes to the others
        left = samples - int(certain.sum())
        chances = np.where(certain, 1.0, sizes * (left / max(sizes[~certain].sum(), 1e-300)))
        above = (chances >= 1.0) & ~certain
        if not above.any():
            return chances
        certain |= above


def log_frequencies(counts: Array) -> Array:
    """Log relative frequency of each word; an unseen word counts as seen once. -> (V,)"""
    seen = np.maximum(np.asarray(counts, dtype=np.float64), 1.0)
    return np.asarray(np.log(seen / seen.sum()))
