"""Two language models that share their words: one reads a text from its beginning, one from its end (Peters et al. 2018).

Each alone is a language model like any other. Together they give every token of a text vectors that know both of its
sides, layer by layer. B rows · T tokens · L layers · H hidden
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from elman.core.arrays import Array
from elman.nets.encoder import reverse
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors
from elman.nets.neural_lm import Carried
from elman.nets.stack import Stack
from elman.nets.trainable import Loss
from elman.nets.vocabulary_net import embedding_of, load_tensors, tensors_of
from elman.tasks.bilm.config import BilmConfig
from elman.tasks.bilm.data import BilmBatch
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.text.units.vocabulary import EOS_ID


class BilmModel(Module):
    """A forward and a backward recurrent language model with the same words at input and output."""

    def __init__(self, config: BilmConfig, inputs: NetInputs, *, reset_lines: bool) -> None:
        super().__init__()
        self.vocab_size = inputs.vocab_size
        self.onward, self.backward = (RecurrentModel(config, inputs, reset_lines=reset_lines) for _ in range(2))
        self.backward.embedding = self.onward.embedding
        self.backward.head = self.onward.head
        self.config = self.onward.config

    @classmethod
    def from_tensors(
        cls, config: BilmConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "bilm", within="onward.")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words, vocab_size), reset_lines=reset_lines)
        load_tensors(model, tensors)
        return model

    def tensors(self) -> dict[str, Array]:
        """Every number that was learned or fitted, by name; shared ones once."""
        return tensors_of(self)

    def start_training(self, rows: int) -> Carried:
        """What both carry before their first input."""
        return (*self.onward.start_training(rows), *self.backward.start_training(rows))

    def batch_loss(self, batch: BilmBatch, state: Carried | None) -> tuple[Loss, Carried]:
        """The loss of both, each on its own way through the text."""
        middle = len(state) // 2 if state else 0
        states = (state[:middle], state[middle:]) if state else (None, None)
        onward, after = self.onward.batch_loss(batch.onward, states[0])
        backward, after_backward = self.backward.batch_loss(batch.backward, states[1])
        total = 0.5 * (onward.total + backward.total)
        loss = Loss(total, onward.nats + backward.nats, onward.tokens + backward.tokens, onward.is_likelihood)
        return loss, (*after, *after_backward)

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one token in one direction, forward."""
        return self.onward.count_flops()

    @property
    def num_feature_layers(self) -> int:
        """Of `features`: the recurrent layers and, where they are as wide, the words."""
        return self.config.layers + (self.config.embedding == self.config.hidden)

    def features(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """What both make of every token, layer by layer: zeros at padding. tokens (B, T) -> (L, B, T, 2 H)

        Below the recurrent layers are the words themselves, twice, if they are as wide. Gradients flow as they are
        switched.
        """
        words_TBE = self.onward.embedding(tokens.t())
        layers = self._both(words_TBE, lengths)
        if self.config.embedding == self.config.hidden:
            layers.insert(0, torch.cat([words_TBE, words_TBE], dim=-1))
        is_token_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        return torch.stack(layers).transpose(1, 2) * is_token_BT[None, :, :, None]

    def vectors(self, tokens: Array, lengths: Array) -> list[LayerVectors]:
        """What each layer makes of every token, both directions side by side; the first is the words. tokens (B, T)"""
        ids_BT, lengths_B = (
            torch.from_numpy(np.array(x, dtype=np.int64)).to(self.onward.device) for x in (tokens, lengths)
        )
        words_TBE = self.onward.embedding(ids_BT.t())
        reads_back = torch.arange(2 * self.config.hidden, device=ids_BT.device) >= self.config.hidden
        layers = self._both(words_TBE, lengths_B)
        return [LayerVectors(words_TBE), *(LayerVectors(values, reads_back) for values in layers)]

    def _both(self, words_TBE: Tensor, lengths_B: Tensor) -> list[Tensor]:
        """After each layer, both directions side by side. -> (T, B, 2 H) each"""
        onward = self._layers(self.onward, words_TBE)
        turned = self._layers(self.backward, reverse(words_TBE, lengths_B))
        return [
            torch.cat([first, reverse(second, lengths_B)], dim=-1) for first, second in zip(onward, turned, strict=True)
        ]

    @staticmethod
    def _layers(model: RecurrentModel, words_TBE: Tensor) -> list[Tensor]:
        """After each layer, read on from the start. -> (T, B, H) each"""
        assert isinstance(model.stack, Stack)
        ends_TB = torch.full((1, words_TBE.shape[1]), EOS_ID, device=words_TBE.device)
        begin = model._read(ends_TB, model.start_training(words_TBE.shape[1]), is_noisy=False).carried
        return model.stack.read_all(words_TBE, begin[: model.num_states])[0]


def compute_features(model: BilmModel, tokens: Array, lengths: Array) -> Array:
    """`features` of ids as numpy. -> (L, B, T, 2 H) float32"""
    device: Any = model.onward.device
    with torch.inference_mode():
        ids = torch.from_numpy(np.array(tokens, dtype=np.int64)).to(device)
        found = model.features(ids, torch.from_numpy(np.array(lengths, dtype=np.int64)).to(device))
        return found.to(torch.float32).cpu().numpy()


class BilmFeatures(BilmModel):
    """The layers of a `BilmModel`, without what predicts words. Nothing in it ever learns.

    tensors: those of such a model, without the ones of its heads.
    """

    def __init__(self, config: BilmConfig, tensors: Mapping[str, Array], *, dtype: torch.dtype = torch.float32) -> None:
        vocab_size = len(tensors["onward.embedding.weight"])
        super().__init__(config, NetInputs(vocab_size, dtype=dtype), reset_lines=False)
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
