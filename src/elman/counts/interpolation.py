"""Interpolated smoothing: p(w | c) = u(w | c) + gamma(c) p(w | c without its oldest word), order by order.

Kneser-Ney, absolute discounting, Witten-Bell and Jelinek-Mercer differ only in how they split a history's probability mass
between the words seen after it, u, and the shorter history, gamma (a `Share` function); the rest is here. A share adds whole
numbers only and applies the same formula to each entry, so that another engine finds the same tables to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from elman.core.arrays import Array
from elman.counts.counting import Counts, last_at_most
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.counts.trie import Trie

# (order, counts of n-grams, the history of each, number of histories, which are pruned: None for none)
# -> u of each n-gram, gamma of each history with what its pruned n-grams leave to the shorter one
Share = Callable[[int, Array, Array, int, Array | None], tuple[Array, Array]]


def chunks_of_nodes(trie: Trie, order: int, chunk_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of nodes of this order that together have about chunk_rows children."""
    starts, first, num_nodes = trie.starts[order - 1], 0, trie.num_nodes(order)
    while first < num_nodes:
        last = last_at_most(starts, int(starts[first]) + chunk_rows)
        last = min(max(last, first + 1), num_nodes, first + chunk_rows)
        yield first, last
        first = last


def suffix_links(trie: Trie, scratch: Scratch) -> list[Array]:
    """For each n-gram of order k, the n-gram of order k-1 without its oldest word. -> links[k-2] for order k"""
    links: list[Array] = []
    for k in range(2, trie.order + 1):
        if k == 2:
            links.append(trie.words[1])  # the nodes of order 1 are the words
            continue
        parent_links, rows = links[-1], trie.num_nodes(k)
        linked = scratch.empty(rows, np.uint32 if rows < 2**32 else np.int64)

        def link(span: tuple[int, int], k: int = k, parent_links: Array = parent_links) -> Array:
            first, last = span
            parents = trie.parents(k - 1, first, last)
            part = slice(int(trie.starts[k - 2][first]), int(trie.starts[k - 2][last]))
            return trie.find(k - 2, parent_links[first:last].astype(np.int64)[parents], trie.words[k - 1][part])

        at = 0
        for nodes in scratch.map(link, chunks_of_nodes(trie, k - 1, scratch.chunk_rows)):
            linked[at : at + len(nodes)] = nodes
            at += len(nodes)
        links.append(linked)
    return links


def interpolate(
    counts: Counts,
    links: Sequence[Array],
    share: Share,
    *,
    raw: Counts,
    prune: Sequence[int],
    reset_lines: bool,
    scratch: Scratch,
) -> NgramModel:
    """The interpolated model of these counts, without the n-grams of raw count <= prune[k-1].

    The mass of pruned n-grams goes to the shorter history, so every distribution still sums to one.
    """
    trie, vocab_size = counts.trie, counts.trie.vocab_size
    lower = unigram_probs(counts.counts[0], share)
    log_probs, backoffs, is_kept = [], [], [np.ones(vocab_size + 1, bool)]
    for k in range(2, trie.order + 1):
        probs = scratch.empty(trie.num_nodes(k), np.float32)
        backoff = scratch.empty(trie.num_nodes(k - 1), np.float32)
        level_kept = scratch.empty(trie.num_nodes(k), bool)
        threshold = prune[min(k, len(prune)) - 1] if prune else 0

        def work(
            span: tuple[int, int], k: int = k, lower: Array = lower, threshold: int = threshold
        ) -> tuple[Array, Array, Array]:
            first, last = span
            parents = trie.parents(k - 1, first, last)
            rows = slice(int(trie.starts[k - 2][first]), int(trie.starts[k - 2][last]))
            level = counts.counts[k - 1][rows].astype(np.int64)
            kept = np.ones(len(level), bool) if threshold == 0 else raw.counts[k - 1][rows] > threshold
            u, gamma = share(k, level, parents, last - first, None if kept.all() else ~kept)
            p = u + gamma[parents] * np.take(lower, links[k - 2][rows])
            with np.errstate(divide="ignore"):
                return p.astype(np.float32), np.log(gamma, dtype=np.float32), kept

        row = node = 0
        for p, log_gamma, kept in scratch.map(work, chunks_of_nodes(trie, k - 1, scratch.chunk_rows)):
            probs[row : row + len(p)] = p
            level_kept[row : row + len(p)] = kept
            backoff[node : node + len(log_gamma)] = log_gamma
            row, node = row + len(p), node + len(log_gamma)
        log_probs.append(_log_in_place(lower, scratch))
        backoffs.append(backoff)
        is_kept.append(level_kept)
        lower = probs
    log_probs.append(_log_in_place(lower, scratch))
    model = NgramModel(trie, tuple(log_probs), tuple(backoffs), reset_lines=reset_lines)
    return pruned(model, is_kept) if any(prune) else model


def unigram_probs(counts: Array, share: Share) -> Array:
    """p of each word, and 0 for the start symbol, which is never predicted. counts: of the words and of the start symbol"""
    vocab_size = len(counts) - 1
    u, gamma = share(1, counts[:vocab_size].astype(np.int64), np.zeros(vocab_size, np.int64), 1, None)
    probs = np.zeros(vocab_size + 1, np.float32)
    probs[:vocab_size] = u + gamma[0] / vocab_size
    return probs


def sum_by_history(counts: Array, history: Array, num_histories: int, is_wanted: Array | None = None) -> Array:
    """The sum of the counts of each history, or of those that are wanted; exact."""
    if is_wanted is not None:
        counts, history = counts[is_wanted], history[is_wanted]
    return np.bincount(history, weights=counts, minlength=num_histories)


def _log_in_place(probs: Array, scratch: Scratch) -> Array:
    def log(span: slice) -> None:
        with np.errstate(divide="ignore"):
            np.log(probs[span], out=probs[span])

    spans = [slice(first, first + scratch.chunk_rows) for first in range(0, len(probs), scratch.chunk_rows)]
    for _ in scratch.map(log, spans):
        pass
    return probs


def pruned(model: NgramModel, is_kept: Sequence[Array]) -> NgramModel:
    """The model with only the n-grams where is_kept[k-1] is true; prefixes of a kept n-gram must be kept."""
    trie = model.trie
    words, starts = [trie.words[0]], []
    log_probs, backoffs = [model.log_probs[0]], list(model.backoffs[:1])
    for k in range(2, trie.order + 1):
        kept = is_kept[k - 1]
        words.append(trie.words[k - 1][kept])
        log_probs.append(model.log_probs[k - 1][kept])
        if k < trie.order:
            backoffs.append(model.backoffs[k - 1][kept])
        kept_before = np.concatenate(([0], np.cumsum(kept)))  # rows kept before each row
        edges = kept_before[trie.starts[k - 2]]
        nodes = np.flatnonzero(is_kept[k - 2])
        starts.append(np.append(edges[nodes], edges[-1]).astype(trie.starts[k - 2].dtype))
    return NgramModel(
        Trie(trie.vocab_size, tuple(words), tuple(starts)),
        tuple(log_probs),
        tuple(backoffs),
        reset_lines=model.reset_lines,
    )
