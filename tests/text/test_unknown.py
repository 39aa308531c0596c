"""The words that a vocabulary has not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elman.text.corpus import learn, read_corpus
from elman.text.settings import DataConfig
from elman.text.units.surfaces import unknown_words
from elman.text.unknown import SAMPLED_WORDS, sample_rare_words


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("a b a b\n" * 8 + "a once twice twice\n" + "a b last, once\n")
    return path


@pytest.mark.parametrize(
    ("units", "separator", "line", "expected"),
    [
        ("space", None, "x  known\ty ", ["x", "y"]),
        ("space", "|", "x y|known||z", ["x y", "z"]),
        ("word", None, "x known, z", ["\u2581x", ",", "\u2581z"]),
    ],
)
def test_what_stood_for_an_unknown_token_is_found_in_order(
    units: str, separator: str | None, line: str, expected: list[str]
) -> None:
    ids = {("space", None): [0, 2, 0, 1], ("space", "|"): [0, 2, 0, 1], ("word", None): [0, 2, 0, 0, 1]}
    lines = f"known\n{line}\nknown\n".encode()
    found = unknown_words(lines, np.array([2, 1, *ids[units, separator], 2, 1]), units, separator)
    assert found == expected


def test_units_that_are_not_words_have_none() -> None:
    assert unknown_words(b"xy\n", np.array([0, 0, 1]), "char", None) == []


@pytest.mark.parametrize("units", ["space", "word"])
def test_held_out_text_says_its_unknown_words_whichever_way_it_was_read(text: Path, units: str) -> None:
    data = DataConfig(units=units, heldout=0.1, min_count=3)
    learned = learn([text], data, heldout=True)
    assert learned.heldout is not None
    last = text.with_name("last.txt")
    last.write_text("a b last, once\n")
    read = read_corpus([last], learned.tokenizer, data)
    again = learn([text], data, heldout=True, tokenizer=learned.tokenizer)
    assert again.heldout is not None
    assert sum(read.unknown_words.values()) == read.unknown_tokens > 1
    assert learned.heldout.unknown_words == read.unknown_words == again.heldout.unknown_words


def test_rare_words_are_taken_as_often_as_they_are_there(text: Path) -> None:
    learned = learn([text], DataConfig(units="space", min_count=3), heldout=False)
    assert sorted(learned.rare_words) == ["last,", "once", "once", "twice", "twice"]


def test_where_every_word_is_known_the_rarer_half_stands_for_the_unknown_ones(text: Path) -> None:
    learned = learn([text], DataConfig(units="space", min_count=1), heldout=False)
    assert sorted(learned.rare_words) == ["last,", "once", "twice"]


def test_a_text_that_has_unk_itself_and_units_that_are_no_words_have_no_spelling(tmp_path: Path, text: Path) -> None:
    path = tmp_path / "unk.txt"
    path.write_text("a <unk> b\n" * 3)
    assert list(learn([path], DataConfig(units="space"), heldout=False).rare_words) == []
    assert list(learn([text], DataConfig(units="char"), heldout=False).rare_words) == []


def test_of_many_rare_words_an_even_sample_is_taken() -> None:
    many = 3 * SAMPLED_WORDS
    symbols = ["<unk>", "</s>", "known", *map(str, range(many))]
    counts = np.array([0, 9, 9, *[1] * many])
    found = sample_rare_words(symbols, counts, np.array([2]))
    assert found == [str(3 * i) for i in range(SAMPLED_WORDS)]
