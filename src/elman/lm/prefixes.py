"""The log-probability of many rows that begin alike, every shared beginning read once: the hypotheses of n-best lists.

Sorted, a row shares its first tokens with the row before it. Where rows part, the text is cut; what lies between two cuts
is a segment, and a segment begins in the state that its parent ended in. Segments of one depth are scored side by side.
Knows models only by the protocol. `B` rows, `T` tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel, S, refuse_nan, select

CHUNK_TOKENS = 1 << 14  # scored in one call, padding counted
SIMILAR = 0.5  # segments scored in one call are at least so long, in parts of the longest: few calls, little padding


@dataclass(frozen=True)
class Segment:
    """Tokens `begin` to `end` of a row, read after the parent segment; of no parent: after the start."""

    row: int
    begin: int
    end: int
    parent: int | None
    depth: int  # number of segments before it


@dataclass(frozen=True)
class PrefixTree:
    """Rows cut where they part."""

    rows: Sequence[Array]
    segments: Sequence[Segment]  # parents before their children
    last: Sequence[int | None]  # the segment that each row ends in; None for a row without tokens

    @property
    def num_tokens(self) -> int:
        """Tokens that are read, each shared one counted once."""
        return sum(one.end - one.begin for one in self.segments)


def prefix_tree(rows: Sequence[Array]) -> PrefixTree:
    """Cut rows of ids where they part from each other."""
    keys = [row.tolist() for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    parents: list[
        tuple[int, int]
    ] = []  # of each row in order: the place in order that it parts from, after how many tokens
    cuts: list[set[int]] = [{len(keys[row])} for row in order]
    path: list[tuple[int, int]] = []  # who read the current row's tokens: from which token on, and its place in order
    for place, row in enumerate(order):
        shared = 0 if place == 0 else _num_shared(rows[order[place - 1]], rows[row])
        while path and path[-1][0] >= shared:
            path.pop()
        owner = path[-1][1] if path else place
        cuts[owner].add(shared)
        parents.append((owner, shared))
        if shared < len(keys[row]):
            path.append((shared, place))
    segments: list[Segment] = []
    ending: dict[tuple[int, int], int] = {}  # (place in order, end) -> segment
    last: list[int | None] = [None] * len(rows)
    for place, row in enumerate(order):
        owner, begin = parents[place]
        parent = ending[owner, begin] if begin else None
        for end in sorted(cut for cut in cuts[place] if cut > begin):
            depth = 0 if parent is None else segments[parent].depth + 1
            segments.append(Segment(row, begin, end, parent, depth))
            parent = ending[place, end] = len(segments) - 1
            begin = end
        last[row] = parent
    return PrefixTree(rows, segments, last)


def _num_shared(left: Array, right: Array) -> int:
    """Tokens that both begin with."""
    size = min(len(left), len(right))
    differs = left[:size] != right[:size]
    return int(differs.argmax()) if differs.any() else size


def score_tree(lm: FreeModel[S], tree: PrefixTree, *, chunk_tokens: int = CHUNK_TOKENS) -> Array:
    """The log-probability of each row, read from the start. -> (B,) float64"""
    totals = np.zeros(len(tree.segments))
    depths = np.array([segment.depth for segment in tree.segments], dtype=np.int64)
    has_children = np.zeros(len(tree.segments), dtype=bool)
    has_children[[one.parent for one in tree.segments if one.parent is not None]] = True
    state: S | None = None
    places: dict[int | None, int] = {}  # of segments in the state of the depth above
    for depth in range(int(depths.max(initial=-1)) + 1):
        kept: list[S] = []
        kept_places: dict[int | None, int] = {}
        for group in _groups(tree, np.flatnonzero(depths == depth), chunk_tokens):
            parents = [tree.segments[one].parent for one in group]
            before = (
                lm.start(len(group)) if state is None else select(state, np.array([places[one] for one in parents]))
            )
            tokens, lengths = _padded(tree.rows, [tree.segments[one] for one in group])
            log_probs, after = lm.score(tokens, lengths, before)
            totals[group] = refuse_nan(log_probs).sum(axis=1, dtype=np.float64)
            totals[group] += [0.0 if one is None else totals[one] for one in parents]
            branching = np.flatnonzero(has_children[group])
            if len(branching):
                kept_places.update(zip(group[branching].tolist(), itertools.count(len(kept_places)), strict=False))
                kept.append(select(after, branching))
        if kept:
            state, places = kept[0] if len(kept) == 1 else lm.join(kept), kept_places
    return np.array([0.0 if one is None else totals[one] for one in tree.last])


def _groups(tree: PrefixTree, numbers: Array, chunk_tokens: int) -> list[Array]:
    """Segments of like length, as many as are chunk_tokens tokens."""
    lengths = np.array([tree.segments[one].end - tree.segments[one].begin for one in numbers])
    order = np.argsort(-lengths, kind="stable")
    falling = -lengths[order]
    groups, first = [], 0
    while first < len(order):
        longest = int(-falling[first])
        similar = int(np.searchsorted(falling, -SIMILAR * longest, side="right"))
        end = min(similar, first + max(1, chunk_tokens // longest))
        groups.append(numbers[order[first:end]])
        first = end
    return groups


def _padded(rows: Sequence[Array], segments: Sequence[Segment]) -> tuple[Array, Array]:
    """The tokens of segments, zeros behind each, and their lengths. -> (B, T) int64, (B,)"""
    lengths = np.array([one.end - one.begin for one in segments])
    tokens = np.zeros((len(segments), int(lengths.max())), dtype=np.int64)
    for place, one in enumerate(segments):
        tokens[place, : lengths[place]] = rows[one.row][one.begin : one.end]
    return tokens, lengths
