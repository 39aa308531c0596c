"""What a net is made from besides its settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from elman.core.arrays import Array


@dataclass(frozen=True)
class NetInputs:
    """A net's vocabulary, its counts and pretrained vectors, and how weights are drawn. V vocabulary · E width of a word"""

    vocab_size: int
    rng: torch.Generator | None = None  # draws the weights; without it they are zero, to be loaded
    counts: Array | None = None  # (V,), how often each word was seen in training
    vectors: Array | None = None  # (V, E), pretrained word vectors, NaN for words without one
    usual_length: float = 1.0  # typical tokens per text, to estimate the cost
    dtype: torch.dtype = torch.float32

    @classmethod
    def to_load(cls, words: Array, vocab_size: int | None = None) -> NetInputs:
        """Inputs of a net whose weights will be loaded, given its saved embedding matrix, (V, E)."""
        return cls(len(words) if vocab_size is None else vocab_size, dtype=dtype_of(words))


def dtype_of(array: Array) -> torch.dtype:
    """The torch dtype of a model with such tensors."""
    return torch.float64 if array.dtype == np.float64 else torch.float32
