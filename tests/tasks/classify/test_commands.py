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
from elman.tasks.classify.parts import PartWeights
from elman.testing import check_task_model
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


# ---------------------------------------------------------------------------------------- the net and the linear model

UNTRAINED = ["--set=train.steps=1", "--set=train.learning_rate=0.000001", "--threads=1", "--set=model.hidden=4"]
COLUMNS = {"softmax": "1", "sigmoid": "2", "linear": "3"}


@pytest.mark.parametrize("output", COLUMNS)
def test_a_classifier_is_not_worse_than_the_linear_model_beside_a_net_that_learned_nothing(
    run: Run, folder: Path, tmp_path: Path, output: str
) -> None:
    """The net was saved and predicted, whatever the linear model beside it could: 86.1 % next to 88.6 % on IMDb."""
    options = [
        "--set=data.source=4",
        f"--set=data.target={COLUMNS[output]}",
        f"--set=model.output={output}",
        *UNTRAINED,
    ]
    files = [folder / "train.tsv", "--valid", folder / "valid.tsv", "--out", tmp_path / "m"]
    made = run("train", "classify", *files, *options)
    assert made.code == 0
    valid = kept(tmp_path, "m")
    better, key = (np.less_equal, "mae") if output == "linear" else (np.greater_equal, "accuracy")
    assert better(valid[key], valid[f"linear_{key}"])
    assert better(valid[f"crosswise_{key}"], valid[f"linear_{key}"])
    assert not better(valid[f"net_{key}"], valid[f"linear_{key}"])
    said = "predicts: the linear model alone"
    assert said in made.err and said in (tmp_path / "m" / "README.md").read_text()
    assert f"linear model {valid[f'linear_{key}']:.4f}" in made.err
    assert run("info", tmp_path / "m", "--json").json["predicts"] == "the linear model alone"
    found = run("evaluate", tmp_path / "m", folder / "valid.tsv", "--json").json
    assert found[key] == pytest.approx(valid[key]) and found[f"net_{key}"] == pytest.approx(valid[f"net_{key}"])
    assert f"crosswise_{key}" not in found  # that is of training alone


def test_a_classifier_of_both_parts_adds_their_scores_and_keeps_the_laws(folder: Path, tmp_path: Path) -> None:
    plain = elman.load(folder / "classes")
    assert isinstance(plain, Classifier) and plain.linear is not None
    record = plain.record.model_copy(update={"part_weights": PartWeights(net=0.25, linear=1.5), "valid": None})
    both = Classifier(record, plain.assets, plain.net)
    words = ["the", "awful", "film"]
    ids = np.array([[plain.words.number(word) for word in words]])
    scores = 0.25 * plain.net.scores(ids, np.array([3])) + 1.5 * plain.linear.scores([words])
    expected = np.exp(scores[0]) / np.exp(scores[0]).sum()
    np.testing.assert_allclose(both.shares([words])[0], expected, rtol=1e-5)
    check_task_model(
        both, folder=tmp_path, lines=["the great film", "", "awful", "on again"], data=folder / "valid.tsv"
    )


def test_without_a_linear_model_the_net_predicts_alone(run: Run, folder: Path, tmp_path: Path) -> None:
    options = ["--set=data.source=4", "--set=data.target=1", "--set=model.baseline=false", *UNTRAINED]
    made = run(
        "train", "classify", folder / "train.tsv", "--valid", folder / "valid.tsv", "--out", tmp_path / "m", *options
    )
    assert made.code == 0 and "predicts:" not in made.err
    assert not [key for key in kept(tmp_path, "m") if key.startswith(("linear_", "net_", "crosswise_"))]
    assert run("info", tmp_path / "m", "--json").json["predicts"] == "the net alone"
    assert not (tmp_path / "m" / "linear.safetensors").exists()


def test_where_nothing_is_held_out_both_predict_with_their_usual_weights_and_that_is_said(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    options = ["--valid=none", "--set=data.source=4", "--set=data.target=1", *UNTRAINED]
    made = run("train", "classify", folder / "train.tsv", "--out", tmp_path / "m", *options)
    assert made.code == 0 and "nothing is held out: the net and the linear model predict together" in made.err
    assert "together, scores = 0.5 * net + 1 * linear" in run("info", tmp_path / "m").out
    assert run("predict", tmp_path / "m", stdin=b"the great film\nan awful one\n").out == "pos\nneg\n"


def test_a_label_of_the_held_out_texts_alone_is_wrong_in_every_number(run: Run, folder: Path, tmp_path: Path) -> None:
    rows = [f"{'odd' if number % 2 else label}\t{text}\n" for number, (label, *_, text) in enumerate(make_rows(40, 5))]
    (tmp_path / "valid.tsv").write_text("".join(rows))
    (tmp_path / "train.tsv").write_text("".join(f"{label}\t{text}\n" for label, *_, text in make_rows(200, 6)))
    files = [tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv", "--out", tmp_path / "m"]
    assert run("train", "classify", *files, *UNTRAINED).code == 0
    valid = kept(tmp_path, "m")
    assert valid["accuracy"] == valid["linear_accuracy"] == valid["crosswise_accuracy"] == 0.5
    assert valid["unseen_labels"] == ["odd"]


def test_saliency_says_what_the_linear_model_adds_to_the_net_that_it_shows(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    options = ["--valid=none", "--set=data.source=4", "--set=data.target=1", *UNTRAINED]
    assert run("train", "classify", folder / "train.tsv", "--out", tmp_path / "m", *options).code == 0
    found = run("explain", tmp_path / "m", "the awful film", "--kind", "saliency")
    assert found.code == 0
    assert "label: neg" in found.out  # what the classifier says, not the net alone
    note = (found.out + found.err).split("this is of the net; ")[1]
    assert note.startswith("predicts: the net and the linear model together")
    assert "strongest in the linear model: awful +" in note


def test_a_budget_that_is_too_short_for_the_linear_model_ends_it_early_and_says_so(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 114 labels the linear model took all of a budget of three minutes, and training was refused."""
    monkeypatch.setattr("elman.tasks.classify.task.LINEAR_SHARE", 0.0)
    options = ["--set=data.source=4", "--set=data.target=1", "--budget=30m", *UNTRAINED]
    made = run(
        "train", "classify", folder / "train.tsv", "--valid", folder / "valid.tsv", "--out", tmp_path / "m", *options
    )
    assert made.code == 0 and "no time to train the linear model to its end" in made.err
    assert float(str(kept(tmp_path, "m")["linear_accuracy"])) > 0.5


def test_several_nets_are_saved_and_predict_as_one(run: Run, folder: Path, tmp_path: Path) -> None:
    options = ["--set=data.source=4", "--set=data.target=1", "--set=model.nets=2", "--set=model.baseline=false"]
    files = [folder / "train.tsv", "--valid", folder / "valid.tsv", "--out", tmp_path / "m", "--epochs", "4"]
    assert run("train", "classify", *files, *SMALL, *options).code == 0
    assert kept(tmp_path, "m")["accuracy"] == 1.0
    model = elman.load(tmp_path / "m")
    assert {name.split(".")[1] for name in model.tensors()} == {"0", "1"}
    first, second = (model.tensors()[f"nets.{number}.output.weight"] for number in (0, 1))
    assert not np.array_equal(first, second)
    assert model.encode("the great film").shape == (24,)
    shown = run("explain", tmp_path / "m", "the awful film", "--kind", "saliency")
    assert shown.code == 0 and "this is of the first of 2 nets; predicts: their mean" in shown.out + shown.err
    lines = ["the great film", "", "awful", "on again"]
    check_task_model(model, folder=tmp_path, lines=lines, data=folder / "valid.tsv")
