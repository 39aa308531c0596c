"""A new family is one file and one line, and so is a new task: nothing else has to know them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.tasks import catalogue
from elman.tasks.lm import families
from elman.testing import check_language_model, check_task_model
from tests.commands import LINES, Run
from tests.tasks.toy_family import ToyFamily, ToyModel
from tests.tasks.toy_task import LengthModel


@pytest.fixture
def toy_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, ToyFamily()))


@pytest.fixture
def toy_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    entry = catalogue.Entry("tests.tasks.toy_task", "LengthTask", "how long lines are")
    monkeypatch.setitem(catalogue.TASKS, "length", entry)


@pytest.mark.usefixtures("toy_family")
def test_a_family_in_one_file_is_trained_and_used_by_every_verb(run: Run, corpus: Path, tmp_path: Path) -> None:
    out, training = tmp_path / "m", ["--model", "toy", "--units", "space", "--reset-lines", "--valid", "none"]
    made = run("train", "lm", corpus, "--out", out, *training, "--set", "model.extra=0.5", "--json")
    assert made.code == 0, made.err
    assert (made.json["model"], made.json["settings"]) == ("toy", {"extra": 0.5})
    assert "symbols counted" in made.err
    # by hand: every word and every end of a line, half an occurrence more, of 15 symbols with <unk> and </s>
    counts = Counter(word for line in LINES * 20 for word in (*line.split(), "</s>"))
    vocab_size, total = made.json["vocab_size"], counts.total()
    nats = {word: -math.log((count + 0.5) / (total + 0.5 * vocab_size)) for word, count in counts.items()}
    expected = math.exp(sum(count * nats[word] for word, count in counts.items()) / total)
    assert run("evaluate", out, corpus, "--json").json["perplexity"] == pytest.approx(expected, rel=1e-5)
    scored = run("score", out, stdin=b"the cat\n").out.split("\t")
    assert float(scored[0]) == pytest.approx(nats["the"] + nats["cat"] + nats["</s>"], rel=1e-5)
    assert run("next", out, "who saw", "--k", 1, "--json").json["next"][0]["token"] == counts.most_common(1)[0][0]
    drawn = run("generate", out, "--tokens", 8, "--seed", 1)
    assert drawn.code == 0 and set(drawn.out.split()) <= {*counts, "<unk>"}
    assert "model.extra" in run("info", out).out
    assert " toy" in run("train", "--help").out
    assert "tags: [elman, language-model, toy]" in (out / "README.md").read_text()
    model = elman.load(out)
    assert isinstance(model.lm, ToyModel)
    check_language_model(model.lm, rng=np.random.default_rng(0))


@pytest.mark.usefixtures("toy_family")
def test_a_family_in_one_file_is_a_member_of_mixtures(run: Run, corpus: Path, model: Path, tmp_path: Path) -> None:
    training = ["--model", "toy", "--units", "space", "--reset-lines", "--valid", "none"]
    assert run("train", "lm", corpus, "--out", tmp_path / "toy", *training).code == 0
    mixed = run("mix", tmp_path / "toy", model, "cache", "--valid", corpus, "--out", tmp_path / "mix", "--json")
    assert mixed.code == 0, mixed.err
    assert [member["family"] for member in mixed.json["settings"]["members"]] == ["toy", "mkn", "cache"]
    again = run("evaluate", tmp_path / "mix", corpus, "--json").json
    assert again["perplexity"] == pytest.approx(mixed.json["valid"]["perplexity"], rel=1e-5)


@pytest.mark.usefixtures("toy_family")
@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        (["--model", "toi"], "there is no model 'toi'", "did you mean toy?"),
        (
            ["--model", "toy", "--set", "model.extr=1"],
            "model.extr is not a setting of toy",
            "did you mean model.extra?",
        ),
        (["--model", "toy", "--set", "model.extra=0"], "model.extra is a number, above 0", None),
        (["--model", "toy", "--set", "train.batch=4"], "train.batch does not apply to toy, which counts", None),
    ],
)
def test_what_cannot_be_with_a_family_in_one_file_is_refused(
    run: Run, corpus: Path, tmp_path: Path, options: list[str], what: str, hint: str | None
) -> None:
    refused = run("train", "lm", corpus, "--out", tmp_path / "m", *options)
    assert refused.code == 2 and refused.err.startswith(f"error: {what}"), refused.err
    assert hint is None or f"hint: {hint}" in refused.err


@pytest.mark.usefixtures("toy_task")
def test_a_task_in_one_file_is_trained_and_used_by_every_verb(run: Run, tmp_path: Path) -> None:
    text, valid, out = tmp_path / "text.txt", tmp_path / "valid.txt", tmp_path / "m"
    text.write_text("ab abcd\nabc\n")  # 9 letters in 3 words, and one word of 5 besides: 3.5 letters a word
    valid.write_text("abc\nabcd ab\n")  # guesses 3.5 and 7, wrong by 0.5 and 1
    made = run("train", "length", text, "--out", out, "--valid", valid, "--json")
    assert made.code == 0, made.err
    assert made.err.startswith("3.50 letters a word\n")
    assert made.json["task"] == "length"
    assert made.json["valid"] == {"mae": pytest.approx(0.75), "examples": 2}
    found = run("evaluate", out, valid, "--json").json
    assert (found["mae"], found["examples"], found["seed"]) == (pytest.approx(0.75), 2, 1)
    assert run("predict", out, stdin=b"x y\n\nz\n").out == "7.00\n0.00\n3.50\n"
    assert run("predict", out, "--json", stdin=b"x y\n").json == {"schema_version": 1, "text": "x y", "letters": 7.0}
    assert "length: how long lines are" in " ".join(run("train", "--help").out.split())
    shown = run("info", out).out
    assert "length" in shown and "model.prior" in shown and "valid.mae" in shown
    assert run("resume", out).code == 0  # it has finished
    model = elman.load(out)
    assert isinstance(model, LengthModel) and model.predict("a b c") == pytest.approx(10.5)
    check_task_model(model, folder=tmp_path, lines=["a", "b c", ""], data=valid)
    assert "elman predict DIR" in (out / "README.md").read_text()
    assert json.loads((out / "config.json").read_text())["task"] == "length"


@pytest.mark.usefixtures("toy_task")
def test_what_cannot_be_with_a_task_in_one_file_is_refused(run: Run, corpus: Path, model: Path, tmp_path: Path) -> None:
    cases = {
        ("train", "length", corpus, "--set", "model.priro=3"): "did you mean model.prior?",
        ("train", "length", corpus, "--reset-lines"): "--reset-lines does not apply to length",
        ("train", "length", corpus, "--memory", "1G"): "--memory does not apply to length",
        ("train", "zebra", corpus): "hint: tasks: lm, masked, bilm, seq2seq, tag, classify, qa, length",
        ("train", "lenght", corpus): "hint: did you mean length?",
    }
    for arguments, message in cases.items():
        refused = run(*arguments, "--out", tmp_path / "no")
        assert refused.code == 2 and message in refused.err, refused.err
        assert not (tmp_path / "no").exists()
    out = tmp_path / "m"
    assert run("train", "length", corpus, "--out", out).code == 0
    for arguments, message in {
        ("predict", out, "--beam", 3): "--beam does not apply to length",
        ("evaluate", out, corpus, "--dynamic"): "--dynamic does not apply to length",
        ("evaluate", out, corpus, "--picture", tmp_path / "p.svg"): "there is no picture of these numbers",
        ("generate", out): "holds a model for length, not a language model",
        ("mix", model, out, "--valid", corpus, "--out", tmp_path / "no"): "holds a model for length",
    }.items():
        refused = run(*arguments, stdin=b"a b\n")
        assert refused.code == 2 and message in refused.err, refused.err
