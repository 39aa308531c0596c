"""Sparse non-negative matrix language model (Shazeer, Pelemans & Chelba 2014): n-gram and skip-gram features.

A template says which words of the history form a feature: the last n (n-grams), the last words with gaps (skip-grams), or
single words further back, at any position. p(w | h) = sum of M_iw / sum of M_i* over the features i
of h that were seen in training; `adjustment` defines M. A uniform feature that is always active gives every word a
probability. A context is identified by a hash of its words: colliding contexts are one feature, and p still sums to one.
`B` rows, `T` tokens, `N` tokens in all, `L` the reach: tokens of history that are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.settings import Config
from elman.core.tensors import DAMAGED, require_table
from elman.counts.adjustment import Adjustment, Evidence, bucket, coarse_bucket, code, fit_adjustment
from elman.counts.trie import NOT_FOUND, Trie
from elman.text.units.vocabulary import EOS_ID

SORTED_AT_ONCE = 1 << 25  # keys sorted in one go: 256 MB
HELDOUT_SHARE = 0.05  # share of the training text that fits the adjustment, if no held-out text is given
MIN_HELDOUT_TOKENS, MAX_HELDOUT_TOKENS = 5_000, 100_000  # bounds of that part (at most a fifth of the text)
Template = tuple[tuple[int, ...], ...]  # alternative contexts that share counts, each as distances of its words


class SnmConfig(Config):
    """Sparse non-negative matrix estimation: n-gram and skip-gram features, adjustment fitted on the end of the training text."""

    family: Literal["snm"] = "snm"
    order: int = Field(5, ge=1, le=10, description="n-gram features of 0 to order - 1 words")
    skip_words: int = Field(2, ge=0, le=4, description="words of context in a skip-gram feature; 0 for none")
    max_skip: int = Field(3, ge=1, le=10, description="words a skip-gram may leave out")
    reach: int = Field(
        20, ge=0, le=200, description="single words further back, up to so far, wherever they stand; 0 for none"
    )


def templates(config: SnmConfig) -> list[Template]:
    """The templates of a model: n-grams, skip-grams of adjacent and remote words, and a bag of words further back."""
    result: list[Template] = [(tuple(range(1, length + 1)),) for length in range(config.order)]
    for length in range(1, config.skip_words + 1):
        for adjacent in range(length):
            for skip in range(1, config.max_skip + 1):
                remote = range(adjacent + skip + 1, length + skip + 1)
                result.append(((*range(1, adjacent + 1), *remote),))
    nearest = config.max_skip + 2 if config.skip_words else 2
    if config.reach >= nearest:
        result.append(tuple((distance,) for distance in range(nearest, config.reach + 1)))
    return result


def _reach(kinds: Sequence[Template]) -> int:
    return max((distance for kind in kinds for words in kind for distance in words), default=1)


@dataclass(frozen=True)
class _Text:
    """Tokens with their histories. Two symbols beyond the vocabulary: V starts a line, V + 1 is padding."""

    words: Array  # (B, L + T): the history, then the tokens
    reach: int
    vocab_size: int
    line_positions: Array | None = None  # (B, T) position of each token in its line, if lines are read alone

    @property
    def tokens(self) -> Array:
        return self.words[:, self.reach :].reshape(-1)

    def back(self, distance: int) -> Array:
        """The word `distance` tokens before each token. -> (N,)"""
        words = self.words[:, self.reach - distance : self.words.shape[1] - distance].reshape(-1)
        if self.line_positions is None:
            return words
        before = self.line_positions.reshape(-1) - distance
        return np.where(before >= 0, words, np.where(before == -1, self.vocab_size, self.vocab_size + 1))

    def contexts(self, distances: Sequence[int]) -> tuple[Array, Array]:
        """The tokens that have words at all these distances, and a hash of those words. -> (n,), (n,) uint64"""
        hashes = np.zeros(self.words.shape[0] * (self.words.shape[1] - self.reach), np.uint64)
        exists = np.ones(len(hashes), bool)
        for distance in distances:
            words = self.back(distance)
            exists &= words <= self.vocab_size
            hashes = _mixed(hashes + np.uint64(0x9E3779B97F4A7C15) * (words.astype(np.uint64) + np.uint64(1)))
        where = np.flatnonzero(exists)
        return where, hashes[where] >> np.uint64(_word_bits(self.vocab_size))


def _mixed(x: Array) -> Array:
    """The finaliser of splitmix64: every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _word_bits(vocab_size: int) -> int:
    """Bits for a word in a key; the rest is for the hash of the context."""
    return max(1, (vocab_size - 1).bit_length())


def _start(rows: int, reach: int, *, vocab_size: int, reset_lines: bool) -> Array:
    """Padding, then the start symbol of a line, or in a stream the end of a line. -> (rows, reach)"""
    state = np.full((rows, reach), vocab_size + 1, np.int32)
    state[:, -1] = vocab_size if reset_lines else EOS_ID
    return state


def _training_text(ids: Array, reach: int, *, vocab_size: int, reset_lines: bool) -> _Text:
    start = _start(1, reach, vocab_size=vocab_size, reset_lines=reset_lines)
    words = np.concatenate([start, np.asarray(ids, np.int32)[None]], axis=1)
    line_positions = None
    if reset_lines:
        line_starts = np.flatnonzero(np.concatenate([[True], np.asarray(ids[:-1]) == EOS_ID]))
        lengths = np.diff(line_starts, append=len(ids))
        line_positions = (np.arange(len(ids)) - np.repeat(line_starts, lengths))[None]
    return _Text(words, reach, vocab_size, line_positions)


@dataclass(frozen=True)
class _Counts:
    """The features of one template seen in training, and the words after them: a trie of two levels."""

    trie: Trie  # sorted hashes of contexts, then the words after each
    counts: Array  # C_ij
    totals: Array  # C_i*, by feature

    def link_codes(self, links: Array, rows: Array, targets: Array) -> Array:
        """The buckets of links and of their features, for the adjustment."""
        diversity = self.trie.starts[0][rows + 1] - self.trie.starts[0][rows]
        target = targets[self.trie.words[1][links]]
        return code(bucket(self.totals[rows]), bucket(self.counts[links]), bucket(diversity), target)


def _count(text: _Text, kind: Template) -> _Counts:
    """Count (context, word) keys by sorting, one range of hashes at a time. Skip-grams seen once are dropped."""
    bits = _word_bits(text.vocab_size)
    num_parts = 1 << (len(text.tokens) * len(kind) // SORTED_AT_ONCE).bit_length()
    parts = []
    for part in range(num_parts):
        keys = np.sort(np.concatenate([_keys(text, distances, part, num_parts) for distances in kind]))
        firsts = _run_starts(keys)
        parts.append((keys[firsts], np.diff(firsts, append=len(keys)).astype(np.uint32)))
    keys, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    firsts = _run_starts(keys >> np.uint64(bits))
    totals = np.add.reduceat(counts, firsts, dtype=np.int64)
    is_skip_gram = len(kind[0]) > 1 and kind[0][-1] > len(kind[0])
    if is_skip_gram:  # saves a third of the memory for 0.1 % of perplexity, on PTB and WikiText-2
        is_repeated = np.repeat(totals > 1, np.diff(firsts, append=len(keys)))
        keys, counts, totals = keys[is_repeated], counts[is_repeated], totals[totals > 1]
        firsts = _run_starts(keys >> np.uint64(bits))
    words = (keys & np.uint64((1 << bits) - 1)).astype(np.uint16 if bits <= 16 else np.uint32)
    starts = np.append(firsts, len(keys)).astype(np.uint32 if len(keys) < 1 << 32 else np.uint64)
    return _Counts(Trie(text.vocab_size, (keys[firsts] >> np.uint64(bits), words), (starts,)), counts, totals)


def _run_starts(values: Array) -> Array:
    """Where runs of equal values begin in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])[: len(values)])


def _keys(text: _Text, distances: Sequence[int], part: int, num_parts: int) -> Array:
    """Context and word as one number, for the contexts whose hash falls in this part of the range."""
    bits = _word_bits(text.vocab_size)
    where, hashes = text.contexts(distances)
    if num_parts > 1:
        in_part = hashes >> np.uint64(64 - bits - (num_parts - 1).bit_length()) == part
        where, hashes = where[in_part], hashes[in_part]
    return np.asarray(hashes << np.uint64(bits) | text.tokens[where].astype(np.uint64))


def _find_rows(trie: Trie, hashes: Array) -> Array:
    """The features with these contexts; NOT_FOUND where there is none."""
    known = trie.words[0]
    if len(known) == 0:
        return np.full(len(hashes), NOT_FOUND)
    rows = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.where(known[rows] == hashes, rows, NOT_FOUND)


def _gather(counted: _Counts, text: _Text, kind: Template, *, token_numbers: Array, targets: Array) -> Evidence:
    """The statistics of one template on held-out text; tokens numbered NOT_FOUND are left out."""
    tokens, uses, links = [], [], []
    for distances in kind:
        where, hashes = text.contexts(distances)
        where, hashes = where[token_numbers[where] != NOT_FOUND], hashes[token_numbers[where] != NOT_FOUND]
        rows = _find_rows(counted.trie, hashes)
        tokens.append(token_numbers[where][rows != NOT_FOUND])
        uses.append(rows[rows != NOT_FOUND])
        links.append(counted.trie.find(1, rows, text.tokens[where])[rows != NOT_FOUND])
    use_tokens, link = np.concatenate(tokens), np.concatenate(links)
    active, use_rows = np.unique(np.concatenate(uses), return_inverse=True)
    hit = np.flatnonzero(link != NOT_FOUND)
    hit_rows = active[use_rows[hit]]
    # all links of the active features, summed by bucket
    starts = counted.trie.starts[0].astype(np.int64)
    sizes = starts[active + 1] - starts[active]
    all_links = np.arange(sizes.sum()) + np.repeat(starts[active] - (np.cumsum(sizes) - sizes), sizes)
    all_rows = np.repeat(np.arange(len(active)), sizes)
    shares = counted.counts[all_links] / counted.totals[active][all_rows]
    keys = all_rows * (1 << 24) + counted.link_codes(all_links, active[all_rows], targets)
    kinds, inverse = np.unique(keys, return_inverse=True)
    return Evidence(
        num_rows=len(active),
        link_rows=kinds >> 24,
        link_codes=kinds & ((1 << 24) - 1),
        link_shares=np.bincount(inverse, weights=shares, minlength=len(kinds)),
        use_tokens=use_tokens,
        use_rows=use_rows,
        hit_tokens=use_tokens[hit],
        hit_codes=counted.link_codes(link[hit], hit_rows, targets),
        hit_shares=counted.counts[link[hit]] / counted.totals[hit_rows],
    )


@dataclass(frozen=True)
class Matrix:
    """The rows of one template: M_ij for the links that exist, and their sums M_i*."""

    trie: Trie
    values: Array  # M_ij, float32
    sums: Array  # M_i*, float32


def _matrix(counted: _Counts, adjustment: Adjustment, template: int, targets: Array) -> Matrix:
    starts = counted.trie.starts[0].astype(np.int64)
    values = np.empty(len(counted.counts), np.float32)
    sums = np.empty(len(counted.totals), np.float32)
    for first in range(0, len(sums), 1 << 18):  # codes take six times the memory of the result
        last = min(first + (1 << 18), len(sums))
        rows = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
        links = slice(int(starts[first]), int(starts[last]))
        codes = counted.link_codes(np.arange(links.start, links.stop), rows, targets)
        values[links] = adjustment.factors(template, codes) * counted.counts[links] / counted.totals[rows]
        sums[first:last] = np.add.reduceat(values[links], starts[first:last] - links.start, dtype=np.float64)
    return Matrix(counted.trie, values, sums)


def fit_snm(
    config: SnmConfig,
    ids: Array,
    *,
    vocab_size: int,
    reset_lines: bool,
    heldout_ids: Array | None,
    report: Callable[[str], None],
) -> SnmModel:
    """Count features, fit the adjustment to held-out text (by default the end of `ids`), then count all of `ids`."""
    kinds = templates(config)
    reach = _reach(kinds)
    counted_ids, fitted_ids = (ids, heldout_ids) if heldout_ids is not None else _split(ids, reset_lines=reset_lines)
    fitted_ids = np.asarray(fitted_ids[:MAX_HELDOUT_TOKENS], np.int64)
    text, fitted = (
        _training_text(part, reach, vocab_size=vocab_size, reset_lines=reset_lines)
        for part in (counted_ids, fitted_ids)
    )
    word_counts = np.bincount(counted_ids, minlength=vocab_size)
    is_fitted = np.full(len(fitted_ids), True)
    if heldout_ids is None and np.bincount(ids, minlength=vocab_size).all():
        # Words missing from the shortened text will be known once everything is counted.
        is_fitted = word_counts[fitted_ids] > 0
    numbers = np.where(is_fitted, np.cumsum(is_fitted) - 1, NOT_FOUND)
    targets = coarse_bucket(word_counts)
    evidence = [_gather(_count(text, kind), fitted, kind, token_numbers=numbers, targets=targets) for kind in kinds]
    fit = fit_adjustment(evidence, num_tokens=int(is_fitted.sum()), vocab_size=vocab_size)
    where = "at the end of the training text" if heldout_ids is None else "held out"
    report(f"adjustment fitted on {is_fitted.sum():,} tokens {where}, perplexity {np.exp(fit.nats_per_token):.2f}")
    del evidence
    if heldout_ids is None:
        text = _training_text(ids, reach, vocab_size=vocab_size, reset_lines=reset_lines)
        targets = coarse_bucket(np.bincount(ids, minlength=vocab_size))
    matrices = [_matrix(_count(text, kind), fit.adjustment, i, targets) for i, kind in enumerate(kinds)]
    num_features, num_links = sum(len(m.sums) for m in matrices), sum(len(m.values) for m in matrices)
    report(f"{len(kinds)} templates, {num_features:,} features, {num_links:,} links")
    return SnmModel(config, matrices, floor=fit.adjustment.floor, vocab_size=vocab_size, reset_lines=reset_lines)


def _split(ids: Array, *, reset_lines: bool) -> tuple[Array, Array]:
    """The text without its end, and its end; cut between lines if lines are read alone."""
    wanted = min(max(int(HELDOUT_SHARE * len(ids)), MIN_HELDOUT_TOKENS), len(ids) // 5)
    cut = len(ids) - min(wanted, MAX_HELDOUT_TOKENS)
    if reset_lines:
        ends = np.flatnonzero(np.asarray(ids[:cut]) == EOS_ID)
        cut = int(ends[-1]) + 1 if len(ends) else len(ids)
    return ids[:cut], ids[cut:]


class SnmModel:
    """The matrices of all templates. A state is the last L tokens of each row, (B, L)."""

    def __init__(
        self, config: SnmConfig, matrices: Sequence[Matrix], *, floor: float, vocab_size: int, reset_lines: bool
    ) -> None:
        self.config = config
        self.matrices = tuple(matrices)
        self.floor = floor  # the weight of the uniform distribution
        self.vocab_size = vocab_size
        self.reset_lines = reset_lines
        self.templates = templates(config)
        self.reach = _reach(self.templates)

    def start(self, rows: int) -> Array:
        """The state before the first token. -> (rows, L)"""
        return _start(rows, self.reach, vocab_size=self.vocab_size, reset_lines=self.reset_lines)

    def predict(self, state: Array) -> Array:
        """Log-probabilities: the weights of all active features, summed and normalised. -> (B, V)"""
        numerators = np.full((len(state), self.vocab_size), self.floor / self.vocab_size)
        denominators = np.full(len(state), self.floor)
        text = _Text(np.concatenate([state, state[:, :1]], axis=1), self.reach, self.vocab_size)
        for matrix, kind in zip(self.matrices, self.templates, strict=True):
            for distances in kind:
                where, hashes = text.contexts(distances)
                for b, row in zip(where.tolist(), _find_rows(matrix.trie, hashes).tolist(), strict=True):
                    if row != NOT_FOUND:
                        links = matrix.trie.children(1, row)
                        numerators[b, matrix.trie.words[1][links]] += matrix.values[links]
                        denominators[b] += matrix.sums[row]
        return np.asarray(np.log(numerators / denominators[:, None]), np.float32)

    def advance(self, tokens: Array, state: Array) -> Array:
        """The history one token further."""
        return np.concatenate([state[:, 1:], np.asarray(tokens, np.int32)[:, None]], axis=1)

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        """Log-probability of each token given all before it, 0 at padding, and the histories after. -> (B, T)"""
        words = np.concatenate([state, np.asarray(tokens, np.int32)], axis=1)
        text = _Text(words, self.reach, self.vocab_size)
        numerators = np.full(tokens.size, self.floor / self.vocab_size)
        denominators = np.full(tokens.size, self.floor)
        for matrix, kind in zip(self.matrices, self.templates, strict=True):
            for distances in kind:
                where, hashes = text.contexts(distances)
                rows = _find_rows(matrix.trie, hashes)
                where, rows = where[rows != NOT_FOUND], rows[rows != NOT_FOUND]
                denominators[where] += matrix.sums[rows]
                links = matrix.trie.find(1, rows, text.tokens[where])
                numerators[where[links != NOT_FOUND]] += matrix.values[links[links != NOT_FOUND]]
        nats = np.log(numerators / denominators).astype(np.float32).reshape(tokens.shape)
        nats[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
        after = np.asarray(lengths)[:, None] + np.arange(self.reach)
        return nats, np.take_along_axis(words, after, axis=1)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of several states as one batch."""
        return np.concatenate(states)

    def tensors(self) -> dict[str, Array]:
        """Everything but the settings, to be saved."""
        arrays: dict[str, Array] = {"floor": np.array([self.floor])}
        for i, matrix in enumerate(self.matrices):
            arrays[f"{i}.contexts"], arrays[f"{i}.words"] = matrix.trie.words
            arrays[f"{i}.starts"] = matrix.trie.starts[0]
            arrays[f"{i}.values"], arrays[f"{i}.sums"] = matrix.values, matrix.sums
        return arrays

    @classmethod
    def from_tensors(
        cls, config: SnmConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> SnmModel:
        """The model that was saved."""
        matrices = []
        for i in range(len(templates(config))):
            contexts, words = require_table(tensors, f"{i}.contexts", "u"), require_table(tensors, f"{i}.words", "u")
            starts = require_table(tensors, f"{i}.starts", "u", len(contexts) + 1)
            if int(starts[0]) != 0 or int(starts[-1]) != len(words):
                raise DataError(
                    f"the model's tables {i}.starts and {i}.words are inconsistent", code="damaged-model", hint=DAMAGED
                )
            values = require_table(tensors, f"{i}.values", "f", len(words))
            sums = require_table(tensors, f"{i}.sums", "f", len(contexts))
            matrices.append(Matrix(Trie(vocab_size, (contexts, words), (starts,)), values, sums))
        floor = float(require_table(tensors, "floor", "f", 1)[0])
        return cls(config, matrices, floor=floor, vocab_size=vocab_size, reset_lines=reset_lines)
