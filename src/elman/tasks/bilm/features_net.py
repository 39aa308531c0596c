"""What a trained pair of language models makes of words in their sentences, for nets that learn something else.

B rows · T words · L layers · H hidden, of one direction
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.nets.config import RecurrentConfig
from elman.nets.vocabulary_net import load_tensors
from elman.tasks.bilm.net import BilmModel


class BilmFeatures(BilmModel):
    """The layers of a `BilmModel`, without what predicts words. Nothing in it ever learns.

    tensors: those of such a model, without the ones of its heads.
    """

    def __init__(
        self, config: RecurrentConfig, tensors: Mapping[str, Array], *, dtype: torch.dtype = torch.float32
    ) -> None:
        vocab_size = len(tensors["onward.embedding.weight"])
        super().__init__(config, vocab_size=vocab_size, reset_lines=False, rng=None, dtype=dtype)
        del self.onward.head, self.backward.head
        load_tensors(self, tensors)
        self.requires_grad_(False)

    @property
    def width(self) -> int:
        """Of a word's vector, in each layer."""
        return 2 * self.config.hidden

    def forward(self, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """-> (L, B, T, 2 H), without gradients"""
        with torch.no_grad():
            return self.features(words_BT, lengths_B)

    def multiply_adds(self) -> float:
        """Of one word."""
        return self.onward.stack.multiply_adds() + self.backward.stack.multiply_adds()
