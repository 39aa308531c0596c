"""`elman explain` of words: a model or a file of vectors where a DIR is expected, and settings of the kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import elman
from tests.commands import Run

VECTORS = "cat 1 0 0\ndog 0.9 0.1 0\nfish 0 1 0\nbird 0 0.8 0.6\n"


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "pets.txt"
    path.write_text(VECTORS)
    return path


def test_a_file_of_vectors_stands_where_a_model_does(run: Run, vectors: Path) -> None:
    found = run("explain", vectors, "cat", "fish", "--kind", "neighbours", "--set", "k=1", "--json")
    assert found.code == 0, found.err
    words = json.loads(found.out)["words"]
    assert [(one["word"], one["neighbours"][0][0]) for one in words] == [("cat", "dog"), ("fish", "bird")]
    assert words[0]["neighbours"][0][1] == pytest.approx(0.9 / 0.82**0.5, abs=1e-4)
    assert run("explain", vectors, "cat").out.splitlines()[0] == "cat"  # without a kind: neighbours


def test_a_file_and_a_model_are_compared(run: Run, vectors: Path, corpus: Path, tmp_path: Path) -> None:
    settings = {"model.hidden": 8, "train.steps": 2, "train.batch": 4}
    elman.train("lm", corpus, model="lstm", out=tmp_path / "m", units="space", valid="none", settings=settings)
    found = run("explain", vectors, tmp_path / "m", "cat", "--kind", "neighbours", "--json")
    assert found.code == 0, found.err
    assert [one["model"] for one in json.loads(found.out)["words"]] == ["pets.txt", "m"]


def test_a_file_of_vectors_has_no_other_kinds(run: Run, vectors: Path) -> None:
    found = run("explain", vectors, "cat", "--kind", "states")
    assert found.code == 2
    assert "has no states" in found.err and "it has neighbours, analogy, map" in found.err


def test_a_file_that_holds_no_vectors_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("once upon a time\nthere was\n")
    found = run("explain", path, "once", "--kind", "neighbours")
    assert found.code == 65 and "no number" in found.err
