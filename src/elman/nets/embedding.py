"""Word embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from elman.core.arrays import Array
from elman.nets.dropout import drop_words
from elman.nets.int8 import Int8Matrix

SMALL = 0.05  # bound of random vectors


class Embedding(Module):
    """A vector for each word of the vocabulary: learned, or read from a file and fine-tuned or frozen."""

    int8_weights = ("weight",)
    weight: Tensor

    def __init__(self, vocab_size: int, size: int, *, is_frozen: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.width = size
        weight = torch.zeros(vocab_size, size, dtype=dtype)
        if is_frozen:
            self.register_buffer("weight", weight)
        else:
            self.weight = Parameter(weight)

    @property
    def floats(self) -> Tensor:
        """A tensor of the type of its vectors, on their device."""
        return self.weight.scales if isinstance(self.weight, Int8Matrix) else self.weight

    def initialise(self, rng: torch.Generator, vectors: Array | None, *, bound: float = SMALL) -> None:
        """Random vectors, uniform in +-bound, or the given ones; a NaN row is a word missing from the file."""
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=rng)
            if vectors is not None:
                given = torch.from_numpy(vectors).to(self.weight.dtype)
                self.weight.copy_(torch.where(given.isnan(), self.weight, given))

    def forward(self, tokens: Tensor, word_drop: float = 0.0) -> Tensor:
        """-> (..., E)"""
        if isinstance(self.weight, Int8Matrix):
            return self.weight.rows(tokens)
        return drop_words(self.weight, tokens, word_drop)
