"""Words are known to another model as it writes them."""

from __future__ import annotations

import pytest

from elman.tasks.tag.bilm_words import BilmWords
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, UNK, UNK_ID


def test_symbols_of_split_text_are_words() -> None:
    words = BilmWords(Tokenizer(TokenizerSpec("space", [UNK, EOS, "the", "The", "cat"])))
    assert [words.number(word) for word in ("the", "The", "THE", "Cat", "dog")] == [2, 3, 2, 4, UNK_ID]
    assert words.number(EOS) == words.number(UNK) == UNK_ID


def test_symbols_of_raw_text_may_have_a_space_before_them() -> None:
    words = BilmWords(Tokenizer(TokenizerSpec("word", [UNK, EOS, ",", "\u2581the", "\u2581,", "the", "(", "\u2581("])))
    assert words.number(",") == 2  # more often without a space
    assert words.number("The") == 3  # more often with one
    assert words.number("(") == 6
    assert words.number("cat") == UNK_ID


def test_symbols_that_are_no_words_are_refused() -> None:
    with pytest.raises(ValueError, match="char units are no words"):
        BilmWords(Tokenizer(TokenizerSpec("char", [UNK, EOS, "a"])))
