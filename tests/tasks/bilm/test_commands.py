"""Language models of both directions by the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.tasks.bilm.model import BilmTextModel
from elman.tasks.lm.model import Model
from elman.testing import check_language_model
from tests.commands import Run
from tests.tasks.texts import arguments


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
    assert isinstance(model, BilmTextModel)
    assert model.features("the cat sat").shape == (3, 3, 16)  # words and two layers, three tokens, both directions


def test_a_mixture_takes_the_forward_model_of_a_bilm(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments("bilm", text, tmp_path / "bilm", "--epochs", "3", "--set", "model.head=adaptive")).code == 0
    both = elman.load(tmp_path / "bilm")
    assert isinstance(both, BilmTextModel)
    forward = both.language_model()
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "model.skip=dense", "--set", "model.layers=2"], "model.skip=dense does not apply to bilm"),
        (["--set", "model.maxent=3"], "model.maxent does not apply to bilm"),
        (["--memory", "1G"], "--memory does not apply to bilm"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, text: Path, tmp_path: Path, options: list[str], message: str) -> None:
    refused = run(*arguments("bilm", text, tmp_path / "m", *options))
    assert refused.code == 2 and message in refused.err
