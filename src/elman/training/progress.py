"""What a run tells its caller while it goes on, and at its end. The library yields; whoever called it prints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elman.lm.evaluate import Tally


@dataclass(frozen=True)
class Progress:
    """A run after a step."""

    step: int
    epoch: float  # passes over the corpus, with the part of the present one
    tokens: int  # trained on so far
    fraction: float | None  # of the run; None where its end is open
    nats_per_token: float  # over the last steps, with dropout
    learning_rate: float
    gradient_norm: float  # before clipping
    tokens_per_second: float
    fraction_of_peak: float  # of the machine's matrix product
    elapsed_seconds: float
    eta_seconds: float | None
    valid_nats_per_token: float | None = None  # of the last validation, batched
    valid_error: float | None = None  # then, where weights are chosen by one
    validated_step: int | None = None  # when that was
    notes: tuple[str, ...] = ()  # sentences to be told now

    @property
    def perplexity(self) -> float:
        return perplexity(self.nats_per_token)

    @property
    def valid_perplexity(self) -> float | None:
        return None if self.valid_nats_per_token is None else perplexity(self.valid_nats_per_token)


@dataclass(frozen=True)
class Outcome:
    """A run that is over; its model holds the weights to keep."""

    steps: int
    tokens: int
    epochs: float
    seconds: float
    why: str  # it ended
    tally: Tally | None = None  # of the validation text, as `evaluate` reads it (bytes and unknowns are the caller's)
    is_whole: bool = True  # the tally is of all of the text, not of its first part
    temperature: float | None = None  # of the softmax, where one was fitted


def perplexity(nats_per_token: float) -> float:
    """exp, without a fuss about what is too large."""
    return math.inf if nats_per_token >= 709 else math.exp(nats_per_token)
