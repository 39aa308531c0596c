"""A recurrent net with weights of 8 bits, as a language model. It cannot be trained, and has no gradients to explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Self

import torch

from elman.core.arrays import Array
from elman.nets.inputs import NetInputs
from elman.nets.int8 import to_int8
from elman.nets.neural_lm import NeuralState
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel


class Int8Model:
    """See `LanguageModel`."""

    def __init__(self, net: RecurrentModel) -> None:
        self._net = net
        self.vocab_size = net.vocab_size

    @classmethod
    def of(cls, net: RecurrentModel) -> Self:
        """A trained net with its weights rounded."""
        rounded = deepcopy(net).to(torch.float32)
        to_int8(rounded)
        return cls(rounded)

    @classmethod
    def from_tensors(
        cls, config: RecurrentConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> Self:
        """The model whose settings and `tensors()` these were."""
        net = RecurrentModel(config, NetInputs(vocab_size), reset_lines=reset_lines)
        net.take_ngrams(tensors)
        to_int8(net)
        net.load_tensors(tensors)
        return cls(net)

    def tensors(self) -> dict[str, Array]:
        """Every rounded matrix as its integers and scales, and the rest as it was."""
        return self._net.tensors()

    def start(self, rows: int) -> NeuralState:
        """As if the end of a line had just been read."""
        return self._net.start(rows)

    def predict(self, state: NeuralState) -> Array:
        """-> (B, V)"""
        return self._net.predict(state)

    def advance(self, tokens: Array, state: NeuralState) -> NeuralState:
        """Read one token per row."""
        return self._net.advance(tokens, state)

    def score(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, NeuralState]:
        """Log-probability of each token, 0 at padding, and the new state."""
        return self._net.score(tokens, lengths, state)

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of several states as one batch."""
        return self._net.join(states)

    def features(self, state: NeuralState) -> Array:
        """The hidden vector that the output head reads. -> (B, P)"""
        return self._net.features(state)

    def score_features(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, Array, NeuralState]:
        """Like `score`, with the features that each token was predicted from in the middle, (B, T, P)."""
        return self._net.score_features(tokens, lengths, state)
