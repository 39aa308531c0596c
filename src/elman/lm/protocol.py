"""The language model protocol, p(next token | state), and the operations on states that all models share.

Decoding, evaluation, mixtures and serving use only what is declared here, and never ask which family a model is.
numpy at the boundary, anything inside; natural logarithms; `B` rows, `T` tokens, `V` vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError

S = TypeVar("S")


@runtime_checkable
class LanguageModel(Protocol[S]):
    """p(next token | all tokens so far), for B independent rows.

    A state is a value: arrays or tensors in dataclasses or tuples, the batch on axis 0 of every leaf, never mutated.
    """

    @property
    def vocab_size(self) -> int:
        """V: tokens are the integers 0 .. V-1."""

    def predict(self, state: S) -> Array:
        """Log-probabilities of the next token, normalised. -> (B, V) float32"""

    def advance(self, tokens: Array, state: S) -> S:
        """The state after each row has consumed its token, (B,). The old state stays valid."""

    def score(self, tokens: Array, lengths: Array, state: S) -> tuple[Array, S]:
        """Log-probability of each token given all before it, 0 at padding, and the state after each row's last token.

        tokens (B, T), lengths (B,) -> (B, T) float32
        """

    def join(self, states: Sequence[S]) -> S:
        """The rows of several states as one batch, in order."""


@runtime_checkable
class FreeModel(LanguageModel[S], Protocol[S]):
    """A model without a source: it has a start state."""

    def start(self, rows: int) -> S:
        """The state before the first token; the start symbol is already read."""


@runtime_checkable
class LineModel(FreeModel[S], Protocol[S]):
    """A model that scores lines as they lie in a text, without making a padded batch of them."""

    def score_lines(self, tokens: Array, starts: Array) -> Array:
        """Log-probability of each token of lines that lie one after another, each read from the start state.

        tokens (N,), starts (L,): where each line begins -> (N,) float32
        """


@runtime_checkable
class ConditionalModel(LanguageModel[S], Protocol[S]):
    """A model of a target given a source: its start state encodes the source."""

    def encode(self, source: Array, lengths: Array) -> S:
        """The state before the first target token. source (B, S), lengths (B,), each with its end of sequence."""


def map_state(function: Callable[[Any], Any], state: S) -> S:
    """The same state with every leaf replaced by function(leaf)."""
    if isinstance(state, tuple):
        parts = [map_state(function, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)  # type: ignore[return-value]
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        fields = {f.name: map_state(function, getattr(state, f.name)) for f in dataclasses.fields(state)}
        return dataclasses.replace(state, **fields)
    return function(state)  # type: ignore[no-any-return]


def leaves(state: object) -> list[Any]:
    """Every array or tensor in the state, in a fixed order."""
    collected: list[Any] = []
    map_state(collected.append, state)
    return collected


def num_rows(state: object) -> int:
    """B, the number of rows of a state."""
    return int(leaves(state)[0].shape[0])


def select(state: S, rows: Array) -> S:
    """The state of the given rows, in the given order; a row may occur several times."""
    return map_state(lambda leaf: leaf[rows], state)


def repeat(state: S, times: int) -> S:
    """Each row `times` times, copies of one row next to each other."""
    return select(state, np.repeat(np.arange(num_rows(state)), times))


def join_arrays(states: Sequence[S]) -> S:
    """Concatenate states whose leaves are numpy arrays of equal trailing shape: `join` for most count models."""
    first = states[0]
    if isinstance(first, tuple):
        parts = [join_arrays([state[i] for state in states]) for i in range(len(first))]  # type: ignore[index]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)  # type: ignore[return-value]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = {f.name: join_arrays([getattr(state, f.name) for state in states]) for f in dataclasses.fields(first)}
        return dataclasses.replace(first, **fields)
    return cast(S, np.concatenate(cast(Sequence[Array], states)))


def score_by_steps(lm: LanguageModel[S], tokens: Array, lengths: Array, state: S) -> tuple[Array, S]:
    """The definition of `score`, one token at a time: for models without a faster one, and to test those with one."""
    nats = np.zeros(tokens.shape, dtype=np.float32)
    num_tokens = tokens.shape[1]
    order = np.arange(len(tokens))
    for t in range(num_tokens):
        active = np.flatnonzero(lengths > t)
        if len(active) == 0:
            break
        part = state if len(active) == len(order) else select(state, active)
        log_probs = lm.predict(part)
        nats[active, t] = log_probs[np.arange(len(active)), tokens[active, t]]
        part = lm.advance(tokens[active, t], part)
        if len(active) == len(order):
            state = part
        else:  # put the advanced rows back among the finished ones
            position = order.copy()
            position[active] = len(order) + np.arange(len(active))
            state = select(lm.join([state, part]), position)
    return nats, state


def refuse_nan(log_probs: Array) -> Array:
    """The same log-probabilities, or nats; an error where they are not numbers."""
    if np.isnan(log_probs).any():
        raise DataError(
            "the model's probabilities are not numbers (NaN): it is damaged, or its training diverged",
            code="damaged-model",
            hint="copy the model again from where it came, or train it again with a lower train.learning_rate",
        )
    return log_probs
