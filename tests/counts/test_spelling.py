"""What the spelling of unknown words costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.counts.spelling import FILE, SpellingModel

WORDS = ["ab", "abba", "ba", "a", "bab"]


def test_the_probabilities_of_all_strings_up_to_a_length_and_of_longer_ones_sum_to_at_most_one() -> None:
    model = SpellingModel.fit(WORDS)
    totals = []
    for length in range(9):
        strings = ["".join(letters) for size in range(length + 1) for letters in itertools.product("ab", repeat=size)]
        totals.append(float(np.exp(-model.nats(strings)).sum()))
    assert totals == sorted(totals)
    assert 0.8 < totals[-1] <= 1.0 + 1e-6


def test_one_letter_is_followed_by_something_with_probability_one() -> None:
    """p(a string begins with x) over all 256 bytes and the end, from sums of whole predictions."""
    model = SpellingModel.fit(WORDS)
    lm = model._ngrams
    state = lm.start(1)
    for byte in b"ab":
        np.testing.assert_allclose(np.exp(lm.predict(state)).sum(), 1.0, atol=1e-5)
        state = lm.advance(np.array([byte + 2]), state)


@given(st.text(max_size=12).filter(lambda text: text.isprintable()))
def test_any_word_has_a_finite_cost(word: str) -> None:
    (nats,) = SpellingModel.fit(WORDS).nats([word]).tolist()
    assert 0 < nats < math.inf


def test_words_like_those_learned_from_are_cheaper_than_noise() -> None:
    nats = SpellingModel.fit(WORDS).nats(["abab", "qzxw"])
    assert nats[0] < nats[1] / 3


def test_equal_words_cost_the_same_and_totals_add_up() -> None:
    model = SpellingModel.fit(WORDS)
    nats = model.nats(["ab", "zz", "ab"])
    assert nats[0] == nats[2]
    assert model.total_nats({"ab": 2, "zz": 1}) == pytest.approx(nats.sum())
    assert model.total_nats({}) == 0


def test_what_was_stored_says_the_same() -> None:
    model = SpellingModel.fit(WORDS)
    again = SpellingModel.from_files(model.files().__getitem__)
    np.testing.assert_array_equal(model.nats([*WORDS, "\u00e9t\u00e9"]), again.nats([*WORDS, "\u00e9t\u00e9"]))


def test_a_damaged_file_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=FILE):
        SpellingModel.from_files(lambda name: b"nonsense")
