"""The temperature of the softmax: one number, fitted on held-out data after training (Guo et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# The logarithm of the temperature is searched in [-LOG_BOUND, LOG_BOUND], beginning at 0 and LOG_STEP to both sides.
LOG_BOUND, LOG_STEP = 0.5, 0.15
# Two points of the search closer than this are the same.
CLOSE = 0.003


def fit_temperature(model: nn.Module, nats_per_token: Callable[[], float], *, rounds: int = 8) -> float | None:
    """Set the model's `log_temperature` to what suits the held-out data best. -> the temperature, None if it has none

    The likelihood is smooth and has one maximum, so a bounded search needs few evaluations (`rounds` at most). The
    temperature stays 1 unless another was measured to be better.
    """
    buffers = [buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] == "log_temperature"]
    if not buffers:
        return None

    def loss_at(log_temperature: float) -> float:
        _fill(buffers, log_temperature)
        nats = nats_per_token()
        return nats if math.isfinite(nats) else math.inf  # an evaluation that was cut short is never the best

    best = minimise(loss_at, (-LOG_STEP, 0.0, LOG_STEP), bound=LOG_BOUND, rounds=rounds)
    _fill(buffers, best)
    return math.exp(best)


def minimise(
    function: Callable[[float], float], points: tuple[float, float, float], *, bound: float, rounds: int
) -> float:
    """Where a smooth function with one minimum is lowest: the vertex of the parabola through the best three points.

    The middle point is returned unless another was measured to be better.
    """
    values = {point: function(point) for point in points}
    for _ in range(rounds - len(points)):
        lowest = min(values, key=lambda point: (values[point], point != points[1]))
        a, b, c = sorted(sorted(values, key=lambda point: abs(point - lowest))[:3])
        slope_ab, slope_bc = (values[b] - values[a]) / (b - a), (values[c] - values[b]) / (c - b)
        if not slope_bc > slope_ab:  # not convex there, or NaN
            break
        curvature = (slope_bc - slope_ab) / (c - a)
        vertex = min(bound, max(-bound, (a + b) / 2 - slope_ab / (2 * curvature)))
        if min(abs(vertex - point) for point in values) < CLOSE:
            break
        values[vertex] = function(vertex)
    return min(values, key=lambda point: (values[point], point != points[1]))


def _fill(buffers: Sequence[Tensor], value: float) -> None:
    with torch.no_grad():
        for buffer in buffers:
            buffer.fill_(value)
