"""The base of nets that read texts and predict labels: classifiers, taggers, question answering."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module

from elman.core.arrays import Array
from elman.nets.layer import draw_weights
from elman.nets.vocabulary_net import tensors_of


class TextNet(Module):
    """A net whose batches are independent of one another. `vocab_size` is the number of labels it chooses from."""

    vocab_size: int

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def tensors(self) -> dict[str, Array]:
        """Every learned or fitted tensor by name; shared ones once."""
        return tensors_of(self)

    def start_training(self, rows: int) -> None:
        """Nothing is carried from batch to batch."""

    def _ids(self, numbers: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int64)).to(self.device)


def initialise_linear(layer: Linear, rng: torch.Generator) -> None:
    """Draw the initial weights of a layer; its bias is zero."""
    draw_weights(rng, layer.weight, inputs=layer.in_features)
    with torch.no_grad():
        layer.bias.zero_()
