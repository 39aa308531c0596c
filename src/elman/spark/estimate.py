"""What is to be estimated from counts, in words that every engine understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elman.counts.smoothing import Smoothing


@dataclass(frozen=True)
class Estimate:
    """A smoothing with its settings."""

    method: Literal["kn", "mkn"] | Smoothing
    order: int
    prune: tuple[int, ...] = ()
    alpha: float | None = None

    @property
    def continues(self) -> bool:
        """Whether lower orders count different words before an n-gram, as Kneser-Ney does."""
        return self.method in ("kn", "mkn")

    @property
    def backs_off(self) -> bool:
        """Whether it is probabilities and back-off weights that are kept, rather than counts."""
        return self.method not in ("ml", "add")

    @property
    def tunes(self) -> bool:
        """Whether something is tuned on held-out text."""
        return self.method == "interpolated" or (self.method == "add" and self.alpha is None)

    def threshold(self, order: int) -> int:
        """n-grams of an order that were seen at most so often are pruned."""
        return self.prune[min(order, len(self.prune)) - 1] if self.prune else 0
