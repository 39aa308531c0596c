"""Every task's model keeps the laws of answers; and each law notices a model that does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.tasks.base import EvaluateOptions, Prediction, PredictOptions, TaskModel
from elman.testing import BrokenLawError, check_task_model
from elman.testing.task_laws import (
    a_line_alone_is_answered_as_among_others,
    empty_input_is_answered,
    what_was_measured_in_training_is_what_evaluate_says,
    what_was_saved_answers_the_same,
)
from elman.text.readers import Sources
from tests.guards.cases import CASES, train_case, write_data

# Lines that each kind of data can be asked about, each by itself.
ASKED = {
    "text": ["the <mask> sat on the mat .", "a fox <mask> <mask> ?", "", "nothing is missing ."],
    "pairs.tsv": ["rot haus", "", "blau xyz und auto", "und"],
    "words.conll": ["the cat sat", "", "a zebra", "the the the dog"],
    "spans.conll": ["the cat sat", "", "Ann saw mat ton", "Ann"],
    "labels.tsv": ["the film was great", "", "awful awful awful awful", "long"],
    "several.tsv": ["the film was great", "", "long", "awful long"],
    "numbers.tsv": ["the film was great", "", "long", "awful"],
    "stories.txt": ["Mary went to the hall.\tWhere is Mary?", "John ran. Mary sat.\tWhere is John?", "x\ty"],
    "questions.jsonl": ["Ann lives in Berton.\tWhere is Ann?", "Bo is. Ann lives in Cor Bay.\tWhere?", "x\ty"],
}
NAMES = [name for name, case in CASES.items() if case.is_net]


@pytest.mark.parametrize("name", NAMES)
def test_every_task_keeps_the_laws(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(Path())
    case = CASES[name]
    if case.needs is not None:
        train_case(case.needs, case.needs)
    train_case(name, "model")
    stem, dot, end = case.data.partition(".")
    has_answers = case.task not in ("lm", "bilm")
    folder = tmp_path / "laws"
    folder.mkdir()
    check_task_model(
        elman.load("model"),
        folder=folder,
        lines=ASKED[case.data] if has_answers else (),
        data=tmp_path / f"{stem}.valid{dot}{end}",
    )


@dataclass(frozen=True)
class Length(Prediction):
    """How long a line is, and what came before it."""

    number: int

    def line(self) -> str:
        return str(self.number)

    def as_json(self) -> dict[str, Any]:
        return {"length": float(self.number)}


class Broken(TaskModel[Any]):
    """A model that may break a law."""

    def __init__(self, *, remembers: bool = False, answers_nothing: bool = False, forgets: bool = False) -> None:
        self.remembers, self.answers_nothing, self.forgets = remembers, answers_nothing, forgets
        self.record = type("Record", (), {"task": "broken", "valid": {"accuracy": 0.5}})()

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Length]:
        lines = Path(sources[0]).read_text().splitlines()
        if not lines and self.answers_nothing:
            yield Length(0)
        for number, line in enumerate(lines):
            yield Length(len(line) + number * self.remembers)

    def _evaluate(self, data: Any, options: EvaluateOptions) -> dict[str, Any]:
        return {"accuracy": 0.25 if self.forgets else 0.5}

    def tensors(self) -> dict[str, Any]:
        return {}

    def files(self) -> dict[str, bytes]:
        return {}


def test_a_model_that_remembers_the_line_before_is_found(tmp_path: Path) -> None:
    a_line_alone_is_answered_as_among_others(Broken(), ["a", "bb"], folder=tmp_path)
    with pytest.raises(BrokenLawError, match="line 1 in reverse order"):
        a_line_alone_is_answered_as_among_others(Broken(remembers=True), ["a", "bb"], folder=tmp_path)


def test_a_model_that_answers_an_empty_file_is_found(tmp_path: Path) -> None:
    empty_input_is_answered(Broken(), folder=tmp_path)
    with pytest.raises(BrokenLawError, match="empty file"):
        empty_input_is_answered(Broken(answers_nothing=True), folder=tmp_path)


def test_a_record_of_other_numbers_is_found(tmp_path: Path) -> None:
    model = Broken()
    what_was_measured_in_training_is_what_evaluate_says(model, tmp_path)
    model.forgets = True
    with pytest.raises(BrokenLawError, match="accuracy"):
        what_was_measured_in_training_is_what_evaluate_says(model, tmp_path)


def test_weights_that_are_not_saved_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(Path())
    train_case("tag", "model")
    model = elman.load("model")
    what_was_saved_answers_the_same(model, ["great"], folder=tmp_path, data=None)
    kept = model.net.tensors()
    model.net.tensors = lambda: {name: array * 0.5 for name, array in kept.items()}
    (tmp_path / "other").mkdir()
    with pytest.raises(BrokenLawError, match="predictions after loading"):
        what_was_saved_answers_the_same(model, ["great"], folder=tmp_path / "other", data=None)


def test_options_of_other_tasks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(Path())
    train_case("classify", "model")
    model = elman.load("model")
    with pytest.raises(elman.ElmanError, match=r"n_best=\.\.\. does not apply to classify"):
        next(model.predict_lines(["labels.tsv.ask"], replace(PredictOptions(), n_best=2)))
    with pytest.raises(elman.ElmanError, match="dynamic=True does not apply to classify"):
        model.evaluate("labels.valid.tsv", EvaluateOptions(dynamic=True))
