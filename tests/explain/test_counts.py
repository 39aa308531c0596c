"""Counts: the bigram table and the unseen n-grams, counted again by a Counter; and whose text it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import DataError, MissingError, UsageError
from tests.explain.test_saliency import TINY

TEXT = "the cat sat on the mat\nthe dog sat on the log\n\na cat and a dog met the cat\n" * 5 + "the mat sat\n"
OTHER = "the cat sat on the log\na zebra sat\nthe dog met the dog\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counts")
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text(OTHER)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    data = folder / "text.txt"
    return {
        "bigram": elman.train("lm", data, model="bigram", valid="none", out=folder / "bigram"),
        "lstm": elman.train("lm", data, model="lstm", valid="none", epochs=1, settings=TINY, out=folder / "lstm"),
        "bilm": elman.train("bilm", data, valid="none", epochs=1, settings=TINY, out=folder / "bilm"),
    }


def lines_of(text: str, known: set[str]) -> list[list[str]]:
    return [[word if word in known else "<unk>" for word in line.split()] + ["</s>"] for line in text.splitlines()]


def ngrams(lines: list[list[str]], order: int) -> list[tuple[str, ...]]:
    return [tuple(line[i : i + order]) for line in lines for i in range(len(line) - order + 1)]


@pytest.mark.parametrize("name", ["bigram", "lstm", "bilm"])
def test_the_table_is_that_of_a_counter(models: dict[str, Any], folder: Path, name: str) -> None:
    model = models[name]
    found = model.explain("the cat sat on zebra the", kind="counts", data=folder / "text.txt").data
    assert found["words"] == ["the", "cat", "sat", "on", "<unk>"]
    lines = lines_of(TEXT, set(model.tokenizer.tokens))
    bigrams, unigrams = Counter(ngrams(lines, 2)), Counter(ngrams(lines, 1))
    assert found["counts"] == [[bigrams[row, column] for column in found["words"]] for row in found["words"]]
    assert found["totals"] == [unigrams[(word,)] for word in found["words"]]
    for row, numbers in zip(found["words"][:4], found["probabilities"], strict=False):
        wanted = dict(model.language_model().next(row, k=model.tokenizer.vocab_size))
        wanted = {word.strip(): p for word, p in wanted.items()}
        np.testing.assert_allclose(numbers[:4], [wanted[word] for word in found["words"][:4]], rtol=1e-4)


def test_unseen_n_grams_are_those_of_a_counter(models: dict[str, Any], folder: Path) -> None:
    model = models["bigram"]
    found = model.explain("the", kind="counts", data=folder / "text.txt", other=folder / "other.txt").data["unseen"]
    known = set(model.tokenizer.tokens)
    for order in range(1, 6):
        seen = Counter(ngrams(lines_of(TEXT, known), order))
        asked = ngrams(lines_of(OTHER, known), order)
        unseen = sum(ngram not in seen for ngram in asked)
        assert found[order - 1] == {
            "order": order,
            "ngrams": len(asked),
            "unseen": unseen,
            "share": unseen / len(asked),
        }
    assert 0 < found[1]["share"] < found[3]["share"]


def test_zeros_are_marked_and_the_picture_is_drawn(models: dict[str, Any], folder: Path) -> None:
    found = models["bigram"].explain("the cat sat", kind="counts", data=folder / "text.txt", other=folder / "other.txt")
    assert str(found).count("[0]") == 1 + sum(row.count(0) for row in found.data["counts"])
    assert found.data["zero_share"] == pytest.approx(7 / 9)
    assert len(found.picture["concat"]) == 3 and found.to_png()[:4] == b"\x89PNG"
    wide = models["bigram"].explain("the cat sat on mat dog log a and met", kind="counts", data=folder / "text.txt")
    assert max(len(line) for line in str(wide).splitlines()) <= 100
    few = models["bigram"].explain("the cat sat on", kind="counts", data=folder / "text.txt", words=2)
    assert few.data["words"] == ["the", "cat"] and any("2 more words were left out" in note for note in few.notes)


def test_the_training_text_is_found_by_the_command_that_used_it(folder: Path) -> None:
    data, out = folder / "named text.txt", folder / "named"
    data.write_text(TEXT)
    command = f"elman train lm '{data}' --model bigram --out {out}"
    model = elman.train("lm", data, model="bigram", out=out, command=command, settings={"data.heldout": 0.2})
    whole = model.explain("the cat", kind="counts", data=data)
    found = model.explain("the cat", kind="counts")
    assert found.data == whole.data
    assert found.data["unseen"][0]["ngrams"] == len(TEXT.split()) + TEXT.count("\n") - model.record.source.tokens
    assert sum(map(sum, found.data["counts"])) < TEXT.count("the cat")  # the held-out part is not counted
    other = model.explain("the cat", kind="counts", data=folder / "other.txt")
    assert any("is not the text" in note for note in other.notes)
    data.write_text(TEXT.replace("cat", "cow"))
    with pytest.raises(DataError, match=r"has changed since .*\n.*data=FILE"):
        model.explain("the cat", kind="counts")
    data.unlink()
    with pytest.raises(MissingError, match="is gone"):
        model.explain("the cat", kind="counts")


def test_without_a_text_there_is_nothing_to_count(models: dict[str, Any], folder: Path) -> None:
    with pytest.raises(MissingError, match="nothing says which text"):
        models["bigram"].explain("the cat", kind="counts")
    with pytest.raises(MissingError, match="absent"):
        models["bigram"].explain("the cat", kind="counts", data=folder / "absent.txt")
    with pytest.raises(UsageError, match="no words in the text"):
        models["bigram"].explain(" ", kind="counts", data=folder / "text.txt")
