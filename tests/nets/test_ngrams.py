"""The n-grams of a text: those seen twice, by history, in the columns of a head."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import UsageError
from elman.nets import ngrams
from elman.nets.adaptive_head import AdaptiveHead
from elman.nets.full_head import FullHead
from elman.nets.ngrams import HeadSymbols, NgramTable, collect_ngrams, join, mix
from elman.text.units.vocabulary import EOS_ID


def words(size: int) -> HeadSymbols:
    return FullHead(1, size, tied=None, dtype=torch.float32).symbols()


def key_of(history: tuple[int, ...]) -> int:
    key = (np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    for word in reversed(history):
        key = mix(key, np.array([word]))
    return int(join(key)[0])


def after(table: NgramTable, *history: int, part: int = 0) -> list[int]:
    """What followed a history."""
    at = np.flatnonzero(table.keys == key_of(history))
    if not len(at):
        return []
    first, last = table.offsets[at[0], part : part + 2]
    return [int(column) for column in table.columns[first:last]]


def test_by_hand() -> None:
    # a=2 b=3 c=4, two lines read as one stream: a b a b c </s> a b a </s>
    ids = np.array([2, 3, 2, 3, 4, 1, 2, 3, 2, 1])
    table = collect_ngrams(ids, order=3, symbols=words(5), reset_lines=False)
    # pairs: </s>a 2 (the text begins after an end of line), ab 3, ba 2, bc 1, c</s> 1, a</s> 1
    assert after(table, EOS_ID) == [2] and after(table, 2) == [3] and after(table, 3) == [2]
    # triples: </s>ab 2, aba 2, bab 1, ...; </s></s>a 1, c</s>a 1
    assert after(table, EOS_ID, 2) == [3] and after(table, 2, 3) == [2] and after(table, 3, 2) == []
    assert len(table.columns) == 5 and len(table.keys) == 5
    # each line alone: before both there is nothing but ends of lines, so </s></s>a is seen twice
    alone = collect_ngrams(ids, order=3, symbols=words(5), reset_lines=True)
    assert after(alone, EOS_ID, EOS_ID) == [2] and len(alone.columns) == 6


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(2, 6),
    st.booleans(),
)
def test_every_ngram_seen_twice_and_no_other(text: list[int], order: int, reset_lines: bool) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    history = [EOS_ID] * order
    for word in text:
        for length in range(1, order):
            counts[(*history[-length:], word)] += 1
        history.append(word)
        if reset_lines and word == EOS_ID:
            history = [EOS_ID] * order
    table = collect_ngrams(np.array(text), order=order, symbols=words(5), reset_lines=reset_lines)
    expected = {gram for gram, count in counts.items() if count >= 2}
    assert len(table.columns) == len(expected)
    for gram in expected:
        assert gram[-1] in after(table, *gram[:-1])
    assert (np.diff(table.keys) > 0).all()


def test_only_the_most_frequent_are_kept_where_there_is_no_room() -> None:
    text = np.array([2, 3] * 9 + [4, 3] * 5 + [2, 4] * 2)
    table = collect_ngrams(text, order=2, symbols=words(5), reset_lines=False, max_ngrams=2)
    assert after(table, 2) == [3] and after(table, 3) == [2] and len(table.columns) == 2  # 9 and 8 times


def test_a_rare_word_is_its_cluster_in_the_head_and_itself_in_the_cluster() -> None:
    """Words by rank: 3 2 | 4 | 0 1. The head has columns 3, 2, cluster one, cluster two."""
    counts = np.array([1, 1, 8, 9, 5])
    head = AdaptiveHead(2, 5, cutoffs=(2, 3), shrink=1.0, dropout=0.0, counts=counts, tied=None, dtype=torch.float32)
    spelling = head.symbols()
    assert spelling.edges.tolist() == [0, 4, 5, 7]
    assert spelling.first.tolist() == [3, 3, 1, 0, 2]
    assert spelling.second.tolist() == [5, 6, -1, -1, 4]
    text = np.array([3, 4, 3, 4, 3, 0, 3, 1, 3, 2, 3, 2])
    table = collect_ngrams(text, order=2, symbols=spelling, reset_lines=False)
    # after 3: 4 twice, 2 twice; 0 and 1 once each, so their cluster twice but neither of them
    assert after(table, 3) == [1, 2, 3]
    assert after(table, 3, part=1) == [0] and after(table, 3, part=2) == []


def test_a_table_larger_than_memory_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "free_memory", lambda: 2_000_000_000)
    with pytest.raises(UsageError, match=r"maxent_size=100000000 needs 6.0 GB .* 2.0 GB are free") as caught:
        collect_ngrams(np.array([2, 3]), order=2, symbols=words(5), reset_lines=False, max_ngrams=100_000_000)
    assert "maxent_size" in str(caught.value.hint)
    monkeypatch.setattr(ngrams, "free_memory", lambda: 100)
    with pytest.raises(UsageError, match="2 n-gram features needs"):
        collect_ngrams(np.array([2, 3] * 9), order=2, symbols=words(5), reset_lines=False)


def test_text_without_a_repetition_has_no_ngrams() -> None:
    table = collect_ngrams(np.array([2, 3, 4]), order=4, symbols=words(5), reset_lines=False)
    assert len(table.keys) == len(table.columns) == 0 and table.offsets.shape == (0, 2)
