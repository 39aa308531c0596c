"""Where there was time for a part of the held-out rows only, that is said; and numbers are called what they are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.tasks.base import ShouldStop
from elman.tasks.catalogue import find_task
from elman.text.corpus import read_corpus
from tests.commands import Run
from tests.guards.cases import CASES, NET, train_case, write_data


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(Path())


def three_rows(num_rows: int, should_stop: ShouldStop) -> Iterator[list[int]]:
    """As if the time were over then."""
    yield [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "rows"),
    [("classify", "texts"), ("tag", "sentences"), ("qa", "questions"), ("seq2seq-attention", "sources")],
)
def test_a_training_says_that_only_a_part_was_measured(name: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = CASES[name].task
    monkeypatch.setattr(importlib.import_module(f"elman.tasks.{task}.model"), "rows_in_time", three_rows)
    train_case(name, "model")
    record = elman.load("model").record
    (said,) = [note for note in record.notes if note.startswith("there was time to measure")]
    assert said.startswith("there was time to measure 3 of ") and said.endswith(f" held-out {rows}")
    assert "notes" not in record.valid


@pytest.mark.parametrize("name", ["masked", "bilm"])
def test_a_part_of_a_text_is_told_from_all_of_it(name: str) -> None:
    train_case(name, "model")
    model = elman.load("model")
    ids = np.tile(read_corpus(["text.valid"], model.tokenizer, model.data).ids, 400)
    looks = iter([False, True])
    (said,) = model.numbers_of(ids, lambda: next(looks))["notes"]
    assert said.startswith("there was time to measure ") and said.endswith(" held-out tokens")
    assert "notes" not in model.numbers_of(ids[:50], lambda: False)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("classify", ("texts", False, "1-accuracy")),
        ("classify-several", ("texts", False, "share of wrong labels")),
        ("classify-numbers", ("texts", False, "mean error/deviation")),
        ("tag", ("words", False, "1-accuracy")),
        ("tag-crf", ("words", False, "1-F1")),
        ("qa", ("questions", False, "1-accuracy")),
        ("qa-generated", ("answer tokens", True, None)),
        ("seq2seq-attention", ("target tokens", True, None)),
        ("lstm", ("tokens", True, None)),
    ],
)
def test_every_task_says_what_its_numbers_are(name: str, wanted: tuple[str, bool, str | None]) -> None:
    train_case(name, "model")
    task, model = find_task(CASES[name].task), elman.load("model")
    wording = task.wording(model.record)  # type: ignore[attr-defined]
    assert (wording.counted, wording.has_perplexity, wording.error) == wanted


def test_a_tagger_and_a_classifier_speak_of_no_perplexity_and_no_tokens(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elman.training.display.LINE_SECONDS", 0.0)
    settings = [word for key, value in NET.items() for word in ("--set", f"{key}={value}")]
    for task, data, error, rows in (
        ("tag", "spans.train.conll", "valid 1-F1 ", "words"),
        ("classify", "labels.train.tsv", "valid 1-accuracy ", "texts"),
    ):
        made = run("train", task, data, "--out", task, *settings)
        assert made.code == 0, made.err
        assert error in made.err and f" {rows}/s, " in made.err and f" {rows}, " in made.err
        drawn = (Path(task) / "curves.svg").read_text()
        assert f"{rows} trained on" in drawn and "exp(loss)" in drawn and "perplexity" not in drawn
        assert "perplexity" not in made.err and "valid error" not in made.err and " tokens" not in made.err
