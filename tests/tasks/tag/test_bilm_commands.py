"""A tagger with the layers of language models that were trained on plain text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.tasks.tag.model import Tagger
from tests.commands import Run

SMALL = ["--set", "model.hidden=12", "--set", "model.dropout=0", "--threads", "1", "--set", "model.characters=none"]
NOUNS, VERBS = [f"n{i}" for i in range(12)], [f"v{i}" for i in range(12)]


def make_lines(count: int, seed: int) -> list[list[str]]:
    """The n3 v5 a n1: from places alone language models learn what is what."""
    rng = np.random.default_rng(seed)
    return [["the", str(rng.choice(NOUNS)), str(rng.choice(VERBS)), "a", str(rng.choice(NOUNS))] for _ in range(count)]


def columns(lines: list[list[str]]) -> str:
    tags = {"the": "D", "a": "D"} | dict.fromkeys(NOUNS, "N") | dict.fromkeys(VERBS, "V")
    return "\n\n".join("\n".join(f"{word} {tags[word]}" for word in line) for line in lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    (folder / "text.txt").write_text("\n".join(" ".join(line) for line in make_lines(400, 0)) + "\n")
    (folder / "train.txt").write_text(columns([[word] for word in ["the", *NOUNS[:6], *VERBS[:6]]] * 12))
    # words without a sentence that the tagger never saw: only the language models can tell a noun from a verb
    (folder / "valid.txt").write_text("\n\n".join([f"{n} N" for n in NOUNS[6:]] + [f"{v} V" for v in VERBS[6:]]) + "\n")
    words = ["--units", "space", "--set", "model.hidden=12", "--set", "model.embedding=12", "--threads", "1"]
    files = [str(folder / "text.txt"), "--out", str(folder / "bilm"), "--valid", "none", "--epochs", "6"]
    files += ["--set", "train.learning_rate=0.02", "--set", "train.batch=8", "--reset-lines"]
    assert run_arguments(["train", "bilm", *files, *words]) == 0
    return folder


def test_what_the_language_models_know_of_rare_words_reaches_the_tagger(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "bilm", tmp_path / "bilm")
    arguments = ["train", "tag", folder / "train.txt", "--valid", "none", "--epochs", "12", *SMALL]
    more = ["--set", f"model.bilm={tmp_path / 'bilm'}", "--set", "model.rare=12"]
    made = run(*arguments, "--out", tmp_path / "m", *more)
    assert made.code == 0, made.err
    assert "knows 100.0% of the words" in made.err
    found = run("evaluate", tmp_path / "m", folder / "valid.txt", "--json").json
    assert found["accuracy"] > 0.9
    shutil.rmtree(tmp_path / "bilm")
    model = elman.load(tmp_path / "m")
    assert isinstance(model, Tagger)
    assert model.predict([["n9"], ["v9"]]) == [["N"], ["V"]]
    assert run("evaluate", tmp_path / "m", folder / "valid.txt", "--json").json == found
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert {"bilm_config.json", "bilm_tokenizer.json"} <= names
    bilm = elman.load(folder / "bilm")
    kept = model.net.tensors()
    for name, array in bilm.net.tensors().items():  # type: ignore[union-attr]
        if ".head." not in name:
            assert np.array_equal(kept[f"bilm.{name}"], array), name


def test_stopped_and_resumed_without_the_directory_is_never_stopped(
    run: Run, folder: Path, tmp_path: Path, cut_short: Callable[..., None]
) -> None:
    shutil.copytree(folder / "bilm", tmp_path / "bilm")
    arguments = ["train", "tag", folder / "train.txt", "--epochs", "2", *SMALL, "--set", "train.batch=10"]
    arguments += ["--set", f"model.bilm={tmp_path / 'bilm'}", "--set", "train.checkpoint_steps=3"]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    cut_short(*arguments, "--out", tmp_path / "cut")
    shutil.rmtree(tmp_path / "bilm")
    one, other = elman.resume(tmp_path / "cut"), elman.load(tmp_path / "whole")
    for name, array in other.net.tensors().items():  # type: ignore[union-attr]
        assert np.array_equal(array, one.net.tensors()[name]), name  # type: ignore[union-attr]


def test_what_is_no_such_model_is_refused(run: Run, folder: Path, model: Path, tmp_path: Path) -> None:
    arguments = ["train", "tag", folder / "train.txt", "--out", tmp_path / "m", *SMALL]
    missing = run(*arguments, "--set", f"model.bilm={tmp_path / 'nowhere'}")
    assert missing.code == 66 and "there is no model at" in missing.err
    other = run(*arguments, "--set", f"model.bilm={model}")
    assert other.code == 2 and "holds a model for lm, not for bilm" in other.err and "elman train bilm" in other.err


def test_language_models_of_letters_are_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    sizes = ["--set", "model.hidden=4", "--threads", "1", "--epochs", "0.1", "--valid", "none"]
    assert run("train", "bilm", folder / "text.txt", "--units", "char", "--out", tmp_path / "b", *sizes).code == 0
    found = run("train", "tag", folder / "train.txt", "--out", tmp_path / "m", "--set", f"model.bilm={tmp_path / 'b'}")
    assert found.code == 2 and "reads char units" in found.err and "--units word" in found.err
    assert json.loads((tmp_path / "b" / "config.json").read_text())["task"] == "bilm"
