"""What a net and its data have to be for the loop to train them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from elman.nets.trainable import Trainable
from elman.text.batches import Position


class Net(Trainable, Protocol):
    """A torch module that is a `Trainable`."""

    vocab_size: int  # how many answers there are: a loss far above that of a guess has exploded
    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def eval(self) -> Any: ...
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...
    def count_flops(self) -> float: ...


class AnyBatch(Protocol):
    """Whatever the net's `batch_loss` takes."""

    @property
    def scale(self) -> float:
        """Of the learning rate; 1 for a batch like any other."""


class Batches(Protocol):
    """Data to descend on. The batch at a position is a function of the position alone: to go on needs nothing else."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know about how the data was cut."""

    @property
    def tokens_per_epoch(self) -> int:
        """Targets in one pass."""

    @property
    def tokens_per_step(self) -> int:
        """About how many of them a batch has."""

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""

    def batch(self, position: Position) -> tuple[AnyBatch, Position]:
        """The batch at a position, and the position after it."""
