"""One batch through a net; and what a net has to be for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from elman.models.trainable import Loss, Trainable
from elman.text.batches import Batch


class Net(Trainable, Protocol):
    """A torch module that is a `Trainable`."""

    vocab_size: int
    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def eval(self) -> Any: ...
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...
    def count_flops(self) -> float: ...


def run_batch(model: Net, batch: Batch, state: Any) -> tuple[Loss, Any]:
    """The loss of a batch, read on from a state or, where the batch is a start, from the beginning."""
    device = next(model.named_parameters())[1].device
    if batch.is_start:
        state = model.start_training(len(batch.inputs))
    lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths).to(device)
    inputs, targets = torch.from_numpy(batch.inputs).to(device), torch.from_numpy(batch.targets).to(device)
    return model.loss(inputs, targets, lengths, state)
