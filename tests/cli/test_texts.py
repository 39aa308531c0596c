"""Masked models and language models of both directions by the command line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.core.errors import UsageError
from elman.core.files import read_tensors
from elman.tasks.bilm.task import TwoWayModel
from elman.tasks.lm.model import Model
from elman.tasks.masked.task import Restorer, _pieces
from elman.testing import check_language_model
from elman.text.units.vocabulary import EOS_ID
from elman.training.progress import Progress
from tests.cli.conftest import Run

SMALL = ["--set", "model.hidden=8", "--set", "train.batch=4", "--set", "train.bptt=12", "--threads", "1"]
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far"]


@pytest.fixture(scope="module", name="text")
def fixture_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines in which every word is between the same two, so that there is something to restore it from."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(200):
        first = rng.integers(len(WORDS))
        lines.append(" ".join(WORDS[(first + step) % len(WORDS)] for step in range(rng.integers(3, 9))))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(task: str, text: Path, out: Path, *more: str) -> list[str]:
    return ["train", task, str(text), "--units", "space", "--out", str(out), *SMALL, *more]


@pytest.mark.parametrize("options", [["--model", "lstm"], ["--model", "transformer", "--reset-lines"]])
def test_a_masked_model_restores_words_and_its_numbers_are_those_of_evaluate(
    run: Run, text: Path, tmp_path: Path, options: list[str]
) -> None:
    rate = ["--set", "train.learning_rate=0.01", "--set", "model.mask=0.3", "--set", "model.hidden=16"]
    command = arguments("masked", text, tmp_path / "m", "--valid", str(text), "--epochs", "6", *rate, *options)
    made = run(*command, "--json")
    assert made.code == 0, made.err
    valid = made.json["valid"]
    assert valid["accuracy"] > 0.4 and valid["pseudo_perplexity"] < 5  # by chance: 0.125 and 8
    num_words = len(text.read_text().split())
    assert valid["tokens"] == num_words  # ends of lines are given
    assert "eos:given|hidden:1/4" in valid["signature"]
    again = run("evaluate", tmp_path / "m", text, "--json").json
    assert again["accuracy"] == valid["accuracy"] and again["tokens"] == num_words
    assert again["pseudo_perplexity"] == pytest.approx(valid["pseudo_perplexity"], rel=1e-5)
    model = elman.load(tmp_path / "m")
    assert isinstance(model, Restorer)
    ((best, probability), *_), second = model.fill("the <mask> sat on <mask> dog", k=3)
    assert best in WORDS and 0 < probability <= 1 and len(second) == 3
    assert len(model.predict("the <mask> sat").split()) == 3
    lines = run("predict", tmp_path / "m", stdin=b"the <mask> sat\nthe cat\n").out.splitlines()
    assert lines == [model.predict("the <mask> sat"), "the cat"]
    found = run("predict", tmp_path / "m", "--json", stdin=b"the <mask> sat\n").json
    assert found["text"] == lines[0] and len(found["gaps"]) == 1 and len(found["gaps"][0]) == 10
    refused = run("generate", tmp_path / "m")
    assert refused.code == 2 and "holds a model for masked, not a language model" in refused.err


def test_a_two_way_model_is_measured_both_ways_and_gives_features(run: Run, text: Path, tmp_path: Path) -> None:
    made = run(*arguments("bilm", text, tmp_path / "m", "--valid", str(text), "--epochs", "6", "--json"))
    assert made.code == 0, made.err
    valid = made.json["valid"]
    assert valid["perplexity"] < 6 and valid["perplexity_backward"] < 6
    assert valid["perplexity"] != valid["perplexity_backward"]
    assert valid["tokens"] == len(text.read_text().split()) + 200  # with the ends of lines, as a language model
    again = run("evaluate", tmp_path / "m", text, "--json").json
    assert again["perplexity_backward"] == pytest.approx(valid["perplexity_backward"], rel=1e-5)
    model = elman.load(tmp_path / "m")
    assert isinstance(model, TwoWayModel)
    assert model.features("the cat sat").shape == (3, 3, 16)  # words and two layers, three tokens, both directions


@pytest.mark.parametrize("units", ["word", "bpe:280"])
def test_a_filled_gap_is_written_like_the_text_around_it(text: Path, units: str) -> None:
    """A gap between words was once filled by a symbol of the vocabulary, with the mark that stands for its space."""
    settings = {"model.hidden": 8, "train.steps": 2, "train.batch": 4, "train.bptt": 12}
    model = elman.train("masked", text, units=units, valid="none", settings=settings, threads=1)
    assert isinstance(model, Restorer)
    line = model.predict("the <mask> sat on <mask> .")
    assert line.isascii() and re.fullmatch(r"the \S+ sat on \S+ \.", line)
    assert all(not symbol.startswith("\u2581") for symbol, _ in model.fill("the <mask> sat", k=5)[0])


def test_a_mixture_takes_the_forward_model_of_a_bilm(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("bilm", text, tmp_path / "bilm", "--epochs", "3", "--set", "model.head=adaptive")).code == 0
    both = elman.load(tmp_path / "bilm")
    assert isinstance(both, TwoWayModel)
    forward = both.forward()
    assert forward.evaluate(text)["perplexity"] == pytest.approx(both.evaluate(text)["perplexity"], rel=1e-5)
    assert run(*arguments("lm", text, tmp_path / "lm", "--model", "transformer", "--epochs", "1")).code == 0
    mixed = run(
        "mix", tmp_path / "lm", tmp_path / "bilm", "neural-cache:net=1", "--valid", text, "--out", tmp_path / "m"
    )
    assert mixed.code == 0, mixed.err
    for member in ("lm", "bilm"):  # a mixture needs none of its members
        shutil.rmtree(tmp_path / member)
    model = elman.load(tmp_path / "m")
    assert isinstance(model, Model)
    check_language_model(model.lm, rng=np.random.default_rng(0), tolerance=1e-4)
    best = run("evaluate", tmp_path / "m", text, "--dynamic", "--json").json
    assert best["perplexity"] < forward.evaluate(text)["perplexity"]
    assert best["perplexity_dynamic"] != best["perplexity"]


def test_a_masked_model_is_no_member_of_a_mixture_and_it_is_said_why(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("masked", text, tmp_path / "masked", "--set", "train.steps=1")).code == 0
    refused = run("mix", tmp_path / "masked", "cache", "--valid", text, "--out", tmp_path / "m")
    assert refused.code == 2 and not (tmp_path / "m" / "config.json").exists()
    assert "so it has no probability of the next one" in refused.err
    assert "hint: train lm or bilm on the same text" in refused.err


@pytest.mark.parametrize(("task", "model"), [("masked", "transformer"), ("bilm", "gru"), ("lm", "transformer")])
def test_stopped_and_gone_on_with_it_is_the_run_that_never_stopped(
    run: Run, text: Path, tmp_path: Path, task: str, model: str
) -> None:
    steps = ["--set", "train.steps=12", "--set", "train.checkpoint_steps=5", "--set", "model.dropout=0.2"]
    assert run(*arguments(task, text, tmp_path / "whole", "--model", model, *steps)).code == 0

    def stop(progress: Progress) -> None:
        if progress.step >= 8:
            raise KeyboardInterrupt

    settings = {"train.steps": 12, "train.checkpoint_steps": 5, "model.dropout": 0.2, "model.hidden": 8}
    settings |= {"train.batch": 4, "train.bptt": 12}
    with pytest.raises(KeyboardInterrupt):
        elman.train(
            task,
            text,
            model=model,
            units="space",
            out=tmp_path / "part",
            settings=settings,
            threads=1,
            on_progress=stop,
        )
    assert run("resume", tmp_path / "part").code == 0
    whole, part = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("masked", ["--set", "model.mask=0"], "model.mask: input should be greater than 0"),
        ("masked", ["--set", "model.mask=1"], "model.mask: input should be less than 1"),
        ("masked", ["--model", "mkn"], "model.family"),
        ("masked", ["--set", "train.fit_temperature=false"], "train.fit_temperature does not apply to masked"),
        ("bilm", ["--set", "model.skip=dense", "--set", "model.layers=2"], "model.skip=dense does not apply to bilm"),
        ("bilm", ["--set", "model.maxent=3"], "model.maxent does not apply to bilm"),
        ("bilm", ["--memory", "1G"], "--memory does not apply to bilm"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, text: Path, tmp_path: Path, task: str, options: list[str], message: str
) -> None:
    refused = run(*arguments(task, text, tmp_path / "m", *options))
    assert refused.code == 2 and message in refused.err


def test_a_text_without_a_gap_or_a_word_is_refused(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("masked", text, tmp_path / "m", "--set", "train.steps=1")).code == 0
    model = elman.load(tmp_path / "m")
    assert isinstance(model, Restorer)
    with pytest.raises(UsageError, match="there is no <mask>"):
        model.fill("the cat")
    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n")
    refused = run("evaluate", tmp_path / "m", blank)
    assert refused.code == 65 and "nothing to restore" in refused.err


@pytest.mark.parametrize("reset_lines", [False, True])
def test_pieces_hold_every_token_of_a_text_once(reset_lines: bool) -> None:
    ids = np.random.default_rng(0).integers(0, 30, size=5000).astype(np.uint16)
    ids[700:2000] = 7  # a line longer than what is read at once
    found = []
    for tokens, lengths in _pieces(ids, reset_lines=reset_lines):
        assert tokens.shape[1] == lengths.max() and tokens.shape[1] <= (512 if reset_lines else 128)
        found += [row[:length] for row, length in zip(tokens, lengths, strict=True)]
    assert np.array_equal(np.sort(np.concatenate(found)), np.sort(ids))
    if reset_lines:
        assert all((row[:-1] != EOS_ID).all() for row in found)
