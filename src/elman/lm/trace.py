"""What a model did on the way through a text: named arrays, for those who want to look inside.

A model with something to show has `explain(tokens, state) -> Trace`, for one row: the text is read again with recording on.
Nothing of it is in the way of search, evaluation or training, and recording changes no probability (a law).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from elman.core.arrays import Array


@dataclass(frozen=True)
class Trace:
    """The log-probability of each token, (T,), and arrays by name, the token on axis 0 of each.

    Of nets: `embeddings`, and for each layer from 1 `layers.1.outputs`, `layers.1.states.h`, `layers.1.gates.forget`,
    `layers.1.attention` (T, A heads, S tokens attended to). They are those after a token was read; its log-probability
    is from before. Of n-grams `orders`, the order that answered; of mixtures `shares` (T, M), how much of a token's
    probability each member gave, and what the members recorded below `members.0.`; of a neural cache `hits`.
    """

    log_probs: Array
    arrays: Mapping[str, Array] = field(default_factory=dict)


@runtime_checkable
class Explains(Protocol):
    """A model that records."""

    def explain(self, tokens: Array, state: Any) -> Trace:
        """Read tokens (T,) from a state of one row, with recording on."""


def explain(lm: Any, tokens: Array, state: Any) -> Trace:
    """The trace of a text; of a model that records nothing, its log-probabilities."""
    if isinstance(lm, Explains):
        return lm.explain(tokens, state)
    return Trace(lm.score(tokens[None], np.array([len(tokens)]), state)[0][0])
