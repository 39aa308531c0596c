"""A language model small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elman.core.arrays import Array


class TableLM:
    """An n-gram model given by an explicit table, small enough for brute force.

    table: probabilities, shape (V + 1, ..., V + 1, V) with an axis for each token of history, the index V meaning
    "before the start". A table of shape (V,) is a unigram model.
    """

    def __init__(self, table: Array) -> None:
        self.vocab_size: int = table.shape[-1]
        self.order: int = table.ndim - 1
        if table.shape[:-1] != (self.vocab_size + 1,) * self.order:
            raise ValueError(f"a table of shape {table.shape} is not (V + 1, ..., V + 1, V)")
        with np.errstate(divide="ignore"):
            self._log_probs_CV = np.log(table.reshape(-1, self.vocab_size)).astype(np.float32)
        self._place_values = (self.vocab_size + 1) ** np.arange(self.order - 1, -1, -1)

    @classmethod
    def random(
        cls, rng: np.random.Generator, *, vocab_size: int = 4, order: int = 2, impossible: float = 0.0
    ) -> TableLM:
        """A random table; `impossible` is the share of its entries that are zero (never a whole row)."""
        table = rng.dirichlet(np.ones(vocab_size), size=(vocab_size + 1,) * order)
        table = table * ((rng.random(table.shape) >= impossible) | (table == table.max(-1, keepdims=True)))
        return cls(table / table.sum(-1, keepdims=True))

    def start(self, rows: int) -> Array:
        """The state before the first token. -> (B, order)"""
        return np.full((rows, self.order), self.vocab_size)

    def predict(self, state: Array) -> Array:
        """The row of the table for the history. -> (B, V)"""
        return np.asarray(self._log_probs_CV[state @ self._place_values])

    def advance(self, tokens: Array, state: Array) -> Array:
        """The history after one more token. -> (B, order)"""
        return np.column_stack([state, tokens])[:, 1:]

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        """Log-probability of each token, and the state after each row's last token. -> (B, T), (B, order)"""
        num_tokens = tokens.shape[1]
        tokens_BX = np.concatenate([state, tokens], axis=1)
        contexts_BT = np.zeros(tokens.shape, dtype=np.int64)
        for back, value in enumerate(self._place_values):
            contexts_BT += tokens_BX[:, back : back + num_tokens] * value
        log_probs = self._log_probs_CV[contexts_BT, tokens]
        log_probs[np.arange(num_tokens) >= lengths[:, None]] = 0
        return log_probs, np.take_along_axis(tokens_BX, lengths[:, None] + np.arange(self.order), axis=1)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of several states as one batch."""
        return np.concatenate(states)
