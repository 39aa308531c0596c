"""An index finds what a naive search finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.text.index import FILE, TextIndex, copied_shares
from elman.text.units.vocabulary import EOS_ID, UNK_ID

texts = st.lists(st.integers(0, 5), max_size=60)


def occurrences(text: list[int], part: list[int]) -> list[int]:
    return [place for place in range(len(text) - len(part) + 1) if text[place : place + len(part)] == part]


def longest_by_hand(text: list[int], query: list[int], begin: int) -> int:
    length = 0
    while begin + length < len(query) and query[begin + length] != UNK_ID:
        if not occurrences(text, query[begin : begin + length + 1]):
            break
        length += 1
    return length


@given(text=texts, query=texts)
def test_the_longest_match_at_each_token_is_that_of_a_naive_search(text: list[int], query: list[int]) -> None:
    index = TextIndex.build(np.array(text, dtype=np.uint16))
    assert sorted(index.places.tolist()) == list(range(len(text)))
    suffixes = [text[place:] for place in index.places.tolist()]
    assert suffixes == sorted(suffixes)
    wanted = [longest_by_hand(text, query, begin) for begin in range(len(query))]
    assert index.longest(np.array(query, dtype=np.int64)).tolist() == wanted


@given(text=texts, query=texts, least=st.integers(1, 4))
def test_matches_stand_in_the_text_as_often_as_said_and_never_overlap(
    text: list[int], query: list[int], least: int
) -> None:
    index, asked = TextIndex.build(np.array(text, dtype=np.uint16)), np.array(query, dtype=np.int64)
    longest = index.longest(asked)
    matches = list(index.matches(longest, asked, least=least))
    covered: set[int] = set()
    for match in matches:
        places = occurrences(text, query[match.begin : match.end])
        assert match.end - match.begin >= least and len(places) == match.times
        assert text[: places[0]].count(EOS_ID) + 1 == match.line
        assert not covered & set(range(match.begin, match.end))
        covered |= set(range(match.begin, match.end))
    for begin in set(range(len(query))) - covered:
        assert longest[begin] < least


@given(text=texts, query=st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_shares_of_copied_n_grams_are_those_of_a_naive_search(text: list[int], query: list[int]) -> None:
    longest = TextIndex.build(np.array(text, dtype=np.uint16)).longest(np.array(query))
    for row in copied_shares(longest, orders=4):
        order = int(row["order"])
        ngrams = [query[begin : begin + order] for begin in range(len(query) - order + 1)]
        copied = [UNK_ID not in ngram and bool(occurrences(text, ngram)) for ngram in ngrams]
        assert row["ngrams"] == len(ngrams) and row["share"] == pytest.approx(sum(copied) / len(ngrams))


def test_ids_of_a_large_vocabulary_are_in_order() -> None:
    ids = np.array([70_000, 2, 255, 256, 65_536, 2, 256], dtype=np.uint32)
    index = TextIndex.build(ids)
    assert index.longest(np.array([2, 255, 256, 65_536, 3])).tolist() == [4, 3, 2, 1, 0]


def test_what_was_stored_is_read_back() -> None:
    index = TextIndex.build(np.array([3, 4, 1, 3, 4, 5, 1], dtype=np.uint16))
    back = TextIndex.from_files(index.files().__getitem__)
    assert back.ids.tolist() == index.ids.tolist() and back.places.tolist() == index.places.tolist()
    with pytest.raises(DataError, match=f"{FILE} of the model is damaged"):
        TextIndex.from_files(lambda name: b"nothing")
