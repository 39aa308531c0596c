"""Answers that are marked in a context, or written: by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.tasks.qa.passage_model import MarkedAnswers, WrittenAnswers
from tests.commands import Run

SMALL = ["--set", "model.hidden=16", "--set", "model.embedding=16", "--threads", "1"]
SMALL += ["--set", "train.learning_rate=0.01", "--set", "train.batch=20"]
NAMES = ["Ann", "Bo", "Cy"]
TOWNS = [a + b for a in ("Al", "Ber", "Cor", "Dun", "El", "Far") for b in ("ham", "ton", "wick", "by", "Upon Sea")]


def make_records(count: int, seed: int, *, writes: bool) -> str:
    """Two live somewhere, and it is asked where one of them does; or one does, and it is asked where, or who."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        names, towns = rng.permutation(NAMES)[:2], rng.permutation(TOWNS)[:2]
        homes = [f"{name} lives in {town}." for name, town in zip(names, towns, strict=True)]
        who = int(rng.integers(2))
        record = {"context": " ".join(homes), "question": f"Where is {names[who]}?", "answer": str(towns[who])}
        if writes:
            question, answer = ("Who lives there?", f"It is {names[0]}.") if who else ("Where?", "Not here!")
            record = {"context": homes[0], "question": question, "answer": answer}
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("passages")
    for kind, writes in (("span", False), ("generated", True)):
        for part, count, seed in (("train", 300, 0), ("valid", 40, 1)):
            (folder / f"{kind}-{part}.jsonl").write_text(make_records(count, seed, writes=writes))
        files = [str(folder / f"{kind}-train.jsonl"), "--valid", str(folder / f"{kind}-valid.jsonl")]
        # towns are 30 of 300 answers, few enough to choose from: so it is said how to answer
        more = ["--set", f"model.answer={kind}", "--epochs", "20" if writes else "14"]
        assert run_arguments(["train", "qa", *files, "--out", str(folder / kind), *more, *SMALL]) == 0
    return folder


@pytest.mark.parametrize("kind", ["span", "generated"])
def test_it_learns_and_its_numbers_are_those_of_evaluate(run: Run, folder: Path, kind: str) -> None:
    kept = json.loads((folder / kind / "config.json").read_text())
    assert kept["valid"]["accuracy"] == 1.0 and kept["valid"]["token_f1"] == 1.0
    assert kept["model"]["answer"] == kind
    found = run("evaluate", folder / kind, folder / f"{kind}-valid.jsonl", "--json").json
    assert {key: found[key] for key in kept["valid"]} == kept["valid"]


def test_an_answer_is_marked_as_it_was_written(run: Run, folder: Path) -> None:
    text = "Bo lives in Dunby. Ann lives in   CorUpon  Sea."
    model = elman.load(folder / "span")
    assert isinstance(model, MarkedAnswers)
    assert model.predict(text, "Where is Ann?") == "CorUpon  Sea"
    assert model.predict(text, "Where is Bo?") == "Dunby"
    out = run("predict", folder / "span", stdin=f"{text}\tWhere is Ann?\n".encode()).out
    assert out == "CorUpon  Sea\n"
    record = run("predict", folder / "span", "--json", stdin=f"{text}\tWhere is Bo?\n".encode()).json
    assert record["words"] == ["Bo", "lives", "in", "Dunby", ".", "Ann", "lives", "in", "CorUpon", "Sea", "."]
    assert np.argmax(record["begins"]) == np.argmax(record["ends"]) == 3
    assert record["probabilities"]["Dunby"] > 0.5
    assert sum(record["probabilities"].values()) <= 1.001


def test_without_a_context_there_is_nothing_to_mark(folder: Path) -> None:
    model = elman.load(folder / "span")
    assert isinstance(model, MarkedAnswers)
    assert model.predict([], "Where is Ann?") == ""
    assert model.predict("", "") == ""


def test_an_answer_is_written_with_a_beam_or_without(run: Run, folder: Path) -> None:
    text = "Bo lives in Alby."
    model = elman.load(folder / "generated")
    assert isinstance(model, WrittenAnswers)
    assert model.predict(text, "Who lives there?") == "It is Bo."
    assert model.predict("Cy lives in Dunton.", "Where?") == "Not here!"
    line = f"{text}\tWho lives there?\n".encode()
    assert run("predict", folder / "generated", "--beam", "1", stdin=line).out == "It is Bo.\n"
    record = run("predict", folder / "generated", "--json", stdin=line).json
    assert record["words"] == ["Bo", "lives", "in", "Alby", ".", "</s>"]
    assert len(record["attention"]) == 5  # It is Bo . </s>
    assert sum(record["attention"][0]) == pytest.approx(1, abs=1e-2)
    assert model.predict("", "Where is Ann?")  # something is always written
    found = run("evaluate", folder / "generated", folder / "generated-valid.jsonl", "--beam", "1", "--json").json
    assert found["accuracy"] == 1.0


def test_a_beam_is_only_for_what_is_written(run: Run, folder: Path) -> None:
    found = run("predict", folder / "span", "--beam", "2", stdin=b"A b.\tWhere?\n")
    assert found.code == 2 and "--beam does not apply" in found.err
    assert run("evaluate", folder / "span", folder / "span-valid.jsonl", "--beam", "2").code == 2


def test_answers_that_are_not_there_are_counted(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.tsv").write_text("Ann lives in Elby.\tWhere is Ann?\tOslo\nA.\tWhere is Ann?\tA\n")
    found = run("evaluate", folder / "span", tmp_path / "new.tsv", "--json").json
    assert found["absent_answers"] == 1 and found["examples"] == 2


def test_how_to_answer_is_chosen_and_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.tsv"
    path.write_text("".join(f"It is n{i} here.\tWhat?\tn{i}\n" for i in range(30)))
    found = run("train", "qa", path, "--out", tmp_path / "m", "--epochs", "1", *SMALL)
    assert found.code == 0
    assert "answers: span, because" in found.err and "stand in their contexts (model.answer" in found.err
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model"]["longest"] == 1
    path.write_text("".join(f"It is n{i} here.\tWhat?\tnot {i}\n" for i in range(30)))
    found = run("train", "qa", path, "--out", tmp_path / "n", "--epochs", "1", *SMALL)
    assert found.code == 0 and "answers: generated, because" in found.err
    assert "model.hops" not in found.err


def test_questions_without_a_mark_are_left_out_and_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "some.tsv"
    path.write_text("It is a.\tWhat?\ta\nIt is b.\tWhat?\tb\nIt is c.\tWhat?\tZ\n" * 5)
    more = ["--valid", "none", "--epochs", "1", "--set", "model.answer=span", *SMALL]
    found = run("train", "qa", path, "--out", tmp_path / "m", *more)
    assert found.code == 0
    assert "5 questions are left out: their answers do not stand in their contexts" in found.err


@pytest.mark.parametrize(
    ("text", "more", "code", "message"),
    [
        ("A b.\tWhere?\tx\nC d.\tWhere?\ty\n", ["model.answer=span"], 65, "no answer stands in its context"),
        ("A b.\tWhere?\tA\nC d.\tWhere?\tC\n", ["model.answer=span", "model.hops=2"], 2, "hops is for answer=word"),
        (
            "A b.\tWhere?\tA\nC d.\tWhere?\tC\n",
            ["model.answer=word", "model.longest=2"],
            2,
            "longest is for answer=span",
        ),
        ("A b.\tWhere?\tA\nC d.\tWhere?\tC\n", ["model.answer=words"], 2, "model.answer"),
        ("A.\tWhere?\ta </s> b\nC.\tWhere?\tC\n", ["model.answer=generated"], 65, "contains </s>, which is reserved"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tmp_path: Path, text: str, more: list[str], code: int, message: str
) -> None:
    path = tmp_path / "data.tsv"
    path.write_text(text)
    settings = [part for setting in more for part in ("--set", setting)]
    found = run("train", "qa", path, "--out", tmp_path / "m", "--valid", "none", "--epochs", "1", *SMALL, *settings)
    assert found.code == code
    assert message in found.err


@pytest.mark.parametrize("kind", ["span", "generated"])
def test_stopped_and_resumed_is_never_stopped(
    run: Run, folder: Path, tmp_path: Path, cut_short: Callable[..., None], kind: str
) -> None:
    arguments = ["train", "qa", folder / f"{kind}-train.jsonl", "--epochs", "1", *SMALL]
    arguments += ["--set", "train.checkpoint_steps=3", "--set", f"model.answer={kind}", "--set", "model.dropout=0.1"]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    cut_short(*arguments, "--out", tmp_path / "cut")
    one, other = elman.resume(tmp_path / "cut"), elman.load(tmp_path / "whole")
    assert one.record.valid == other.record.valid
    for name, array in other.net.tensors().items():  # type: ignore[union-attr]
        assert np.array_equal(array, one.net.tensors()[name]), name  # type: ignore[union-attr]
