"""Lines with gaps: what stands around them is read as if there were none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import UsageError
from elman.text.gaps import GAP, MASK, read_gaps
from elman.text.units.letters import split_words
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer

LINE = "The value (of a list) is 'new', or not."


def tokenizer(units: str) -> Tokenizer:
    symbols = {"word": split_words(LINE), "space": LINE.split(), "char": sorted(set(LINE))}[units]
    return Tokenizer(TokenizerSpec(units, ["<unk>", "</s>", *dict.fromkeys(symbols)]))


@given(words=st.sets(st.sampled_from(["The", "value", "of", "list", "is", "new", "not"]), min_size=1))
def test_a_gap_changes_no_id_around_it(words: set[str]) -> None:
    """Parts between gaps were once encoded as lines of their own, and the spaces at their ends became unknown words."""
    units = tokenizer("word")
    whole = units.encode(LINE)
    line = re.sub(rf"\b({'|'.join(words)})\b", MASK, LINE)
    found = read_gaps(line, units).ids
    assert len(found) == len(whole)
    assert np.array_equal(found[found != GAP], whole[found != GAP])
    assert {units.tokens[i].strip("\u2581") for i in whole[found == GAP]} == words


def test_a_gap_knows_whether_a_space_stands_before_it() -> None:
    units = tokenizer("word")
    assert read_gaps("<mask> value <mask><mask> a (<mask>", units).is_spaced == (True, True, False, False)
    assert read_gaps("<mask> <mask>.", units).ids.tolist() == [GAP, GAP, units.tokens.index(".")]


@pytest.mark.parametrize(
    ("units", "line", "expected"),
    [("space", "The <mask> is", ["The", None, "is"]), ("char", "T<mask>e is", ["T", None, "e", " ", "i", "s"])],
)
def test_symbols_that_bring_no_space_are_read_as_they_stand(units: str, line: str, expected: list[str | None]) -> None:
    symbols = tokenizer(units)
    found = [None if i == GAP else symbols.tokens[i] for i in read_gaps(line, symbols).ids]
    assert found == expected


def test_a_line_without_a_gap_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no <mask> in 'The value'"):
        read_gaps("The value", tokenizer("word"))
