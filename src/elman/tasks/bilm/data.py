"""A text as both directions read it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.text.batches import Batch, Divided, LineBatches, Position, Share, StreamBatches
from elman.text.units.vocabulary import EOS_ID


@dataclass(frozen=True)
class BilmBatch:
    """What both directions read in one step."""

    onward: Batch
    backward: Batch

    @property
    def scale(self) -> float:
        """Of the learning rate."""
        return self.onward.scale


class BilmBatches(Divided[BilmBatch]):
    """A text for both directions: two streams through all of it, or each line from both ends."""

    def __init__(self, onward: StreamBatches | LineBatches, backward: StreamBatches | LineBatches) -> None:
        self._onward = onward
        self._backward = backward if isinstance(backward, StreamBatches) else None  # lines are reversed batch by batch
        self.notes = onward.notes

    @property
    def max_rows(self) -> int:
        return self._onward.max_rows

    @property
    def tokens_per_epoch(self) -> int:
        """Every token is predicted twice."""
        return 2 * self._onward.tokens_per_epoch

    @property
    def tokens_per_step(self) -> int:
        return 2 * self._onward.tokens_per_step

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return self._onward.fraction(position)

    def part(self, position: Position, share: Share) -> tuple[BilmBatch | None, Position]:
        """A process's rows of the batch at a position, and the position after it."""
        onward, after = self._onward.part(position, share)
        if onward is None:
            return None, after
        backward = reverse_lines(onward) if self._backward is None else self._backward.part(position, share)[0]
        assert backward is not None
        return BilmBatch(onward, backward), after


def reverse_text(ids: Array) -> Array:
    """A text from its last word to its first; each line still ends with its end."""
    ends = bool(len(ids)) and int(ids[-1]) == EOS_ID
    return np.append(ids[-2::-1], ids[-1:]) if ends else np.array(ids[::-1])


def reverse_lines(batch: Batch) -> Batch:
    """Lines read alone, each from its last word to its first. A piece of a very long line is a line of its own."""
    num_tokens = batch.targets.shape[1]
    lengths = np.full(len(batch.targets), num_tokens) if batch.lengths is None else batch.lengths
    targets = np.full_like(batch.targets, EOS_ID)
    for row, length in enumerate(lengths.tolist()):
        targets[row, :length] = reverse_text(batch.targets[row, :length])
    inputs = np.concatenate([np.full((len(targets), 1), EOS_ID, dtype=targets.dtype), targets[:, :-1]], axis=1)
    inputs[np.arange(num_tokens) >= lengths[:, None]] = EOS_ID
    return Batch(inputs, targets, batch.lengths, is_start=True, scale=batch.scale)
