"""Where the tokens of a text stand in it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import elman
from elman.text.units.offsets import offsets

TEXT = "the cat sat on the mat . who saw the café ?"


@pytest.fixture(scope="module")
def models() -> dict[str, elman.Model]:
    return {
        units: elman.train("lm", elman.texts([TEXT] * 3), model="unigram", units=units, valid="none")
        for units in ("space", "word", "char", "byte", "bpe:300")
    }


@pytest.mark.parametrize("units", ["space", "word", "char", "byte", "bpe:300"])
@given(text=st.text(alphabet="the cat.é?ß\nz", max_size=30))
def test_tokens_stand_one_after_the_other_and_cover_all_but_space(
    models: dict[str, elman.Model], units: str, text: str
) -> None:
    model = models[units]
    ids = model.tokenizer.encode_text(text)
    found = offsets(text, ids, model.tokenizer)
    assert all(start <= end for start, end in found)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(found))
    covered = {place for start, end in found for place in range(start, end)}
    assert {text[place] for place in range(len(text)) if place not in covered} <= {" "}
