"""What a run reports after every step, and at its end. The library yields these; the caller prints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elman.lm.evaluate import Tally


@dataclass(frozen=True)
class Wording:
    """What the numbers of a run are called: a classifier reads texts, and its loss is no perplexity."""

    counted: str = "tokens"  # what the loss is a mean over
    has_perplexity: bool = True  # the loss is that of tokens given others
    error: str | None = None  # what the best weights are chosen by if not by the loss; lower is better


@dataclass(frozen=True)
class Progress:
    """A run after a step."""

    step: int
    epoch: float  # passes over the corpus, with the fraction of the current one
    tokens: int  # trained on so far
    fraction: float | None  # of the run; None where its end is open
    nats_per_token: float  # training loss, over the last steps
    learning_rate: float
    gradient_norm: float  # before clipping
    tokens_per_second: float
    fraction_of_peak: float  # floating-point operations a second, of those of the machine's matrix product; at most 1
    elapsed_seconds: float
    eta_seconds: float | None
    valid_nats_per_token: float | None = None  # of the last validation, in batches
    valid_error: float | None = None  # of the last validation, where the best weights are chosen by an error
    validated_step: int | None = None  # step of the last validation
    notes: tuple[str, ...] = ()  # sentences for the user
    wording: Wording = Wording()
    is_likelihood: bool = True  # the training loss is -log p, not that of a sampled criterion

    @property
    def perplexity(self) -> float | None:
        """Of the training text as it goes by; None where the loss says nothing of probabilities."""
        return perplexity(self.nats_per_token) if self.is_likelihood else None

    @property
    def valid_perplexity(self) -> float | None:
        return None if self.valid_nats_per_token is None else perplexity(self.valid_nats_per_token)


@dataclass(frozen=True)
class Outcome:
    """How a run ended; its model holds the best weights."""

    steps: int
    tokens: int
    epochs: float
    seconds: float
    why: str  # the reason why it ended
    tally: Tally | None = None  # of the held-out text, as `evaluate` reads it, without bytes and unknown tokens
    is_whole: bool = True  # the tally is of all of the text, not of its first part
    temperature: float | None = None  # of the softmax, where one was fitted


def perplexity(nats_per_token: float) -> float:
    """exp(nats_per_token), or infinity where that is too large for a float."""
    return math.inf if nats_per_token >= 709 else math.exp(nats_per_token)
