"""Classification by the command line: classes, several labels, numbers; and every bad file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.tasks.classify.model import Classifier
from tests.commands import Run

SMALL = ["--set", "model.hidden=12", "--set", "model.dropout=0", "--set", "train.batch=20", "--threads", "1"]
SMALL += ["--set", "train.learning_rate=0.01"]


def make_rows(count: int, seed: int) -> list[tuple[str, str, int, str]]:
    """A class, several labels, a number, and a text that says them."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        good, long = bool(rng.integers(2)), bool(rng.integers(2))
        words = [str(word) for word in rng.choice(["the", "film", "was", "on", "again"], size=rng.integers(2, 6))]
        words.insert(int(rng.integers(len(words))), "great" if good else "awful")
        if long:
            words.insert(int(rng.integers(len(words))), "long")
        several = ",".join(["good"] * good + ["long"] * long) or "-"
        rows.append(("pos" if good else "neg", several, 2 + 4 * good + long, " ".join(words)))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    for name, rows in (("train", make_rows(300, 0)), ("valid", make_rows(60, 1))):
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\t{c}\t{d}\n" for a, b, c, d in rows))
    for out, column, *more in (
        ("classes", "1", "model.pool=attention"),
        ("several", "2", "model.output=sigmoid"),
        ("numbers", "3", "model.output=linear", "model.pool=mean"),
    ):
        settings = [f"--set={setting}" for setting in ("data.source=4", f"data.target={column}", *more)]
        files = [str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--out", str(folder / out)]
        assert run_arguments(["train", "classify", *files, "--epochs", "6", *SMALL, *settings]) == 0
    return folder


def kept(folder: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / name / "config.json").read_text())["valid"]
    return found


def test_it_learns_with_the_baseline_beside_it_and_evaluate_agrees(run: Run, folder: Path) -> None:
    valid = kept(folder, "classes")
    assert valid["accuracy"] == 1.0 and valid["linear_accuracy"] == 1.0
    found = run("evaluate", folder / "classes", folder / "valid.tsv", "--json").json
    for key in ("accuracy", "f1", "calibration_error", "linear_f1"):
        assert found[key] == pytest.approx(valid[key])
    assert found["by_label"] == valid["by_label"]
    counts = Counter(label for label, *_ in make_rows(60, 1)).most_common()
    assert len({count for _, count in counts}) == 2  # so that the order of the labels is told by the counts
    assert found["confusions"]["labels"] == [label for label, _ in counts]
    assert found["confusions"]["counts"] == [[counts[0][1], 0], [0, counts[1][1]]]
    drawn = run("evaluate", folder / "classes", folder / "valid.tsv", "--picture", folder / "c.svg")
    assert drawn.code == 0
    assert all(f">{word}<" in (folder / "c.svg").read_text() for word in ("neg", "pos"))


def test_a_picture_overwrites_nothing_unasked_and_that_is_said_before_any_work(run: Run, folder: Path) -> None:
    picture, own = folder / "mine.svg", folder / "classes" / "curves.svg"
    picture.write_text("drawn by hand")
    command = ("evaluate", folder / "classes", folder / "valid.tsv", "--picture")
    refused = run(*command, picture)
    assert (refused.code, refused.out, picture.read_text()) == (74, "", "drawn by hand")
    assert refused.err.splitlines() == [f"error: {picture} is there already", "hint: --overwrite replaces it"]
    assert "is a file of the model in" in run(*command, own, "--overwrite").err
    assert run(*command, folder / "mine.gif").code == 2
    assert run(*command, picture, "--overwrite").code == 0
    assert picture.read_text().startswith("<svg")


def test_several_labels_and_numbers(run: Run, folder: Path) -> None:
    assert float(str(kept(folder, "several")["accuracy"])) > 0.9
    assert float(str(kept(folder, "numbers")["r2"])) > 0.9
    lines = b"a great long film\nthe great film\nthe awful long film\nthe awful film\n"
    assert run("predict", folder / "several", stdin=lines).out == "good,long\ngood\nlong\n-\n"
    value = float(run("predict", folder / "numbers", stdin=b"the great film\n").out)
    assert 5 < value < 7
    found = run("evaluate", folder / "numbers", folder / "valid.tsv", "--json").json
    assert {"mae", "r2", "linear_mae"} <= set(found)


def test_a_line_of_text_is_a_line_with_its_label(run: Run, folder: Path) -> None:
    assert run("predict", folder / "classes", stdin=b"The GREAT film\nan awful one\n").out == "pos\nneg\n"
    record = run("predict", folder / "classes", "--json", stdin=b"the awful film\n").json
    assert record["label"] == "neg"
    assert sum(record["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert record["words"] == ["the", "awful", "film"]
    assert int(np.argmax(record["attention"])) == 1  # at the only word that says it
    assert sum(record["attention"]) == pytest.approx(1, abs=1e-3)


def test_from_python(folder: Path) -> None:
    model = elman.load(folder / "classes")
    assert isinstance(model, Classifier)
    assert model.predict(["great", "awful", ""])[:2] == ["pos", "neg"]
    number = elman.load(folder / "numbers")
    assert isinstance(number, Classifier)
    assert isinstance(number.predict("great"), float)


def test_labels_never_seen_in_training_are_wrong_and_named(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("pos\t-\t1\tgreat film\nodd\t-\t1\tfilm\n")
    found = run("evaluate", folder / "classes", path, "--json").json
    assert found["accuracy"] == 0.5
    assert found["unseen_labels"] == ["odd"]


@pytest.mark.parametrize(
    ("text", "more", "code", "message"),
    [
        ("a\tx y\na\tz\n", [], 65, "every text to train on has the same label, 'a'"),
        ("".join(f"label{i}\tx y\n" for i in range(60)), [], 65, "these are hardly labels"),
        ("a\tx\nb\ty\n", ["--set", "model.output=linear"], 65, "line 1 of"),
        ("a\tx\nb\n", [], 65, "line 2 of"),
        ("a\tx\nb\ty\n", ["--set", "data.source=1"], 2, "source and target are columns"),
        ("a\tx\nb\ty\n", ["--set", "train.bptt=3"], 2, "train.bptt does not apply"),
        ("a\tx\nb\ty\n", ["--units", "byte"], 2, "data.units"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tmp_path: Path, text: str, more: list[str], code: int, message: str
) -> None:
    path = tmp_path / "data.tsv"
    path.write_text(text)
    found = run("train", "classify", path, "--out", tmp_path / "m", "--valid", "none", "--epochs", "1", *SMALL, *more)
    assert found.code == code
    assert message in found.err


def test_the_names_of_columns_are_no_text_and_a_label_of_the_first_row_alone_is_told(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    """A table with `sentence` and `label` in its first row once gave a class named label."""
    rows = "".join(f"{text}\t{label}\n" for label, _, _, text in make_rows(60, 3))
    options = ["--set=data.source=1", "--set=data.target=2", "--set=train.steps=2", "--set=model.baseline=false"]
    for header, said in (
        ("sentence\tlabel\n", "'sentence\\tlabel', names the columns, and is left out"),
        ("satz\turteil\n", "has the label 'urteil': if it names the columns, set data.header=true"),
        ("", ""),
    ):
        (tmp_path / "t.tsv").write_text(header + rows)
        made = run("train", "classify", tmp_path / "t.tsv", "--out", tmp_path / "m", "--overwrite", *SMALL, *options)
        assert made.code == 0 and said in made.err
        assert ("label" in made.err.replace("labels", "")) == bool(header)
        num_labels = 3 if "urteil" in header else 2
        assert len(json.loads((tmp_path / "m" / "config.json").read_text())["labels"]) == num_labels
    (tmp_path / "e.tsv").write_text("sentence\tlabel\n" + rows)
    found = run("evaluate", tmp_path / "m", tmp_path / "e.tsv", "--json").json
    assert (found["examples"], found["header_lines"]) == (60, 1)


def test_a_text_of_five_thousand_words_is_read_from_both_ends_and_said(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text("pos\tgreat " + "film " * 5000 + "\n" + "pos\tgreat film\nneg\tawful film\n" * 10)
    found = run("train", "classify", path, "--out", tmp_path / "m", "--valid", "none", "--epochs", "1", *SMALL)
    assert found.code == 0
    assert "1 texts are longer than 400 words" in found.err


def test_very_many_labels_are_refused_by_the_baseline_instead_of_filling_the_memory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 texts with 20,000 labels took 15 GB an array."""
    monkeypatch.setattr("elman.tasks.classify.linear.MAX_SCORES", 100)
    (tmp_path / "many.tsv").write_text("".join(f"label{i % 20}\ttext {i} of {i % 20}\n" for i in range(60)))
    options = ["--set=train.steps=2", "--set=model.hidden=4", "--threads=1", "--json"]
    command = ["train", "classify", tmp_path / "many.tsv", "--out", tmp_path / "m", *options]
    found = run(*command)
    assert found.code == 65 and "no room for 57 texts with 20 labels" in found.err and not (tmp_path / "m").exists()
    assert "--set model.baseline=false" in found.err and run(*command, "--set=model.baseline=false").code == 0


def test_a_label_that_was_held_out_is_not_called_missing(run: Run, tmp_path: Path) -> None:
    """Of two texts with two labels one is held out: `every text has the same label` was not true of the file."""
    (tmp_path / "two.tsv").write_text("x\thello there\ny\tbye now\n")
    found = run("train", "classify", tmp_path / "two.tsv", "--out", tmp_path / "m")
    assert found.code == 65 and "every text to train on has the same label" in found.err
    assert "--valid none" in found.err and not (tmp_path / "m").exists()
