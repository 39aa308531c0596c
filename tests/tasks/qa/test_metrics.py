"""Answers are compared as SQuAD's own script compares them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.tasks.qa.metrics import answer_numbers, plain_answer, token_f1


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Denver Broncos!", "denver broncos"),
        ("an apple, a pear", "apple pear"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("The", ""),
    ],
)
def test_capitals_articles_and_punctuation_do_not_count(text: str, plain: str) -> None:
    assert plain_answer(text) == plain


def test_f1_is_worked_by_hand() -> None:
    # common: big, cat; 3 words given, 2 wanted: precision 2/3, recall 1
    assert token_f1("the big black cat", "big cat") == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert token_f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert token_f1("dog", "cat") == 0.0
    assert token_f1("the", "a") == 1.0
    assert token_f1("", "cat") == 0.0


@given(st.text(max_size=20), st.text(max_size=20))
def test_f1_has_no_sides_and_is_one_for_equal_answers(one: str, other: str) -> None:
    assert token_f1(one, other) == token_f1(other, one)
    assert token_f1(one, one) == 1.0
    assert 0.0 <= token_f1(one, other) <= 1.0


def test_numbers_of_two_answers() -> None:
    found = answer_numbers(["The cat", "big dog"], ["cat.", "dog"], np.array([1.0, 0.0]))
    assert found["accuracy"] == 0.5
    assert found["token_f1"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["calibration_error"] == 0.0
    assert found["examples"] == 2
