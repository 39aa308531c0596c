"""The back-off n-gram model: a probability for every stored n-gram, a back-off weight for every history.

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
from elman.counts.trie import NOT_FOUND, Trie
from elman.lm.trace import Trace
from elman.text.units.vocabulary import EOS_ID

CHUNK_TOKENS = 1 << 17  # tokens scored at once; with smaller chunks two threads contend (256 against 212 ns per token)
NUM_THREADS = min(2, os.cpu_count() or 1)  # threads for large batches: numpy releases the GIL


def start_nodes(trie: Trie, rows: int, *, reset_lines: bool) -> Array:
    """The nodes of the initial history's suffixes: the start symbol, or in a stream the end of a line."""
    nodes = np.full((rows, trie.order - 1), NOT_FOUND, np.int64)
    nodes[:, :1] = trie.bos if reset_lines else EOS_ID
    return nodes


def advance_nodes(trie: Trie, tokens: Array, nodes: Array) -> Array:
    """The nodes of the history's suffixes after one more token. (B,), (B, N-1) -> (B, N-1)"""
    after = np.full_like(nodes, NOT_FOUND)
    after[:, :1] = tokens[:, None]
    for k in range(2, nodes.shape[1] + 1):
        after[:, k - 1] = trie.find(k - 1, nodes[:, k - 2], tokens)
    return after


def match_ngrams(trie: Trie, tokens: Array, nodes: Array) -> list[Array]:
    """The n-gram of each order that ends at each token. (B, T), (B, N-1) -> N arrays (B, T+1); column 0 is `nodes`."""
    rows, num_tokens = tokens.shape
    levels: list[Array] = []
    for k in range(1, trie.order + 1):
        ends = np.empty((rows, num_tokens + 1), np.int64)
        ends[:, 0] = nodes[:, k - 1] if k < trie.order else NOT_FOUND
        if k == 1:
            ends[:, 1:] = tokens
        else:
            ends[:, 1:] = trie.find(k - 1, levels[-1][:, :-1].ravel(), tokens.ravel()).reshape(rows, num_tokens)
        levels.append(ends)
    return levels


class TrieModel:
    """A model whose state is the trie node of each suffix of the history, (B, order - 1)."""

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
        """The state at the start of a line, or of a stream."""
        return start_nodes(self.trie, rows, reset_lines=self.reset_lines)

    def advance(self, tokens: Array, state: Array) -> Array:
        """The state after one more token per row."""
        return advance_nodes(self.trie, tokens, state)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of several states as one batch."""
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
                if node != NOT_FOUND:
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
        ends = match_ngrams(self.trie, tokens, state)
        nats = np.zeros(tokens.size, np.float32)
        open_ = np.arange(tokens.size)  # tokens whose n-gram has not been found yet, from the highest order down
        for k in range(self.order, 0, -1):
            nodes = ends[k - 1].ravel()
            before = open_ + open_ // tokens.shape[1]  # index of each token's history; the next one is its n-gram
            if k < self.order:
                histories = np.take(nodes, before)
                known = np.flatnonzero(histories != NOT_FOUND)
                nats[open_[known]] += np.take(self.backoffs[k - 1], histories[known])
            hits = np.take(nodes, before + 1)
            is_hit = hits != NOT_FOUND
            known = np.flatnonzero(is_hit)
            nats[open_[known]] += np.take(self.log_probs[k - 1], hits[known])
            open_ = open_[~is_hit]
        is_padding = np.arange(tokens.shape[1]) >= lengths[:, None]
        # log p above 0: by rounding, or by the back-offs of a foreign ARPA file
        scored = np.where(is_padding, np.float32(0), np.minimum(nats, 0).reshape(tokens.shape))
        after = [end[np.arange(len(tokens)), lengths] for end in ends[: self.order - 1]]
        return scored, np.stack(after, axis=1) if after else state

    def explain(self, tokens: Array, state: Array) -> Trace:
        """The log-probabilities, and the order of the n-gram that answered for each token."""
        ends = match_ngrams(self.trie, tokens[None], state)
        orders = np.zeros(len(tokens), np.int64)
        for k in range(1, self.order + 1):
            orders[ends[k - 1][0, 1:] != NOT_FOUND] = k
        log_probs, _ = self.score(tokens[None], np.array([len(tokens)]), state)
        return Trace(log_probs[0], {"orders": orders})

    def tensors(self) -> dict[str, Array]:
        """Everything but the settings, to be saved."""
        arrays = {}
        for k in range(1, self.order + 1):
            arrays[f"log_probs.{k}"] = self.log_probs[k - 1]
            if k > 1:
                arrays[f"words.{k}"] = self.trie.words[k - 1]
            if k < self.order:
                arrays[f"starts.{k}"] = self.trie.starts[k - 1]
                arrays[f"backoffs.{k}"] = self.backoffs[k - 1]
        return arrays

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Array], *, order: int, vocab_size: int, reset_lines: bool
    ) -> NgramModel:
        """The model that was saved; inconsistent tables are refused."""
        trie = trie_from_tensors(tensors, order=order, vocab_size=vocab_size)
        log_probs = [require_table(tensors, f"log_probs.{k}", "f", trie.num_nodes(k)) for k in range(1, order + 1)]
        backoffs = [require_table(tensors, f"backoffs.{k}", "f", trie.num_nodes(k)) for k in range(1, order)]
        return cls(trie, log_probs, backoffs, reset_lines=reset_lines)


def trie_from_tensors(tensors: Mapping[str, Array], *, order: int, vocab_size: int) -> Trie:
    """The trie that was saved; inconsistent arrays are refused."""
    words = [np.arange(vocab_size + 1)] + [require_table(tensors, f"words.{k}", "u") for k in range(2, order + 1)]
    starts = [require_table(tensors, f"starts.{k}", "ui", len(words[k - 1]) + 1) for k in range(1, order)]
    for k, level in enumerate(starts, start=1):
        if int(level[0]) != 0 or int(level[-1]) != len(words[k]):
            raise DataError(f"the model's tables starts.{k} and words.{k + 1} are inconsistent", hint=DAMAGED)
    return Trie(vocab_size, tuple(words), tuple(starts))
