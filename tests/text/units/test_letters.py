"""Where words begin and end."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from elman.text.units.letters import WORD_REGEX, split_long, split_words
from tests.text.strategies import lines


@given(lines)
def test_words_are_all_of_the_line(line):
    assert "".join(split_words(line)) == ("▁" + line.replace(" ", "▁") if line else "")


@given(lines, st.integers(1, 12))
def test_a_long_line_is_split_like_any_other(line, size):
    assert [word for words in split_long(line, size) for word in words] == split_words(line)


def test_letters_marks_digits_and_connectors_make_words():
    """Those of Unicode 14, of which every later version knows at least as much."""
    for code in range(0x3400):
        character = chr(code)
        category = unicodedata.ucd_3_2_0.category(character)  # frozen: never changes with Python
        if category in ("Cn", "Cs", "Co") or character in "▁\u200c\u200d":
            continue
        # some categories have changed since Unicode 3.2; look only where both agree
        if category == unicodedata.category(character):
            is_word = category[0] in "LMN" or category == "Pc"
            assert bool(WORD_REGEX.fullmatch("a" + character)) == is_word, hex(code)


def test_apostrophes_inside_words_up_to_four():
    assert split_words("a'b'c'd'e'f") == ["▁a'b'c'd'e", "'", "f"]
