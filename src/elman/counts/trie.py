"""N-grams as a tree of prefixes: the children of a node are the words seen after it, contiguous and sorted.

A node of order k is a row number in the arrays of order k. The rows of order 1 are the words themselves, then the start
symbol. Children of node i of order k are the rows starts[k][i] .. starts[k][i+1] of order k+1, words[k+1] says which words
they are. So a history's whole distribution is a slice, and each token of a text takes one lookup per order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array

NOT_FOUND = -1  # the node of an n-gram that is not in the trie
FEW_LOOKUPS = 24  # up to this many lookups are faster one by one than vectorised
BLOCK_LOOKUPS = 1 << 15  # lookups vectorised together: they fit into the cache, 3x faster than a million at once


@dataclass(frozen=True)
class Trie:
    """words[k-1] are the last words of the n-grams of order k, starts[k-1] where their children start."""

    vocab_size: int
    words: tuple[Array, ...]
    starts: tuple[Array, ...]

    @property
    def order(self) -> int:
        return len(self.words)

    @property
    def bos(self) -> int:
        """The start symbol: the last row of order 1."""
        return self.vocab_size

    def num_nodes(self, order: int) -> int:
        return len(self.words[order - 1])

    def parents(self, order: int, first: int, last: int) -> Array:
        """The parent of each child of nodes first .. last-1 of this order, numbered from `first`."""
        edges = self.starts[order - 1][first : last + 1].astype(np.int64)
        return np.repeat(np.arange(last - first), edges[1:] - edges[:-1])

    def children(self, order: int, node: int) -> slice:
        """The rows of order+1 that continue this node."""
        starts = self.starts[order - 1]
        return slice(int(starts[node]), int(starts[node + 1]))

    def child(self, order: int, node: int, word: int) -> int:
        """The row of order+1 that continues one node by one word, or NOT_FOUND."""
        if node == NOT_FOUND:
            return NOT_FOUND
        rows = self.children(order, node)
        words = self.words[order][rows]
        at = int(np.searchsorted(words, words.dtype.type(word)))
        return rows.start + at if at < len(words) and words[at] == word else NOT_FOUND

    def find(self, order: int, nodes: Array, words: Array) -> Array:
        """The rows of order+1 that continue each node of this order by its word; NOT_FOUND where there is none."""
        if len(nodes) <= FEW_LOOKUPS:
            pairs = zip(nodes.tolist(), words.tolist(), strict=True)
            return np.array([self.child(order, node, word) for node, word in pairs], np.int64)
        found = np.full(len(nodes), NOT_FOUND, np.int64)
        for first in range(0, len(nodes), BLOCK_LOOKUPS):
            part = slice(first, first + BLOCK_LOOKUPS)
            self._find_block(order, nodes[part], words[part], found[part])
        return found

    def _find_block(self, order: int, nodes: Array, words: Array, found: Array) -> None:
        """Binary searches in parallel, each among the children of its node, sorted by their number of steps."""
        starts, table = self.starts[order - 1], self.words[order]
        active = np.flatnonzero(nodes != NOT_FOUND)
        nodes = nodes[active]
        low = np.take(starts, nodes)
        span = np.take(starts, nodes + 1) - low
        wanted = np.take(words, active).astype(table.dtype)
        if not span.all():
            kept = np.flatnonzero(span)  # nodes that have children
            active, low, span, wanted = active[kept], low[kept], span[kept], wanted[kept]
        # Sorted and distinct, a word is at place `word` at most: of 21 steps per token of a novel, frequent words save 7.
        np.minimum(span, wanted.astype(span.dtype) + 1, out=span)
        num_steps = np.frexp(span - 1.0)[1]  # the bits of span - 1
        by_steps = np.argsort(num_steps.astype(np.uint8), kind="stable")[::-1]  # a radix sort
        active, wanted = active[by_steps], wanted[by_steps]
        low, span = low[by_steps].astype(np.int64), span[by_steps].astype(np.int64)
        num_open = len(active)
        while num_open := int(np.count_nonzero(span[:num_open] > 1)):
            open_low, open_span = low[:num_open], span[:num_open]
            half = open_span >> 1
            open_low += half * (np.take(table, open_low + half) <= wanted[:num_open])
            open_span -= half
        hit = np.flatnonzero(np.take(table, low) == wanted)
        found[active[hit]] = low[hit]
