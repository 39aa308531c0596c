"""Questions by the command line: trained, answered, measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.tasks.qa.model import QaModel
from tests.commands import Run

SMALL = ["--set", "model.hidden=16", "--set", "model.embedding=16", "--set", "model.hops=1", "--threads", "1"]
SMALL += ["--set", "train.learning_rate=0.01"]


def make_stories(count: int, seed: int) -> str:
    """Who is where; each is told of once."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        names, rooms = rng.permutation(["Ann", "Bo", "Cy"])[:2], rng.choice(["hall", "kitchen", "garden"], size=2)
        lines += [f"{i} {name} is in the {room}." for i, (name, room) in enumerate(zip(names, rooms, strict=True), 1)]
        who = int(rng.integers(2))
        lines.append(f"3 Where is {names[who]}? \t{rooms[who]}\t{who + 1}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories")
    (folder / "train.txt").write_text(make_stories(500, 0))
    (folder / "valid.txt").write_text(make_stories(40, 1))
    files = [str(folder / "train.txt"), "--valid", str(folder / "valid.txt"), "--out", str(folder / "model")]
    assert run_arguments(["train", "qa", *files, "--epochs", "12", *SMALL]) == 0
    return folder


def test_it_learns_and_its_numbers_are_those_of_evaluate(run: Run, folder: Path) -> None:
    valid = json.loads((folder / "model" / "config.json").read_text())["valid"]
    assert valid["accuracy"] > 0.9
    found = run("evaluate", folder / "model", folder / "valid.txt", "--json").json
    assert found["accuracy"] == valid["accuracy"]


def test_questions_are_answered_from_every_format(run: Run, folder: Path, tmp_path: Path) -> None:
    text, who = "Ann is in the hall. Bo is in the garden.", ("Bo", "Ann")
    model = elman.load(folder / "model")
    assert isinstance(model, QaModel)
    assert [model.predict(text, f"Where is {name}?") for name in who] == ["garden", "hall"]
    answer = "garden"
    rows = "".join(f"{text}\tWhere is {name}?\n" for name in who)
    assert run("predict", folder / "model", stdin=rows.encode()).out == "garden\nhall\n"
    (tmp_path / "asked.jsonl").write_text(json.dumps({"context": text, "question": "Where is Bo?"}) + "\n")
    assert run("predict", folder / "model", tmp_path / "asked.jsonl").out == "garden\n"
    story = b"1 Ann is in the hall.\n2 Bo is in the garden.\n3 Where is Bo?\n"
    record = run("predict", folder / "model", "--json", stdin=story).json
    assert record["answer"] == answer
    assert record["sentences"] == ["Ann is in the hall.", "Bo is in the garden."]
    assert sum(record["attention"][0]) == pytest.approx(1, abs=1e-3)


def test_answers_never_seen_in_training_are_wrong_and_named(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("1 Ann is in the attic.\n2 Where is Ann?\tattic\n")
    found = run("evaluate", folder / "model", tmp_path / "new.txt", "--json").json
    assert found["accuracy"] == 0.0 and found["unseen_labels"] == ["attic"]


def test_what_cannot_be_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("1 A b.\n2 Where?\tb\n")
    found = run("train", "qa", path, "--out", tmp_path / "m", "--valid", "none", "--epochs", "1")
    assert found.code == 65 and "every question has the same answer" in found.err


def make_yes_or_no(count: int, seed: int) -> str:
    """Whether somebody is where they went last: what was seen has to be compared with what is asked."""
    rng = np.random.default_rng(seed)
    places = ["hall", "yard", "shop", "pond"]
    rows = []
    for _ in range(count):
        went = [(str(rng.choice(["Ann", "Bob", "Cid", "Dan"])), str(rng.choice(places))) for _ in range(3)]
        who, where = sorted(dict(went).items())[rng.integers(len(dict(went)))]
        asked = where if rng.random() < 0.5 else str(rng.choice([place for place in places if place != where]))
        told = " ".join(f"{name} went to the {place}." for name, place in went)
        rows.append(f"{told}\tIs {who} in the {asked}?\t{'yes' if asked == where else 'no'}\n")
    return "".join(rows)


@pytest.mark.slow
def test_yes_or_no_is_learnt(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(make_yes_or_no(1500, 0))
    (tmp_path / "valid.tsv").write_text(make_yes_or_no(200, 1))
    settings = {"model.hidden": 32, "model.embedding": 32, "train.epochs": 20, "train.learning_rate": 0.005}
    model = elman.train(
        "qa", tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", settings=settings, threads=1, out=tmp_path / "m"
    )
    assert model.info()["valid"]["accuracy"] > 0.95
