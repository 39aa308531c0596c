"""The validation text while a net is trained: quick, in batches; and the temperature fitted on it at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.lm.evaluate import Tally, score_lines
from elman.lm.protocol import FreeModel, S
from elman.text.batches import Position
from elman.text.units.vocabulary import EOS_ID
from elman.training.protocols import Batches, Net

TEMPERATURE_BOUND, TEMPERATURE_STEP = 0.5, 0.15  # of its logarithm
NEAR_ENOUGH = 0.003
FIRST_PIECE, LAST_PIECE = 16, 4096  # tokens scored exactly before looking at the clock again


@dataclass(frozen=True)
class Quick:
    """Nats over the tokens seen; `is_whole` unless it was cut off."""

    nats: float
    tokens: int
    is_whole: bool
    error: float | None = (
        None  # what the weights to keep are chosen by, where that is not the likelihood; lower is better
    )

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def loss(self) -> float:
        """What decides which weights are the best."""
        return self.nats_per_token if self.error is None else self.error


def validate(
    model: Net,
    batches: Batches,
    *,
    max_tokens: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Quick:
    """Mean negative log-likelihood in one pass over the batches, without dropout. Touches neither weights nor mode."""
    was_training = model.training
    model.eval()
    position, state, nats, tokens = Position(), None, 0.0, 0
    try:
        with torch.no_grad():
            while position.epoch == 0 and (max_tokens is None or tokens < max_tokens):
                if should_stop():
                    break
                batch, position = batches.batch(position)
                loss, state = model.batch_loss(batch, state)
                nats += float(loss.nats)
                tokens += int(loss.tokens)
    finally:
        model.train(was_training)
    return Quick(nats, tokens, position.epoch > 0)


def fit_temperature(model: nn.Module, nats_per_token: Callable[[], float], *, rounds: int = 8) -> float | None:
    """Set the model's `log_temperature` to what suits the validation text best. -> the temperature, None if it has none

    The likelihood is smooth and has one maximum, so a bounded search needs few looks; a gain has to be seen to be taken.
    """
    buffers = [buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] == "log_temperature"]
    if not buffers:
        return None

    def look(value: float) -> float:
        _fill(buffers, value)
        nats = nats_per_token()
        return nats if math.isfinite(nats) else math.inf  # what was cut off is never the best

    best = minimise(look, (-TEMPERATURE_STEP, 0.0, TEMPERATURE_STEP), bound=TEMPERATURE_BOUND, rounds=rounds)
    _fill(buffers, best)
    return math.exp(best)


def minimise(
    function: Callable[[float], float], points: tuple[float, float, float], *, bound: float, rounds: int
) -> float:
    """Where a smooth function with one minimum is lowest: the vertex of the parabola through the best three points.

    The middle point is returned unless another was seen to be better.
    """
    seen = {point: function(point) for point in points}
    for _ in range(rounds - len(points)):
        lowest = min(seen, key=lambda point: (seen[point], point != points[1]))
        a, b, c = sorted(sorted(seen, key=lambda point: abs(point - lowest))[:3])
        slope_ab, slope_bc = (seen[b] - seen[a]) / (b - a), (seen[c] - seen[b]) / (c - b)
        if not slope_bc > slope_ab:  # no bowl, or not a number
            break
        bend = (slope_bc - slope_ab) / (c - a)
        vertex = min(bound, max(-bound, (a + b) / 2 - slope_ab / (2 * bend)))
        if min(abs(vertex - point) for point in seen) < NEAR_ENOUGH:
            break
        seen[vertex] = function(vertex)
    return min(seen, key=lambda point: (seen[point], point != points[1]))


def _fill(buffers: Sequence[Tensor], value: float) -> None:
    with torch.no_grad():
        for buffer in buffers:
            buffer.fill_(value)


def score_exactly(
    lm: FreeModel[S], ids: Array, *, reset_lines: bool, room: Callable[[int], float] = lambda _: math.inf
) -> Tally:
    """What `evaluate` says of these ids: one stream, or each line alone. Cut off, it is the tally of the first part.

    `room` says for how many more tokens there is time after so many; pieces grow, so that little is at stake.
    """
    tally, state, start, size = Tally(), lm.start(1), 0, FIRST_PIECE
    while start < len(ids) and (most := int(min(room(start), size))) > 0:
        stop = _end_of_piece(ids, start + most, whole_lines=reset_lines)
        tokens = np.array(ids[start:stop], dtype=np.int64)
        ends = np.flatnonzero(tokens == EOS_ID) + 1
        if reset_lines:
            nats = score_lines(lm, [line for line in np.split(tokens, ends) if len(line)]).token_nats
        else:
            log_probs, state = lm.score(tokens[None], np.array([len(tokens)]), state)
            nats = -log_probs[0]
        tally += Tally(float(nats.sum(dtype=np.float64)), len(tokens), lines=len(ends))
        start, size = stop, min(2 * size, LAST_PIECE)
    return tally


def _end_of_piece(ids: Array, stop: int, *, whole_lines: bool) -> int:
    stop = min(stop, len(ids))
    while whole_lines and stop < len(ids) and int(ids[stop - 1]) != EOS_ID:
        stop += 1
    return stop
