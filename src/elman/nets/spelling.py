"""Word vectors computed from characters. Knows neither vocabularies nor tasks.

C characters · U words · E width of a character · D width of a word
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Conv1d, Module

from elman.nets.embedding import Embedding
from elman.nets.encoder import BidirectionalStack, Encoding, make_cell
from elman.nets.layer import draw_weights

FILTER_WIDTH = 3  # characters that a convolution filter sees


class CharacterEncoder(Module):
    """Characters read by a bidirectional LSTM (Ling et al. 2015), or by a convolution with max-pooling."""

    def __init__(
        self, kind: Literal["rnn", "cnn"], num_characters: int, *, embedding: int, hidden: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.output_width = 2 * hidden
        self.embedding = Embedding(num_characters, embedding, is_frozen=False, dtype=dtype)
        self.stack: BidirectionalStack | None = None
        self.filters: Conv1d | None = None
        if kind == "rnn":
            make = partial(make_cell, "lstm", hidden=hidden, dtype=dtype)
            self.stack = BidirectionalStack(make, inputs=embedding, hidden=hidden, dtype=dtype)
        else:
            self.filters = Conv1d(embedding, 2 * hidden, FILTER_WIDTH, padding=FILTER_WIDTH // 2, dtype=dtype)

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        self.embedding.initialise(rng, None)
        with torch.no_grad():  # characters are few and all frequent: start at the scale that layers expect
            self.embedding.weight.mul_(20 * (3 / self.embedding.width) ** 0.5)
        if self.stack is not None:
            self.stack.initialise(rng)
        if self.filters is not None:
            bias = self.filters.bias
            assert bias is not None
            draw_weights(rng, self.filters.weight, bias, inputs=self.embedding.width * FILTER_WIDTH)

    def forward(self, characters_UC: Tensor, lengths_U: Tensor) -> Tensor:
        """-> (U, D); zeros for a word without characters"""
        if self.stack is not None:
            encoding: Encoding = self.stack(self.embedding(characters_UC.t()), lengths_U)
            return encoding.last()
        assert self.filters is not None
        is_character_UC = torch.arange(characters_UC.shape[1], device=lengths_U.device) < lengths_U[:, None]
        values_UCE = self.embedding(characters_UC) * is_character_UC[:, :, None]
        found_UDC = F.relu(self.filters(values_UCE.transpose(1, 2))) * is_character_UC[:, None]  # never below zero
        return found_UDC.amax(2)

    def multiply_adds(self) -> float:
        """Multiply-adds for one character."""
        if self.stack is not None:
            return self.stack.multiply_adds()
        assert self.filters is not None
        return float(self.filters.weight.numel())
