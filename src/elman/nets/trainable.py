"""What training needs of a net, and nothing else of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from elman.text.batches import Batch


@dataclass(frozen=True)
class Loss:
    """What one batch cost: `total` to descend on, `nats` to report.

    A net with a sampled criterion reports that criterion in training, where exact log-probabilities would cost what
    sampling saves; out of training, and so wherever a number is kept or compared, `nats` is exact for every net.
    """

    total: Tensor  # mean nats a token, and the penalties; a scalar with a gradient
    nats: Tensor  # the plain sum of -log p of the targets: float64, no gradient, equal to what `score` says
    tokens: int
    is_likelihood: bool = True  # `nats` are -log p, not those of a sampled criterion


class Trainable(Protocol):
    """A net that descends on its loss. `train()` and `eval()` of the module switch dropout and penalties."""

    def start_training(self, rows: int) -> Any:
        """What a stream carries before its first input, the batch on axis 0 of every leaf; None if nothing is carried."""

    def batch_loss(self, batch: Any, state: Any) -> tuple[Loss, Any]:
        """The loss of a batch of the net's own kind, and what to carry on to the next, without a gradient."""


class StreamNet(Module):
    """A `Trainable` that reads batches of a text, on from a state or from the beginning."""

    @abstractmethod
    def start_training(self, rows: int) -> Any:
        """What a training stream carries before its first input. Batch on axis 0 of every leaf, as in any state."""

    @abstractmethod
    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Any) -> tuple[Loss, Any]:
        """The loss of predicting each target from the inputs up to its place, and what to carry on, without a gradient.

        inputs, targets (B, T) int64. lengths (B,) cuts each row's padding off; rows are then lines read alone, and
        what is carried on is the start again.
        """

    def batch_loss(self, batch: Batch, state: Any) -> tuple[Loss, Any]:
        """The loss of a batch, read on from a state or, where the batch is a start, from the beginning."""
        device = next(self.parameters()).device
        if batch.is_start:
            state = self.start_training(len(batch.inputs))
        lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths).to(device)
        inputs, targets = torch.from_numpy(batch.inputs).to(device), torch.from_numpy(batch.targets).to(device)
        return self.loss(inputs, targets, lengths, state)
