"""The back-off n-gram model: a probability for every stored n-gram, a back-off weight for every history.

p(w | h): the longest suffix c of h with c w stored gives log p(w | c); every longer suffix of h that is a stored history adds
its back-off weight. The state is the node of each suffix of the history, by length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.tensors import DAMAGED, require_table
from elman.core.workers import num_workers
from elman.counts.trie import NOT_FOUND, Trie
from elman.lm.trace import Trace
from elman.text.units.vocabulary import EOS_ID

CHUNK_TOKENS = 1 << 17  # tokens scored at once; with smaller chunks two threads contend (256 against 212 ns per token)
THREADED_TOKENS = 1 << 14  # more tokens than these are scored in threads


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


@dataclass(frozen=True)
class Match:
    """What of a text is in a trie, order by order: nodes, NOT_FOUND where there is none. N tokens"""

    ngrams: list[Array]  # the n-gram of order k that ends at each token, for k from 1; (N,) each
    histories: list[Array]  # the last k tokens before each token, for k from 1 to order - 1; (N,) each

    def since(self, first: int) -> Match:
        """Without the first tokens."""
        return Match([nodes[first:] for nodes in self.ngrams], [nodes[first:] for nodes in self.histories])

    def states_after(self, tokens: Array) -> Array:
        """The states after some tokens, given by their places. (B,) -> (B, order - 1)"""
        found = np.empty((len(tokens), len(self.histories)), np.int64)
        for k in range(found.shape[1]):
            found[:, k] = self.ngrams[k][tokens]
        return found


def match_ngrams(trie: Trie, tokens: Array, starts: Array, states: Array) -> Match:
    """Match rows of tokens that lie one after another: row i begins at starts[i], in states[i]. (N,), (L,), (L, order - 1)

    What stands before the first row is matched as if nothing had come before it.
    """
    ngrams, histories = [tokens], []
    for k in range(1, trie.order):
        before = np.empty(len(tokens), np.int64)
        before[:1] = NOT_FOUND
        before[1:] = ngrams[-1][:-1]
        before[starts[: len(tokens)]] = states[: len(tokens), k - 1]
        histories.append(before)
        ngrams.append(trie.find(k, before, tokens))
    return Match(ngrams, histories)


class TrieModel(ABC):
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

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        """Log-probability of each token, 0 at padding, and the states after. -> (B, T)"""
        rows, width = tokens.shape
        starts = np.arange(rows) * width
        log_probs, after = self._score_rows(tokens.reshape(-1), starts, starts + lengths, state)
        log_probs = log_probs.reshape(tokens.shape)
        log_probs[np.arange(width) >= lengths[:, None]] = 0
        return log_probs, after

    def score_lines(self, tokens: Array, starts: Array) -> Array:
        """Log-probability of each token of lines that lie one after another, each read alone. (N,), (L,) -> (N,)"""
        ends = np.append(starts[1:], len(tokens))
        return self._score_rows(tokens, starts, ends, self.start(len(starts)))[0]

    def _score_rows(self, tokens: Array, starts: Array, ends: Array, states: Array) -> tuple[Array, Array]:
        """Score rows that lie one after another, in pieces cut anywhere; the states after the rows. -> (N,), (L, order - 1)"""
        log_probs = np.empty(len(tokens), np.float32)
        after = states.copy()
        threads = num_workers() if len(tokens) > THREADED_TOKENS else 1
        num_pieces = max(threads, -(-len(tokens) // CHUNK_TOKENS))
        size = -(-len(tokens) // num_pieces)

        def score_piece(first: int) -> None:
            last = min(first + size, len(tokens))
            begin = max(0, first - (self.order - 1))  # the state at `first` depends on the tokens from here
            rows = slice(*np.searchsorted(starts, [begin, last]).tolist())
            match = match_ngrams(self.trie, tokens[begin:last], starts[rows] - begin, states[rows]).since(first - begin)
            log_probs[first:last] = self._log_probs(match)
            ended = np.arange(*np.searchsorted(ends, [first, last], side="right").tolist())
            ended = ended[ends[ended] > starts[ended]]  # a row without tokens keeps its state
            after[ended] = match.states_after(ends[ended] - 1 - first)

        pieces = range(0, len(tokens), max(1, size))
        if threads == 1:
            list(map(score_piece, pieces))
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(score_piece, pieces))
        return log_probs, after

    @abstractmethod
    def _log_probs(self, match: Match) -> Array:
        """Log-probability of each token of a text. -> (N,) float32"""

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
        return np.minimum(out, 0, out=out)  # see _log_probs

    def _log_probs(self, match: Match) -> Array:
        log_probs = np.empty(len(match.ngrams[0]), np.float32)
        open_ = np.arange(len(log_probs))  # tokens whose n-gram has not been found yet, from the highest order down
        backoffs = np.zeros(len(log_probs), np.float32)  # of their longer histories
        for k in range(self.order, 0, -1):
            if k < self.order:
                histories = np.take(match.histories[k - 1], open_)
                known = np.flatnonzero(histories != NOT_FOUND)
                backoffs[known] += np.take(self.backoffs[k - 1], histories[known])
            ngrams = np.take(match.ngrams[k - 1], open_) if k < self.order else match.ngrams[k - 1]
            is_hit = ngrams != NOT_FOUND
            hits = np.flatnonzero(is_hit)
            log_probs[open_[hits]] = backoffs[hits] + np.take(self.log_probs[k - 1], ngrams[hits])
            missed = np.flatnonzero(~is_hit)
            open_, backoffs = open_[missed], backoffs[missed]
        # log p above 0: by rounding, or by the back-offs of a foreign ARPA file
        return np.minimum(log_probs, 0, out=log_probs)

    def explain(self, tokens: Array, state: Array) -> Trace:
        """The log-probabilities, and the order of the n-gram that answered for each token."""
        match = match_ngrams(self.trie, tokens, np.zeros(1, np.int64), state)
        orders = np.zeros(len(tokens), np.int64)
        for k, ngrams in enumerate(match.ngrams, start=1):
            orders[ngrams != NOT_FOUND] = k
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
        if int(level[0]) != 0 or int(level[-1]) != len(words[k]) or (level[1:] < level[:-1]).any():
            raise DataError(
                f"the model's tables starts.{k} and words.{k + 1} are inconsistent", code="damaged-model", hint=DAMAGED
            )
        if int(words[k].max(initial=0)) > vocab_size:
            raise DataError(
                f"the model's table words.{k + 1} has words that are not in its vocabulary",
                code="damaged-model",
                hint=DAMAGED,
            )
    return Trie(vocab_size, tuple(words), tuple(starts))
