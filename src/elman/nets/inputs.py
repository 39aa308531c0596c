"""What a net is made from besides its settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from elman.core.arrays import Array


@dataclass(frozen=True)
class NetInputs:
    """The words of a net, what is known of them, and where its weights come from. V vocabulary · E width of a word"""

    vocab_size: int
    rng: torch.Generator | None = None  # draws the weights; without it they are zero, to be loaded
    counts: Array | None = None  # (V,), how often each word was seen in training
    vectors: Array | None = None  # (V, E), word vectors to begin with, NaN for words without one
    usual_length: float = 1.0  # tokens of a text, to estimate the work
    dtype: torch.dtype = torch.float32

    @classmethod
    def to_load(cls, words: Array, vocab_size: int | None = None) -> NetInputs:
        """For a net whose saved word vectors these are, (V, E): all other weights are loaded too."""
        return cls(len(words) if vocab_size is None else vocab_size, dtype=dtype_of(words))


def dtype_of(array: Array) -> torch.dtype:
    """The numbers that a model computes in whose tensors these are."""
    return torch.float64 if array.dtype == np.float64 else torch.float32
