"""The loss on held-out data: quickly in batches, or exactly as `evaluate` computes it. Changes no weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from elman.core.arrays import Array
from elman.lm.evaluate import Tally, score_lines
from elman.lm.protocol import FreeModel, S
from elman.text.batches import Position
from elman.text.units.vocabulary import EOS_ID
from elman.training.protocols import Batches, Net

# Exact scoring looks at the clock after so many tokens at first; the pieces double up to the longest.
FIRST_PIECE_TOKENS, LONGEST_PIECE_TOKENS = 16, 4096


@dataclass(frozen=True)
class Validation:
    """What a validation measured on the held-out data, or on the part it has read."""

    nats: float  # sum over the tokens
    tokens: int
    is_whole: bool  # all of the data was read
    error: float | None = None  # what the best weights are chosen by if not by the likelihood; lower is better

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def loss(self) -> float:
        """What decides which weights are the best; lower is better."""
        return self.nats_per_token if self.error is None else self.error


def validate(
    model: Net,
    batches: Batches,
    *,
    max_tokens: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Validation:
    """The negative log-likelihood in one pass over the batches, without dropout. Leaves the model's mode as it was."""
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
    return Validation(nats, tokens, position.epoch > 0)


def score_exactly(
    lm: FreeModel[S], ids: Array, *, reset_lines: bool, tokens_left: Callable[[int], float] = lambda _: math.inf
) -> Tally:
    """What `evaluate` says of these ids: one stream, or each line alone. Cut short, it is the tally of the first part.

    tokens_left: for how many more tokens there is time after so many; pieces grow, so that little is at stake.
    """
    tally, state, start, size = Tally(), lm.start(1), 0, FIRST_PIECE_TOKENS
    while start < len(ids) and (most := int(min(tokens_left(start), size))) > 0:
        stop = _end_of_piece(ids, start + most, whole_lines=reset_lines)
        tokens = np.array(ids[start:stop], dtype=np.int64)
        ends = np.flatnonzero(tokens == EOS_ID) + 1
        if reset_lines:
            nats = score_lines(lm, [line for line in np.split(tokens, ends) if len(line)]).token_nats
        else:
            log_probs, state = lm.score(tokens[None], np.array([len(tokens)]), state)
            nats = -log_probs[0]
        tally += Tally(float(nats.sum(dtype=np.float64)), len(tokens), lines=len(ends))
        start, size = stop, min(2 * size, LONGEST_PIECE_TOKENS)
    return tally


def _end_of_piece(ids: Array, stop: int, *, whole_lines: bool) -> int:
    stop = min(stop, len(ids))
    while whole_lines and stop < len(ids) and int(ids[stop - 1]) != EOS_ID:
        stop += 1
    return stop
