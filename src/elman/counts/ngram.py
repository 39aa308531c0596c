"""The back-off n-gram model: a probability for every n-gram stored, a back-off weight for every history.

p(w | h): the longest suffix c of h with c w stored gives log p(w | c); every longer suffix of h that is a stored history adds
its back-off weight. The state is the node of each suffix of the history, by length.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.tensors import DAMAGED, require_table
from elman.counts.trie import NOWHERE, Trie
from elman.text.units.vocabulary import EOS_ID

CHUNK_TOKENS = 1 << 17  # scored at once: two threads get in each other's way with smaller pieces (256 against 212 ns)
NUM_THREADS = min(2, os.cpu_count() or 1)  # score large batches: numpy lets go of the interpreter meanwhile


def start_nodes(trie: Trie, rows: int, *, reset_lines: bool) -> Array:
    """The suffixes of the history before anything was read: the start of a line, or in a stream an end of line."""
    nodes = np.full((rows, trie.order - 1), NOWHERE, np.int64)
    nodes[:, :1] = trie.bos if reset_lines else EOS_ID
    return nodes


def advance_nodes(trie: Trie, tokens: Array, nodes: Array) -> Array:
    """The suffixes of the history after one more token. (B,), (B, N-1) -> (B, N-1)"""
    after = np.full_like(nodes, NOWHERE)
    after[:, :1] = tokens[:, None]
    for k in range(2, nodes.shape[1] + 1):
        after[:, k - 1] = trie.find(k - 1, nodes[:, k - 2], tokens)
    return after


def follow(trie: Trie, tokens: Array, nodes: Array) -> list[Array]:
    """The n-gram of each order that ends at each token. (B, T), (B, N-1) -> N arrays (B, T+1); column 0 is before."""
    rows, num_tokens = tokens.shape
    found: list[Array] = []
    for k in range(1, trie.order + 1):
        ends = np.empty((rows, num_tokens + 1), np.int64)
        ends[:, 0] = nodes[:, k - 1] if k < trie.order else NOWHERE
        if k == 1:
            ends[:, 1:] = tokens
        else:
            ends[:, 1:] = trie.find(k - 1, found[-1][:, :-1].ravel(), tokens.ravel()).reshape(rows, num_tokens)
        found.append(ends)
    return found


class TrieModel:
    """A model whose state is where the last words are in a trie of n-grams. -> states (B, order - 1)"""

    def __init__(self, trie: Trie, *, reset_lines: bool) -> None:
        self.trie = trie
        self.reset_lines = reset_lines

    @property
    def vocab_size(self) -> int:
        return self.trie.vocab_size

    @property
    def order(self) -> int:
        return self.trie.order

    def start(self, rows: int) -> Array:
        """As if a line, or the text, had just begun."""
        return start_nodes(self.trie, rows, reset_lines=self.reset_lines)

    def advance(self, tokens: Array, state: Array) -> Array:
        """One word further."""
        return advance_nodes(self.trie, tokens, state)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of all."""
        return np.concatenate(states)


class NgramModel(TrieModel):
    """A trie with a log-probability for each n-gram and a log back-off weight for each history."""

    def __init__(self, trie: Trie, log_probs: Sequence[Array], backoffs: Sequence[Array], *, reset_lines: bool) -> None:
        super().__init__(trie, reset_lines=reset_lines)
        self.log_probs = tuple(log_probs)
        self.backoffs = tuple(backoffs)

    def predict(self, state: Array) -> Array:
        out = np.empty((len(state), self.vocab_size), np.float32)
        for row, nodes in zip(out, state.tolist(), strict=True):
            row[:] = self.log_probs[0][: self.vocab_size]
            for k, node in enumerate(nodes, start=1):
                if node != NOWHERE:
                    row += self.backoffs[k - 1][node]
                    rows = self.trie.children(k, node)
                    row[self.trie.words[k][rows]] = self.log_probs[k][rows]
        return np.minimum(out, 0, out=out)  # see _score_chunk

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        rows, num_tokens = tokens.shape
        nats = np.zeros((rows, num_tokens), np.float32)
        after = state.copy()
        num_parts = min(rows, max(NUM_THREADS if tokens.size > 1 << 14 else 1, -(-tokens.size // CHUNK_TOKENS)))
        step = max(1, -(-rows // num_parts))

        def score_rows(first: int) -> None:
            part = slice(first, first + step)
            for at in range(0, num_tokens, CHUNK_TOKENS):
                window = slice(at, min(at + CHUNK_TOKENS, num_tokens))
                left = np.clip(lengths[part] - at, 0, window.stop - at)
                nats[part, window], after[part] = self._score_chunk(tokens[part, window], left, after[part])

        if rows <= step:
            score_rows(0)
        else:
            with ThreadPoolExecutor(NUM_THREADS) as pool:
                list(pool.map(score_rows, range(0, rows, step)))
        return nats, after

    def _score_chunk(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        ends = follow(self.trie, tokens, state)
        nats = np.zeros(tokens.size, np.float32)
        open_ = np.arange(tokens.size)  # the tokens whose n-gram is not found yet, from the longest to the shortest
        for k in range(self.order, 0, -1):
            nodes = ends[k - 1].ravel()
            before = open_ + open_ // tokens.shape[1]  # where the history of each token is; one further is its n-gram
            if k < self.order:
                histories = np.take(nodes, before)
                known = np.flatnonzero(histories != NOWHERE)
                nats[open_[known]] += np.take(self.backoffs[k - 1], histories[known])
            hits = np.take(nodes, before + 1)
            is_hit = hits != NOWHERE
            known = np.flatnonzero(is_hit)
            nats[open_[known]] += np.take(self.log_probs[k - 1], hits[known])
            open_ = open_[~is_hit]
        is_padding = np.arange(tokens.shape[1]) >= lengths[:, None]
        # more than certain: by rounding, or by the back-offs of a file from elsewhere
        scored = np.where(is_padding, np.float32(0), np.minimum(nats, 0).reshape(tokens.shape))
        after = [end[np.arange(len(tokens)), lengths] for end in ends[: self.order - 1]]
        return scored, np.stack(after, axis=1) if after else state

    def tensors(self) -> dict[str, Array]:
        """Everything but the settings, to be saved."""
        found = {}
        for k in range(1, self.order + 1):
            found[f"log_probs.{k}"] = self.log_probs[k - 1]
            if k > 1:
                found[f"words.{k}"] = self.trie.words[k - 1]
            if k < self.order:
                found[f"starts.{k}"] = self.trie.starts[k - 1]
                found[f"backoffs.{k}"] = self.backoffs[k - 1]
        return found

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Array], *, order: int, vocab_size: int, reset_lines: bool
    ) -> NgramModel:
        """The model that was saved; a table that does not fit together is refused."""
        trie = trie_from_tensors(tensors, order=order, vocab_size=vocab_size)
        log_probs = [require_table(tensors, f"log_probs.{k}", "f", trie.num_nodes(k)) for k in range(1, order + 1)]
        backoffs = [require_table(tensors, f"backoffs.{k}", "f", trie.num_nodes(k)) for k in range(1, order)]
        return cls(trie, log_probs, backoffs, reset_lines=reset_lines)


def trie_from_tensors(tensors: Mapping[str, Array], *, order: int, vocab_size: int) -> Trie:
    """The trie that was saved; one whose arrays do not fit together is refused."""
    words = [np.arange(vocab_size + 1)] + [require_table(tensors, f"words.{k}", "u") for k in range(2, order + 1)]
    starts = [require_table(tensors, f"starts.{k}", "ui", len(words[k - 1]) + 1) for k in range(1, order)]
    for k, level in enumerate(starts, start=1):
        if int(level[0]) != 0 or int(level[-1]) != len(words[k]):
            raise DataError(f"starts.{k} and words.{k + 1} of the model do not fit together", hint=DAMAGED)
    return Trie(vocab_size, tuple(words), tuple(starts))
