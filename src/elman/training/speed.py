"""How fast a run is, and how fast the machine could be at best."""

from __future__ import annotations

import math
import time
from collections import deque

import torch

from elman.training.plan import Machine


def measure_peak(
    size: int = 1024, *, repeats: int = 4, seconds: float = 0.5, dtype: torch.dtype = torch.float32
) -> float:
    """Floating-point operations a second of this machine's matrix product, the best of a few.

    Takes hardly longer than `seconds`: on a busy machine forty products of 13 ms took ten seconds.
    """
    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    best, began = float("inf"), time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right)
        now = time.perf_counter()
        best = min(best, now - start)
        if now - began > seconds:
            break
    return 2.0 * size**3 / best


def measure_machine(*, seconds: float = 0.5) -> Machine:
    """Others' work on the machine comes and goes: whoever has long to train looks for longer than half a second."""
    speedup = 1.0 if torch.cuda.is_available() else _measure_bfloat16_speedup()
    return Machine(measure_peak(repeats=int(80 * seconds), seconds=seconds), speedup)


def _measure_bfloat16_speedup(size: int = 512, *, repeats: int = 60) -> float:
    """How many times as fast this machine multiplies matrices of bfloat16 as of float32; below 1 where it cannot.

    By one thread: two would wait for one another beside others' work, alike for both, and the ratio would come near 1.
    """
    matrices = [torch.ones(size, size, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    best, threads = [float("inf")] * 2, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(repeats):
            for index, matrix in enumerate(matrices):  # in turns, so that other work on the machine slows both
                start = time.perf_counter()
                torch.mm(matrix, matrix)
                best[index] = min(best[index], time.perf_counter() - start)
            if best[1] > 4 * best[0]:
                break  # emulated: a product may take a second
    finally:
        torch.set_num_threads(threads)
    return best[0] / best[1]


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
