"""What the training loop needs of a net and of its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from elman.nets.trainable import Trainable
from elman.text.batches import Position, Share


class Net(Trainable, Protocol):
    """A torch module that is a `Trainable`."""

    vocab_size: int  # number of classes; a loss far above that of a uniform guess has exploded
    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def eval(self) -> Any: ...
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...
    def count_flops(self) -> float: ...


class AnyBatch(Protocol):
    """A batch of whatever type the net's `batch_loss` takes."""

    @property
    def scale(self) -> float:
        """Factor of the learning rate; 1 for an ordinary batch."""


class Batches(Protocol):
    """Data in batches. A batch depends on its position alone, so the position is all that a checkpoint needs of the data."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user on how the data was cut into batches."""

    @property
    def tokens_per_epoch(self) -> int:
        """Number of targets in one pass."""

    @property
    def tokens_per_step(self) -> int:
        """About how many targets a batch has."""

    @property
    def max_rows(self) -> int:
        """Rows of the largest batches."""

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""

    def batch(self, position: Position) -> tuple[AnyBatch, Position]:
        """The batch at a position, and the position after it."""

    def part(self, position: Position, share: Share) -> tuple[AnyBatch | None, Position]:
        """A process's share of the batch at a position, None where it has no row for it, and the position after it."""
