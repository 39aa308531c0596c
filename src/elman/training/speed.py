"""How fast a run is, and how fast the machine could be at best."""

from __future__ import annotations

import math
import time
from collections import deque

import torch


def measure_peak(size: int = 1024, *, repeats: int = 4, seconds: float = 0.5) -> float:
    """Floating-point operations a second of this machine's matrix product, the best of a few.

    Takes hardly longer than `seconds`: on a busy machine forty products of 13 ms took ten seconds.
    """
    left, right = torch.ones(size, size), torch.ones(size, size)
    best, began = float("inf"), time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right)
        now = time.perf_counter()
        best = min(best, now - start)
        if now - began > seconds:
            break
    return 2.0 * size**3 / best


class Meter:
    """Speed and training loss over the last steps."""

    def __init__(self, window: int = 20) -> None:
        self._steps: deque[tuple[int, float, float]] = deque(maxlen=window)

    def add(self, tokens: int, seconds: float, nats: float) -> None:
        """A step is done."""
        self._steps.append((tokens, seconds, nats))

    @property
    def tokens_per_second(self) -> float:
        seconds = sum(step[1] for step in self._steps)
        return sum(step[0] for step in self._steps) / seconds if seconds > 0 else 0.0

    @property
    def nats_per_token(self) -> float:
        tokens = sum(step[0] for step in self._steps)
        return sum(step[2] for step in self._steps) / tokens if tokens else math.nan

    @property
    def slowest(self) -> float:
        """Seconds of the slowest of the last steps: what the next one may take."""
        return max((step[1] for step in self._steps), default=0.0)
