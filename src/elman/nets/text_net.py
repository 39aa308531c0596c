"""The base of nets that read texts and predict labels: classifiers, taggers, question answering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module

from elman.core.arrays import Array
from elman.nets.config import TextEncoderConfig
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors, draw_weights
from elman.nets.text_encoder import TextEncoder
from elman.nets.vocabulary_net import embedding_of, load_tensors, tensors_of


class TextNet(Module):
    """A net whose batches are independent of one another. `vocab_size` is the number of labels it chooses from."""

    vocab_size: int
    reader: TextEncoder

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def tensors(self) -> dict[str, Array]:
        """Every learned or fitted tensor by name; shared ones once."""
        return tensors_of(self)

    @property
    def encoder(self) -> TextEncoder:
        """What reads the words of a text."""
        return self.reader

    def vectors(self, words: Array, lengths: Array) -> list[LayerVectors]:
        """What each layer makes of every word; the first is the words alone. words (B, T)"""
        return self.encoder.vectors(self._ids(words).t(), self._ids(lengths))

    def start_training(self, rows: int) -> None:
        """Nothing is carried from batch to batch."""

    def _ids(self, numbers: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int64)).to(self.device)


class LabelNet(TextNet):
    """A net with a linear `output` that has a number for each label."""

    @classmethod
    def from_tensors(cls, config: TextEncoderConfig, tensors: Mapping[str, Array]) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, config.family, within="reader.")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words), num_labels=len(tensors["output.bias"]))
        load_tensors(model, tensors)
        return model


def initialise_linear(layer: Linear, rng: torch.Generator) -> None:
    """Draw the initial weights of a layer; its bias is zero."""
    draw_weights(rng, layer.weight, inputs=layer.in_features)
    with torch.no_grad():
        layer.bias.zero_()
