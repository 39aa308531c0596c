"""The interface that training needs of a net."""

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
    """The loss of one batch: `total` to minimise, `nats` to report.

    A net with a sampled criterion reports that criterion in training, where exact log-probabilities would cost what
    sampling saves; outside training, wherever a number is recorded or compared, `nats` is exact for every net.
    """

    total: Tensor  # mean nats per token plus penalties; a scalar with a gradient
    nats: Tensor  # sum of -log p of the targets: float64, no gradient, equal to that of `score`
    tokens: int
    is_likelihood: bool = True  # `nats` are -log p, not those of a sampled criterion


def no_loss() -> Loss:
    """Of no tokens: what a process has to say of a batch that has nothing for it."""
    nothing = torch.zeros((), dtype=torch.float64)
    return Loss(nothing, nothing, 0)


class Trainable(Protocol):
    """A net with a loss. `train()` and `eval()` of the module switch dropout and penalties."""

    def start_training(self, rows: int) -> Any:
        """The state before the first input, batch on axis 0 of every leaf; None for a net without state."""

    def batch_loss(self, batch: Any, state: Any) -> tuple[Loss, Any]:
        """The loss of a batch of the net's own type, and the detached state for the next batch."""


class StreamNet(Module):
    """A `Trainable` for batches of text, continued from a state or read from the beginning."""

    @abstractmethod
    def start_training(self, rows: int) -> Any:
        """The state before the first input. Batch on axis 0 of every leaf, as in any state."""

    @abstractmethod
    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Any) -> tuple[Loss, Any]:
        """The loss of predicting each target from the inputs up to its position, and the detached new state.

        inputs, targets (B, T) int64. lengths (B,) excludes each row's padding; rows are then independent lines, and
        the new state is the start state.
        """

    def batch_loss(self, batch: Batch, state: Any) -> tuple[Loss, Any]:
        """The loss of a batch, continued from a state or, if `batch.is_start`, from the beginning."""
        device = next(self.parameters()).device
        if batch.is_start:
            state = self.start_training(len(batch.inputs))
        lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths).to(device)
        inputs, targets = torch.from_numpy(batch.inputs).to(device), torch.from_numpy(batch.targets).to(device)
        return self.loss(inputs, targets, lengths, state)
