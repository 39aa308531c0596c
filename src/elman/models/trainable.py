"""What training needs of a net, and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """What one batch cost: `total` to descend on, `nats` to report."""

    total: Tensor  # mean nats a token, and the penalties; a scalar with a gradient
    nats: Tensor  # the plain sum of -log p of the targets: float64, no gradient, equal to what `score` says
    tokens: int


class Trainable(Protocol):
    """A net that descends on its loss. `train()` and `eval()` of the module switch dropout and penalties."""

    def start_training(self, rows: int) -> Any:
        """What a training stream carries before its first input. Batch on axis 0 of every leaf, as in any state."""

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Any) -> tuple[Loss, Any]:
        """The loss of predicting each target from the inputs up to its place, and what to carry on, without a gradient.

        inputs, targets (B, T) int64. lengths (B,) cuts each row's padding off; rows are then lines read alone, and
        what is carried on is the start again.
        """
