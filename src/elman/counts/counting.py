"""Counts every n-gram of a text, order by order, by sorting positions. Knows nothing of probabilities.

All positions are first sorted by the word there. Each further order extends the n-grams by one word and sorts only inside
groups of equal n-grams with more than one member. Group number, next word and position are packed into one 64-bit
integer, so that values are sorted directly: ten times faster than sorting indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.counts.scratch import Scratch
from elman.counts.trie import Trie
from elman.text.units.vocabulary import EOS_ID


@dataclass(frozen=True)
class Counts:
    """A trie, and how often each of its n-grams occurred: counts[k-1] for order k."""

    trie: Trie
    counts: tuple[Array, ...]


def count_ngrams(ids: Array, *, order: int, vocab_size: int, reset_lines: bool, scratch: Scratch) -> Counts:
    """All n-grams up to `order` in a stream of ids whose lines end with EOS_ID."""
    scratch.plan(len(ids), order)
    text = _with_starts(ids, vocab_size, reset_lines, scratch)
    bos = vocab_size
    num_slots = len(text) - 1  # the last symbol only ends the last n-gram
    word_type = smallest_type(vocab_size + 1)
    positions = scratch.empty(num_slots, np.uint32 if len(text) < 2**32 else np.int64)
    offsets = _sort_by_word(text, positions, vocab_size + 1, scratch)

    unigrams = np.diff(offsets)
    # the start symbol is never predicted
    unigrams[bos if reset_lines else EOS_ID] -= unigrams[bos] if reset_lines else 1
    words, starts, counts = [np.arange(vocab_size + 1, dtype=word_type)], [], [unigrams]
    for k in range(1, order):
        num_nodes = len(offsets) - 1
        new_words = scratch.empty(num_slots, word_type)
        new_offsets = scratch.empty(num_slots + 1, np.uint32 if len(text) < 2**32 else np.int64)
        new_offsets[0] = 0
        new_starts = scratch.empty(num_nodes + 1, new_offsets.dtype)
        new_starts[0] = 0
        node = row = slot = 0
        for chunk in scratch.map(
            lambda span, k=k, offsets=offsets: _extend(text, positions, offsets, span, k, bos),  # type: ignore[misc]
            _chunks(offsets, scratch.chunk_rows),
        ):
            rows, members = len(chunk.words), len(chunk.positions)
            new_words[row : row + rows] = chunk.words
            new_offsets[row + 1 : row + rows + 1] = slot + np.cumsum(chunk.counts)
            new_starts[node + 1 : node + len(chunk.num_children) + 1] = row + np.cumsum(chunk.num_children)
            positions[slot : slot + members] = chunk.positions  # in place: no order has more positions than the last
            node, row, slot = node + len(chunk.num_children), row + rows, slot + members
        words.append(new_words[:row])
        starts.append(new_starts)
        offsets, num_slots = new_offsets[: row + 1], slot
        counts.append(_differences(offsets, scratch))
    return Counts(Trie(vocab_size, tuple(words), tuple(starts)), tuple(counts))


def _with_starts(ids: Array, vocab_size: int, reset_lines: bool, scratch: Scratch) -> Array:
    """The text with a start symbol before each line (one EOS before a stream), and one start symbol at the end."""
    bos, num_starts = vocab_size, 1
    if reset_lines:
        num_starts = sum(int(np.count_nonzero(part == EOS_ID)) for part in _parts(ids, scratch.chunk_rows))
    text = scratch.empty(len(ids) + num_starts + 1, smallest_type(vocab_size + 1))
    text[-1] = bos
    if not reset_lines:
        text[0] = EOS_ID
        text[1:-1] = ids
        return text
    at, line_starts = 0, True
    for part in _parts(ids, scratch.chunk_rows):
        after = np.flatnonzero(part == EOS_ID) + 1
        before = np.concatenate(([0] if line_starts else [], after[after < len(part)])).astype(np.int64)
        marked = np.insert(part.astype(text.dtype), before, bos)
        text[at : at + len(marked)] = marked
        at += len(marked)
        line_starts = part[-1] == EOS_ID
    return text


def _parts(ids: Array, size: int) -> Iterator[Array]:
    for first in range(0, len(ids), size):
        yield ids[first : first + size]


def _sort_by_word(text: Array, positions: Array, num_words: int, scratch: Scratch) -> Array:
    """Fill `positions` with all positions but the last, sorted by the word there. -> where each word's positions start"""
    num_slots = len(positions)
    spans = [(first, min(first + scratch.chunk_rows, num_slots)) for first in range(0, num_slots, scratch.chunk_rows)]
    totals = np.zeros(num_words + 1, np.int64)
    for counted in scratch.map(lambda span: np.bincount(text[slice(*span)], minlength=num_words), spans):
        totals[1:] += counted
    offsets = np.cumsum(totals)
    free = offsets[:-1].copy()  # next free slot of each word

    def sort_span(span: tuple[int, int]) -> tuple[Array, Array, Array]:
        first, last = span
        shift = int(last - first).bit_length()
        keys = np.sort(
            (text[first:last].astype(np.uint64) << np.uint64(shift)) | np.arange(last - first, dtype=np.uint64)
        )
        words = (keys >> np.uint64(shift)).astype(np.int64)
        edges = np.flatnonzero(np.concatenate(([True], words[1:] != words[:-1])))
        return (
            words[edges],
            np.diff(np.append(edges, len(words))),
            (keys & np.uint64((1 << shift) - 1)).astype(np.int64) + first,
        )

    for words, sizes, sorted_positions in scratch.map(sort_span, spans):
        within = np.arange(len(sorted_positions)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        positions[np.repeat(free[words], sizes) + within] = sorted_positions
        free[words] += sizes
    return offsets


@dataclass(frozen=True)
class _Chunk:
    positions: Array  # sorted by their n-gram, now one word longer
    words: Array  # the last word of each n-gram
    counts: Array  # its occurrences
    num_children: Array  # number of extensions of each n-gram of the order before


def _chunks(offsets: Array, chunk_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole groups with about chunk_rows members each; a single group may have more."""
    num_groups, first = len(offsets) - 1, 0
    while first < num_groups:
        last = last_at_most(offsets, int(offsets[first]) + chunk_rows)
        last = min(max(last, first + 1), num_groups)
        yield first, last
        first = last


def _extend(text: Array, positions: Array, offsets: Array, span: tuple[int, int], k: int, bos: int) -> _Chunk:
    """Split the groups of equal n-grams of order k in a range by the next word."""
    bounds = offsets[span[0] : span[1] + 1].astype(np.int64)
    num_groups = span[1] - span[0]
    if num_groups == 1:
        return _extend_one(text, positions[bounds[0] : bounds[1]], k, bos)
    at = positions[bounds[0] : bounds[-1]].astype(np.int64)
    group = np.repeat(np.arange(num_groups), np.diff(bounds))
    word = np.take(text, at + k, mode="clip")
    is_extended = word != bos  # an n-gram does not cross the start of a line
    if not is_extended.all():
        at, group, word = at[is_extended], group[is_extended], word[is_extended]
    if len(at) == 0:
        return _Chunk(at, word, at, np.zeros(num_groups, np.int64))
    edge = np.empty(len(at) + 1, bool)
    edge[0] = edge[-1] = True
    np.not_equal(group[1:], group[:-1], out=edge[1:-1])
    shared = np.flatnonzero(~(edge[1:] & edge[:-1]))  # members of groups of two or more
    if len(shared):
        at[shared], word[shared] = _sort_within(np.cumsum(edge[shared]), word[shared], at[shared])
    edge[1:-1] |= word[1:] != word[:-1]
    first = np.flatnonzero(edge)
    children = np.bincount(group[first[:-1]], minlength=num_groups)
    return _Chunk(at, word[first[:-1]], np.diff(first), children)


def _extend_one(text: Array, positions: Array, k: int, bos: int) -> _Chunk:
    """_extend for one group, in a third of the memory: that of a frequent word may be larger than any chunk."""
    word = np.take(text, positions.astype(np.int64) + k, mode="clip")
    is_extended = word != bos
    if not is_extended.all():
        positions, word = positions[is_extended], word[is_extended]
    position_bits = np.uint64(int(positions.max()).bit_length() if len(positions) else 0)
    keys = word.astype(np.uint64)
    keys <<= position_bits
    keys |= positions
    keys.sort()
    word = (keys >> position_bits).astype(word.dtype)
    keys &= (np.uint64(1) << position_bits) - np.uint64(1)
    first = np.flatnonzero(np.concatenate(([True], word[1:] != word[:-1]))) if len(word) else np.zeros(0, np.int64)
    return _Chunk(keys.view(np.int64), word[first], np.diff(first, append=len(word)), np.array([len(first)]))


def _sort_within(group: Array, word: Array, position: Array) -> tuple[Array, Array]:
    """Sort by group, word and position, all packed into 64 bits. Groups are already in order."""
    word_bits = int(word.max()).bit_length()
    position_bits = int(position.max()).bit_length()
    group_bits = int(group[-1]).bit_length()
    if group_bits + word_bits + position_bits > 64:  # does not fit: sort the two halves of the groups separately
        middle = int(np.searchsorted(group, group[len(group) // 2]))
        if middle == 0:
            middle = int(np.searchsorted(group, group[0], side="right"))
        if middle == len(group):  # a single group: sort by word
            order = np.argsort(word, kind="stable")
            return position[order], word[order]
        left = _sort_within(group[:middle] - group[0], word[:middle], position[:middle])
        right = _sort_within(group[middle:] - group[middle], word[middle:], position[middle:])
        return np.concatenate((left[0], right[0])), np.concatenate((left[1], right[1]))
    keys = (group.astype(np.uint64) << np.uint64(word_bits)) | word
    keys <<= np.uint64(position_bits)
    keys |= position.astype(np.uint64)
    keys.sort()
    word = ((keys >> np.uint64(position_bits)) & np.uint64((1 << word_bits) - 1)).astype(word.dtype)
    return (keys & np.uint64((1 << position_bits) - 1)).astype(np.int64), word


def last_at_most(offsets: Array, bound: int) -> int:
    """The index of the last of these sorted offsets that is at most the bound."""
    bound = min(bound, int(np.iinfo(offsets.dtype).max))
    # searched for in the array's dtype: otherwise numpy converts the whole array first
    return int(np.searchsorted(offsets, offsets.dtype.type(bound), side="right")) - 1


def _differences(offsets: Array, scratch: Scratch) -> Array:
    counts = scratch.empty(len(offsets) - 1, np.uint32)
    for first in range(0, len(counts), scratch.chunk_rows):
        last = min(first + scratch.chunk_rows, len(counts))
        counts[first:last] = np.diff(offsets[first : last + 1].astype(np.int64))
    return counts


def smallest_type(num_values: int) -> type[np.unsignedinteger]:
    return np.uint16 if num_values <= 2**16 else np.uint32
