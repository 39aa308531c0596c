"""The rule that chooses words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.text.corpus import learn
from elman.text.settings import DataConfig
from elman.text.units.vocabulary import by_frequency, choose_words


def _learn(directory, text: str, *, heldout: bool = False, **settings: object):
    path = directory / "text.txt"
    path.write_text(text)
    return learn([path], DataConfig.model_validate({"units": "space", **settings}), heldout=heldout)


def test_words_seen_twice_by_falling_count_then_first_appearance(tmp_path):
    # d 3, b 2 (seen first), c 2, a 1
    learned = _learn(tmp_path, "b c d\nd a b\nc d\n")
    assert list(learned.tokenizer.tokens) == ["<unk>", "</s>", "d", "b", "c"]
    assert learned.train.ids.tolist() == [3, 4, 2, 1, 2, 0, 3, 1, 4, 2, 1]
    assert learned.train.unknown_tokens == 1


def test_a_text_with_unk_keeps_every_word(tmp_path):
    learned = _learn(tmp_path, "b <unk> a\na <unk>\n", min_count=5, max_words=1)
    assert list(learned.tokenizer.tokens) == ["<unk>", "</s>", "a", "b"]
    assert learned.train.ids.tolist() == [3, 0, 2, 1, 2, 0, 1]
    assert learned.train.unknown_tokens == 2


def test_at_most_max_words(tmp_path):
    assert list(_learn(tmp_path, "a a b b b c c\n", max_words=2).tokenizer.tokens[2:]) == ["b", "a"]


def test_only_the_training_part_counts(tmp_path):
    """b is twice in the text but once in the part to learn from; and <unk> is in the other part alone."""
    learned = _learn(tmp_path, "a a\nb\na b <unk>\n", heldout=True)
    assert list(learned.tokenizer.tokens[2:]) == ["a"]
    assert learned.heldout is not None and learned.heldout.ids.tolist() == [2, 0, 0, 1]


def test_characters_are_all_kept_but_those_held_out(tmp_path):
    learned = _learn(tmp_path, "xy\nyz\nyq\n", units="char", heldout=True, min_count=9, max_words=1)
    assert list(learned.tokenizer.tokens[2:]) == ["y", "x", "z"]
    assert learned.heldout is not None and learned.heldout.ids.tolist() == [2, 0, 1]


def test_bytes_come_by_falling_count_then_first_appearance_then_value(tmp_path):
    learned = _learn(tmp_path, "bab\nc\n", units="byte")
    tokens = learned.tokenizer.tokens
    assert list(tokens[2:5]) == ["b", "a", "c"] and len(tokens) == 258
    assert [*tokens[5:8]] == ["Ā", "ā", "Ă"]  # the bytes 0, 1, 2


def test_pairs_come_by_falling_count(tmp_path):
    learned = _learn(tmp_path, "the the then\n" * 20 + "other things\n", units="bpe:280")
    counts = np.bincount(learned.train.ids, minlength=learned.tokenizer.vocab_size)
    assert (np.diff(counts[2:]) <= 0).all()
    assert learned.tokenizer.tokens[2] == "Ġthe"


def test_one_word_is_a_vocabulary(tmp_path):
    learned = _learn(tmp_path, "a a a\n")
    assert list(learned.tokenizer.tokens) == ["<unk>", "</s>", "a"]


def test_no_word_is_none(tmp_path):
    with pytest.raises(DataError, match="vocabulary is empty") as caught:
        _learn(tmp_path, "a b c\n")
    assert "data.min_count=1" in str(caught.value.hint)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(1, 4), st.integers(1, 9))
def test_the_rule_is_its_definition(counts, min_count, max_words):
    words = sorted(range(2, len(counts)), key=lambda word: (-counts[word], word))
    assert by_frequency(np.array(counts)).tolist() == words
    kept = [word for word in words if counts[word] >= (1 if counts[0] else min_count)]
    expected = kept if counts[0] else kept[:max_words]
    assert choose_words(np.array(counts), min_count=min_count, max_words=max_words).tolist() == expected


def test_words_of_a_long_chunk_are_numbered_where_they_stand(tmp_path):
    """Chunks of more than 64 bytes are encoded after the others of their block: their words came last among equals."""
    (tmp_path / "t.txt").write_text("one " + "-".join(["two"] * 30) + " three\n")
    found = learn([tmp_path / "t.txt"], DataConfig(units="word", min_count=1), heldout=False)
    assert found.tokenizer.tokens[2:] == ["-", "two", "▁one", "▁two", "▁three"]
