"""Texts with labels are read from every format, and cut into words as asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from elman.core.errors import DataError, UsageError
from elman.tasks.classify.config import LabelledConfig
from elman.tasks.classify.data import (
    LabelBatches,
    count_words,
    encode_texts,
    labels_of_row,
    read_labelled,
    read_texts,
    split_text,
)
from elman.text.batches import Position
from elman.text.units.word_list import learn_words


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.tsv", "good\ta fine film\nbad\ta long one\n", {}),
        ("a.txt", "good a fine film\nbad a long one\n", {}),
        ("a.txt", "__label__good a fine film\n__label__bad a long one\n", {}),
        ("a.jsonl", '{"text": "a fine film", "label": "good"}\n{"label": "bad", "text": "a long one"}\n', {}),
        ("a.tsv", "x\ta fine film\tgood\nx\ta long one\tbad\n", {"source": "2", "target": "3"}),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: str, settings: dict[str, object]) -> None:
    (tmp_path / name).write_text(content)
    pairs = read_labelled([tmp_path / name], LabelledConfig.model_validate(settings))
    assert pairs.sources == ["a fine film", "a long one"]
    assert pairs.targets == ["good", "bad"]


def test_plain_texts_may_have_tabs_though_the_model_was_trained_on_named_columns(tmp_path: Path) -> None:
    """A line with a tab, behind lines without one, "has 2 columns, expected 1"."""
    path = tmp_path / "a.txt"
    path.write_text("a fine film\nwhat a\tlong one\n")
    data = LabelledConfig.model_validate({"source": "passage", "target": "kind"})
    found = [line.text for block in read_texts([path], data, is_label=bool) for line in block]
    assert found == ["a fine film", "what a\tlong one"]


def test_labels_of_records_may_be_numbers_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": 3}\n{"text": "y", "label": ["a", "b"]}\n{"text": "z", "label": []}\n')
    pairs = read_labelled([path], LabelledConfig())
    assert pairs.targets == ["3", "a,b", "-"]
    assert [labels_of_row(target) for target in pairs.targets] == [["3"], ["a", "b"], []]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "good\tfine\nbad\n", "line 2 of .* has 1 column, expected 2"),
        ("a.tsv", "good\tfine\tx\n", "line 1 of .* has 3 columns, expected 2"),
        ("a.tsv", "good\t\n", "has an empty source"),
        ("a.txt", "good\n", "line 1 of .* has no text behind its label"),
        ("a.txt", "", "there are no texts"),
        ("a.jsonl", '{"text": "x", "label": "y"}\n{"text": "x"}\n', "line 2 of .* has no `label`"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((DataError, UsageError), match=message):
        read_labelled([tmp_path / name], LabelledConfig())


@pytest.mark.parametrize("units", ["word", "space", "char"])
def test_a_tab_in_a_text_is_a_space(units: Literal["word", "space", "char"]) -> None:
    """Two tabs in JSONL made a tab a word, and the trained classifier could not be saved: `cannot use tokenizer.json`."""
    data = LabelledConfig(units=units)
    assert split_text("a\tfilm", data) == split_text("a film", data)


def test_a_word_with_a_tab_or_a_line_break_is_unknown() -> None:
    words = learn_words(Counter({"a": 2, "b\tc": 2, "d\ne": 2}), min_count=1, max_words=9)
    assert list(words.tokenizer.tokens[2:]) == ["a"]


def test_a_text_becomes_words_and_a_long_one_its_two_ends() -> None:
    assert split_text("It's Good, really.", LabelledConfig(units="word")) == ["it's", "good", ",", "really", "."]
    assert split_text("It's Good,", LabelledConfig(units="space", lower_case=False)) == ["It's", "Good,"]
    assert split_text("ab c", LabelledConfig(units="char")) == ["a", "b", " ", "c"]
    assert split_text("1 2 3 4 5 6 7", LabelledConfig(units="space", max_length=5)) == ["1", "2", "5", "6", "7"]


def test_a_pass_sees_every_text_once_with_its_own_label() -> None:
    rng = np.random.default_rng(0)
    texts = [[str(row)] * int(rng.integers(1, 9)) for row in range(50)]
    words = learn_words(count_words(texts), min_count=1, max_words=100)
    batches = LabelBatches(encode_texts(texts, words), np.arange(50), words=40, seed=1)
    position, seen = Position(), list[int]()
    while position.epoch == 0:
        batch, position = batches.batch(position)
        for row, length, target in zip(batch.words, batch.lengths, batch.targets, strict=True):
            assert length == len(texts[target])
            assert set(row[:length].tolist()) == {words.number(str(target))}
        seen += batch.targets.tolist()
    assert sorted(seen) == list(range(50))
    assert batches.tokens_per_epoch == 50


def test_a_text_without_known_words_is_one_unknown_word() -> None:
    words = learn_words(count_words([["a"]]), min_count=1, max_words=10)
    assert encode_texts([[], ["b"], ["</s>", "a"]], words).tolist() == [0, 1, 0, 1, 0, 2, 1]
