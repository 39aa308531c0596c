"""Interpolated Kneser-Ney smoothing, with one or three discounts per order (Chen & Goodman 1998).

Lower orders count after how many different words an n-gram occurred, not how often. N-grams that start with the start
symbol have no word before them: they keep their raw counts, as do those of the highest order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from elman.core.arrays import Array
from elman.counts.counting import Counts
from elman.counts.interpolation import Share, interpolate, suffix_links, sum_by_history
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch

FALLBACK = (0.5, 1.0, 1.5)  # discounts where the count-of-counts do not allow an estimate


def fit_kneser_ney(
    raw: Counts,
    *,
    modified: bool,
    prune: Sequence[int],
    reset_lines: bool,
    scratch: Scratch,
    report: Callable[[str], None],
) -> NgramModel:
    """Adjust, discount and interpolate counts. `modified`: three discounts per order instead of one."""
    links = suffix_links(raw.trie, scratch)
    adjusted = adjusted_counts(raw, links, scratch)
    tallies = [count_of_counts(counts, scratch) for counts in adjusted.counts]
    share = discounting(kneser_ney_discounts(tallies, modified=modified, report=report))
    return interpolate(adjusted, links, share, raw=raw, prune=prune, reset_lines=reset_lines, scratch=scratch)


def adjusted_counts(raw: Counts, links: Sequence[Array], scratch: Scratch) -> Counts:
    """Raw counts for the highest order and after the start symbol, elsewhere the number of different words before."""
    trie, adjusted = raw.trie, []
    first_after_start = trie.bos
    for k in range(1, trie.order + 1):
        if k == trie.order:
            adjusted.append(raw.counts[k - 1])
            break
        counts = scratch.empty(trie.num_nodes(k), np.uint32)
        counts[:] = 0
        for first in range(0, trie.num_nodes(k + 1), scratch.chunk_rows):
            np.add.at(counts, links[k - 1][first : first + scratch.chunk_rows], np.uint32(1))
            scratch.release_pages()
        # the first n-gram of a stream has nothing before it, but was seen
        np.maximum(counts, raw.counts[k - 1] > 0, out=counts, casting="unsafe")
        counts[first_after_start:] = raw.counts[k - 1][first_after_start:]
        adjusted.append(counts)
        first_after_start = int(trie.starts[k - 1][first_after_start])
    return Counts(trie, tuple(adjusted))


def kneser_ney_discounts(
    tallies: Sequence[Array], *, modified: bool, report: Callable[[str], None]
) -> list[tuple[float, float, float]]:
    """The discounts of each order by its counts of counts, told."""
    discounts = []
    for k, tally in enumerate(tallies, start=1):
        level_discounts, why = estimate_discounts(tally, modified=modified)
        discounts.append(level_discounts)
        kind = "discounts" if modified else "discount"
        values = ", ".join(f"{d:.3f}" for d in (level_discounts if modified else level_discounts[:1]))
        report(f"order {k}: {int(tally.sum()):,} n-grams, {kind} {values}{f' ({why})' if why else ''}")
    return discounts


def count_of_counts(counts: Array, scratch: Scratch) -> Array:
    """How many n-grams have an adjusted count of 0, 1, 2, 3, 4, and more than 4."""
    total = np.zeros(6, np.int64)
    for first in range(0, len(counts), scratch.chunk_rows):
        total += np.bincount(np.minimum(counts[first : first + scratch.chunk_rows], 5), minlength=6)
    return total


def estimate_discounts(n: Array, *, modified: bool) -> tuple[tuple[float, float, float], str]:
    """The discounts for counts of 1, 2, and 3 or more; and why the fall-back is used, if it is."""
    needed = (1, 2, 3, 4) if modified else (1, 2)
    for j in needed:
        if n[j] == 0:
            return _fallback(modified), f"fall-back: no n-gram has an adjusted count of {j}"
    y = n[1] / (n[1] + 2 * n[2])
    if not modified:
        return (y, y, y), ""
    # Chen & Goodman (1998), eq. 26
    d1, d2, d3 = (float(j - (j + 1) * y * n[j + 1] / n[j]) for j in (1, 2, 3))
    for j, d in enumerate((d1, d2, d3), start=1):
        if not 0 <= d <= j:
            why = f"fall-back: the estimate for a count of {j} is {d:.2f}, outside 0 .. {j}"
            return _fallback(modified), why
    return (d1, d2, d3), ""


def _fallback(modified: bool) -> tuple[float, float, float]:
    return FALLBACK if modified else (FALLBACK[0], FALLBACK[0], FALLBACK[0])


def discounting(discounts: Sequence[tuple[float, float, float]]) -> Share:
    """Subtract a discount from every count; the discounted mass goes to the shorter history."""

    def share(
        order: int, counts: Array, history: Array, num_histories: int, is_pruned: Array | None
    ) -> tuple[Array, Array]:
        level = discounts[order - 1]
        bucket = np.minimum(counts, 3)

        def discounted(history: Array, bucket: Array) -> Array:
            tallies = np.bincount(history * 4 + bucket, minlength=4 * num_histories).reshape(num_histories, 4)
            return np.asarray(tallies[:, 1] * level[0] + tallies[:, 2] * level[1] + tallies[:, 3] * level[2])

        total = sum_by_history(counts, history, num_histories)
        left = discounted(history, bucket)
        if is_pruned is not None:
            pruned = sum_by_history(counts, history, num_histories, is_pruned)
            left = left + (pruned - discounted(history[is_pruned], bucket[is_pruned]))
        unseen = total == 0  # never a history: all mass goes to the shorter one
        total[unseen], left[unseen] = 1, 1
        return (counts - np.array((0.0, *level))[bucket]) / total[history], left / total

    return share
