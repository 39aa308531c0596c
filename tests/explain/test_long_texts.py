"""Texts of any length: refused or cut, said so, and never slow or too wide for a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import UsageError
from elman.explain import MAX_CHARACTERS
from elman.explain.reading import MAX_AT_ONCE
from tests.explain.test_saliency import TINY, WORDS, make_classifier, make_lm, make_reader, make_tagger

SENTENCE = "the cat sat on the mat "
LONG_WORD = "x" * 100_000


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_lm(tmp_path_factory.mktemp("long"), "lstm")


def test_fifty_megabytes_are_refused_at_once_by_every_kind(lstm: Any) -> None:
    """surprisal, reach and cloze read all of it, for hours; an unknown word was printed whole, in 50 MB."""
    for text in (SENTENCE * 2_200_000, "x" * 50_000_000):
        for kind in lstm.kinds():
            began = time.monotonic()
            with pytest.raises(UsageError, match=rf"{len(text):,} characters is too long.*\n.*{MAX_CHARACTERS:,}"):
                lstm.explain(text, kind=kind)
            assert time.monotonic() - began < 5


def test_several_texts_count_together(lstm: Any) -> None:
    half = "x" * (MAX_CHARACTERS // 2 + 1)
    with pytest.raises(UsageError, match="too long"):
        elman.explain.explain([lstm], [half, half], kind="surprisal")


def test_surprisal_reads_the_beginning_of_a_long_text_and_says_so(lstm: Any) -> None:
    found = lstm.explain(SENTENCE * 1000)
    assert len(found.data["models"][0]["tokens"]) == 2000
    assert any("only the first 2,000 tokens were read" in note for note in found.notes)
    assert any("a picture has the first 200 tokens" in note for note in found.notes)
    assert len(found.picture["data"]["values"]) == 200
    short = lstm.explain(SENTENCE, tokens=3)
    assert short.data["models"][0]["tokens"] == lstm.explain(SENTENCE).data["models"][0]["tokens"][:3]


def test_a_line_that_is_cut_is_still_a_line_of_its_own(tmp_path: Path) -> None:
    model = make_lm(tmp_path, "lstm", **{"data.reset_lines": True})
    text = "\n".join(WORDS)
    whole = model.explain(text, kind="surprisal").data["models"][0]["tokens"]
    assert model.explain(text, kind="surprisal", tokens=10).data["models"][0]["tokens"] == whole[:10]


@pytest.mark.parametrize("make", [make_tagger, make_reader])
def test_a_text_that_is_read_all_at_once_has_a_limit(tmp_path: Path, make: Any) -> None:
    text = "the cat is in the barn and " * 500
    if make is make_reader:
        text += "\tWhere is the cat?"
    with pytest.raises(UsageError, match=rf"tokens is too long.*\n.*at most {MAX_AT_ONCE:,} tokens"):
        make(tmp_path).explain(text, kind="saliency")


@pytest.mark.parametrize("kind", ["attention", "cloze", "states"])
def test_a_masked_transformer_never_attends_to_more_than_fits(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "lm.txt"
    data.write_text("\n".join(WORDS * 20) + "\n")
    settings = TINY | {"model.family": "transformer"}
    model = elman.train("masked", data, valid="none", epochs=1, settings=settings)
    with pytest.raises(UsageError, match="tokens is too long"):
        model.explain(SENTENCE * 1000 + "[MASK]", kind=kind)


def test_a_transformer_draws_no_map_of_ten_thousand_tokens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tokens is too long"):
        make_lm(tmp_path, "transformer").explain(SENTENCE * 2000, kind="attention")


def test_a_very_long_word_is_cut_where_it_is_drawn(tmp_path: Path, lstm: Any) -> None:
    """A picture with a word of a megabyte was never finished."""
    classifier = make_classifier(tmp_path)
    for kind in ("saliency", "states", "gates"):
        found = classifier.explain(f"the {LONG_WORD} cat", kind=kind)
        assert len(str(found)) < 10_000 and len(found.to_svg()) < 1_000_000
    found = lstm.explain(f"the {LONG_WORD} [MASK] sat", kind="cloze")
    assert len(str(found)) < 1000 and "<mask> sat" in str(found)


def test_words_that_are_not_known_are_named_shortly(lstm: Any) -> None:
    with pytest.raises(UsageError, match=r"'xxx.*…' is not among") as error:
        lstm.explain(LONG_WORD, kind="neighbours")
    assert len(str(error.value)) < 300
    with pytest.raises(UsageError, match=r"there is no <mask>") as error:
        lstm.explain(LONG_WORD, kind="cloze")
    assert len(str(error.value)) < 300
    many = " ".join(f"w{number}" for number in range(90))
    (note, *_) = lstm.explain(f"cat {many}", kind="neighbours").notes
    assert note.endswith("w19 and 70 more")
    with pytest.raises(UsageError, match=r"400 words are too many.*\n.*at most 100"):
        lstm.explain(" ".join(f"w{number}" for number in range(400)), kind="neighbours")
