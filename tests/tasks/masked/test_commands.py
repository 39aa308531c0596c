"""Masked models by the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.core.errors import UsageError
from elman.tasks.masked.model import MaskedTextModel, _pieces
from elman.text.units.vocabulary import EOS_ID
from tests.commands import Run
from tests.tasks.texts import WORDS, arguments


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
    assert isinstance(model, MaskedTextModel)
    ((best, probability), *_), second = model.fill("the <mask> sat on <mask> dog", k=3)
    assert best in WORDS and 0 < probability <= 1 and len(second) == 3
    assert len(model.predict("the <mask> sat").split()) == 3
    lines = run("predict", tmp_path / "m", stdin=b"the <mask> sat\nthe cat\n").out.splitlines()
    assert lines == [model.predict("the <mask> sat"), "the cat"]
    found = run("predict", tmp_path / "m", "--json", stdin=b"the <mask> sat\n").json
    assert found["text"] == lines[0] and len(found["gaps"]) == 1 and len(found["gaps"][0]) == 10
    refused = run("generate", tmp_path / "m")
    assert (
        refused.code == 2 and "holds a masked model" in refused.err and "no probability of the next one" in refused.err
    )


@pytest.mark.parametrize("units", ["word", "bpe:280"])
def test_a_filled_gap_is_written_like_the_text_around_it(text: Path, units: str) -> None:
    """A gap between words was once filled by a symbol of the vocabulary, with the mark that stands for its space."""
    settings = {"model.hidden": 8, "train.steps": 2, "train.batch": 4, "train.bptt": 12}
    model = elman.train("masked", text, units=units, valid="none", settings=settings, threads=1)
    assert isinstance(model, MaskedTextModel)
    line = model.predict("the <mask> sat on <mask> .")
    assert line.isascii() and re.fullmatch(r"the \S+ sat on \S+ \.", line)
    assert all(not symbol.startswith("\u2581") for symbol, _ in model.fill("the <mask> sat", k=5)[0])


def test_a_masked_model_is_no_member_of_a_mixture_and_it_is_said_why(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("masked", text, tmp_path / "masked", "--set", "train.steps=1")).code == 0
    refused = run("mix", tmp_path / "masked", "cache", "--valid", text, "--out", tmp_path / "m")
    assert refused.code == 2 and not (tmp_path / "m" / "config.json").exists()
    assert "so it has no probability of the next one" in refused.err
    assert "hint: train lm or bilm on the same text" in refused.err


def test_a_text_without_a_gap_or_a_word_is_refused(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("masked", text, tmp_path / "m", "--set", "train.steps=1")).code == 0
    model = elman.load(tmp_path / "m")
    assert isinstance(model, MaskedTextModel)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "model.mask=0"], "model.mask is a number, above 0 and below 1"),
        (["--set", "model.mask=1"], "model.mask is a number, above 0 and below 1"),
        (["--model", "mkn"], "model.family"),
        (["--set", "train.fit_temperature=false"], "train.fit_temperature does not apply to masked"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, text: Path, tmp_path: Path, options: list[str], message: str) -> None:
    refused = run(*arguments("masked", text, tmp_path / "m", *options))
    assert refused.code == 2 and message in refused.err
