"""Counting against counting by hand, whatever the chunks, the threads and the width of the keys."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.errors import UsageError
from elman.counts.counting import _extend, _sort_within, count_ngrams
from elman.counts.scratch import Scratch
from elman.counts.trie import FEW_LOOKUPS, NOT_FOUND

LINES = st.lists(st.lists(st.integers(2, 6), max_size=10), min_size=1, max_size=15)


def naive(ids, order, vocab_size, reset_lines):
    bos = vocab_size
    lines, line = [], []
    for word in ids:
        line.append(int(word))
        if word == 1:
            lines.append(line)
            line = []
    texts = [[bos, *one] for one in lines] if reset_lines else [[1, *[w for one in lines for w in one]]]
    counts = [Counter() for _ in range(order)]
    for text in texts:
        for first in range(len(text)):
            for k in range(1, min(order, len(text) - first) + 1):
                counts[k - 1][tuple(text[first : first + k])] += 1
    counts[0][(bos,) if reset_lines else (1,)] -= len(texts)
    return counts


def listed(found, order):
    """Every n-gram of the trie with its count."""
    trie, grams = found.trie, [(word,) for word in range(found.trie.vocab_size + 1)]
    yield {gram: int(count) for gram, count in zip(grams, found.counts[0], strict=True) if count}
    for k in range(1, order):
        extended = []
        for node, gram in enumerate(grams):
            rows = trie.children(k, node)
            words = trie.words[k][rows].tolist()
            assert words == sorted(set(words)), "children are sorted and different"
            extended += [(*gram, word) for word in words]
        grams = extended
        yield {gram: int(count) for gram, count in zip(grams, found.counts[k], strict=True)}


@settings(max_examples=80, deadline=None)
@given(LINES, st.integers(1, 5), st.booleans(), st.integers(1, 40), st.sampled_from([1, 2]))
def test_every_ngram_is_counted(lines, order, reset_lines, chunk_rows, threads):
    ids = np.array([word for line in lines for word in (*line, 1)], np.uint16)
    with Scratch(threads=threads) as scratch:
        scratch.chunk_rows = chunk_rows
        found = count_ngrams(ids, order=order, vocab_size=7, reset_lines=reset_lines, scratch=scratch)
    for counted, expected in zip(listed(found, order), naive(ids, order, 7, reset_lines), strict=True):
        assert counted == {gram: count for gram, count in expected.items() if count}


@settings(max_examples=80, deadline=None)
@given(LINES, st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 7)), max_size=50))
def test_finding_many_children_equals_finding_each(lines, queries):
    ids = np.array([word for line in lines for word in (*line, 1)], np.uint16)
    with Scratch() as scratch:
        trie = count_ngrams(ids, order=4, vocab_size=7, reset_lines=True, scratch=scratch).trie
    for k in (1, 2, 3):
        nodes = np.array([node if node < trie.num_nodes(k) else NOT_FOUND for node, _ in queries], np.int64)
        words = np.array([word for _, word in queries], np.int64)
        each = [trie.child(k, int(node), int(word)) for node, word in zip(nodes, words, strict=True)]
        assert trie.find(k, nodes, words).tolist() == each
        assert trie.find(k, np.tile(nodes, FEW_LOOKUPS + 1), np.tile(words, FEW_LOOKUPS + 1)).tolist() == each * (
            FEW_LOOKUPS + 1
        )


def test_finding_among_thousands_of_children_equals_finding_each():
    rng = np.random.default_rng(8)
    ids = np.minimum(rng.zipf(1.2, 200_000) + 1, 70_000).astype(np.uint32)
    ids[::20] = 1
    with Scratch() as scratch:
        trie = count_ngrams(ids, order=2, vocab_size=70_001, reset_lines=True, scratch=scratch).trie
    assert np.diff(trie.starts[0].astype(np.int64)).max() > 1_000
    nodes, words = rng.choice(ids, 2_000).astype(np.int64), rng.choice(ids, 2_000).astype(np.int64)
    each = [trie.child(1, int(node), int(word)) for node, word in zip(nodes, words, strict=True)]
    assert trie.find(1, nodes, words).tolist() == each
    assert NOT_FOUND in each


def test_keys_too_wide_for_64_bits_are_sorted_all_the_same():
    rng = np.random.default_rng(0)
    group = np.sort(rng.integers(0, 2**20, 1000)) + 1
    word = rng.integers(0, 2**21, 1000).astype(np.uint32)
    position = rng.permutation(1000) + 2**40
    order = np.lexsort((position, word, group))
    found_position, found_word = _sort_within(group, word, position)
    np.testing.assert_array_equal(found_word, word[order])
    np.testing.assert_array_equal(found_position, position[order])


def test_too_little_memory_is_refused_with_the_least_that_works():
    with pytest.raises(UsageError, match="too little") as error:
        Scratch(1 << 20)
    assert "256M" in (error.value.hint or "")


def test_a_frequent_word_takes_little_memory() -> None:
    """All places of one word are sorted at once: of 8 M tokens, 2 M of them one word, `--memory 256M` took 317 MiB."""
    text = np.random.default_rng(0).integers(1, 1000, 500_002).astype(np.uint16)
    positions, offsets = np.arange(500_000, dtype=np.uint32), np.array([0, 500_000], np.uint32)
    tracemalloc.start()
    try:
        _extend(text, positions, offsets, (0, 1), 1, 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * len(positions)
