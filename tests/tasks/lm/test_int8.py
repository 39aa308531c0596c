"""Nets whose weights are 8-bit integers: language models like all others, a quarter as large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import UsageError
from elman.lm.protocol import FreeModel
from elman.tasks.lm.families.int8_net import Int8Model
from elman.testing import LAWS, Law, saving_and_loading_is_exact
from tests.commands import Run
from tests.tasks.lm.zoo import build

NAMES = [  # of the zoo, those that differ in what is multiplied
    *("lstm", "gru, reset first", "rnn gated", "highway", "dense", "layer norm", "tied, projected", "adaptive"),
    *("adaptive, tied", "maxent, adaptive", "learned start", "frozen vectors"),
]
TEXT = "the cat sat on the mat . the dog sat on the log .\na cat and a dog ran to the mat .\n" * 30


def rounded(name: str) -> Int8Model:
    return Int8Model.of(build(name, dtype=torch.float32))  # type: ignore[arg-type]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_rounded_net_keeps_the_law(name: str, law: Law) -> None:
    law(rounded(name), np.random.default_rng(0), 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_rounded_net_predicts_nearly_what_the_net_does(name: str) -> None:
    net, tokens = build(name, dtype=torch.float32), np.random.default_rng(1).integers(0, 6, (4, 20))
    lengths = np.full(4, 20)
    exact, _ = net.score(tokens, lengths, net.start(4))
    nearly, _ = rounded(name).score(tokens, lengths, rounded(name).start(4))
    assert np.abs(exact - nearly).mean() < 0.03 * np.abs(exact).mean()
    assert not np.array_equal(exact, nearly)


@pytest.mark.parametrize("name", NAMES)
def test_a_rounded_net_comes_back_from_its_tensors_to_the_bit(name: str) -> None:
    config = build(name, dtype=torch.float32).config

    def roundtrip(model: FreeModel[Any]) -> FreeModel[Any]:
        tensors = {key: array.copy() for key, array in model.tensors().items()}  # type: ignore[attr-defined]
        return Int8Model.from_tensors(config, tensors, vocab_size=model.vocab_size, reset_lines=False)

    saving_and_loading_is_exact(rounded(name), np.random.default_rng(0), roundtrip=roundtrip)


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small LSTM on disk."""
    folder = tmp_path_factory.mktemp("int8")
    (folder / "text.txt").write_text(TEXT)
    elman.train(
        "lm",
        str(folder / "text.txt"),
        out=str(folder / "lstm"),
        model="lstm",
        epochs=8,
        units="space",
        settings={"model.hidden": 48, "train.batch": 4},
    )
    return folder / "lstm"


def test_the_exported_model_is_small_and_an_ordinary_directory(run: Run, lstm: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    assert run("export", lstm, "--format", "int8", "--out", out).code == 0
    assert run("info", out).code == 0
    assert run("generate", out, "--tokens", "5", "--seed", "1").code == 0
    before, after = (run("evaluate", path, lstm.parent / "text.txt", "--json").json for path in (lstm, out))
    assert after["perplexity"] == pytest.approx(before["perplexity"], rel=0.01)
    sizes = [(path / "model.safetensors").stat().st_size for path in (lstm, out)]
    assert sizes[1] < 0.4 * sizes[0]


def test_what_is_there_is_not_replaced_unasked(run: Run, lstm: Path, tmp_path: Path) -> None:
    assert run("export", lstm, "--format", "int8", "--out", lstm).code == 74
    assert run("evaluate", lstm, lstm.parent / "text.txt").code == 0


def test_a_mixture_keeps_what_counts_and_rounds_its_net(lstm: Path, tmp_path: Path) -> None:
    text = str(lstm.parent / "text.txt")
    elman.train("lm", text, out=str(tmp_path / "kn"), model="kn", units="space")
    mixed = elman.mix([str(lstm), str(tmp_path / "kn"), "cache"], valid=text, out=str(tmp_path / "mixed"))
    mixed.to_int8().save(tmp_path / "small")
    small = elman.load(str(tmp_path / "small"))
    assert small.evaluate(text)["perplexity"] == pytest.approx(mixed.evaluate(text)["perplexity"], rel=0.01)
    assert [member["family"] for member in small.info()["settings"]["members"]] == ["int8", "kn", "cache"]


def test_numbers_of_the_training_are_not_those_of_the_rounded_model(lstm: Path) -> None:
    assert elman.load(str(lstm)).to_int8().record.valid is None


def test_a_rounded_net_does_not_learn(run: Run, lstm: Path, tmp_path: Path) -> None:
    elman.load(str(lstm)).to_int8().save(tmp_path / "small")
    refused = run("evaluate", tmp_path / "small", lstm.parent / "text.txt", "--dynamic")
    assert refused.code == 2
    assert "nets" in refused.err
    refused = run("train", "lm", lstm.parent / "text.txt", "--init", tmp_path / "small", "--out", tmp_path / "again")
    assert refused.code == 2


def test_what_has_no_recurrent_net_is_refused(lstm: Path, tmp_path: Path) -> None:
    counted = elman.train("lm", str(lstm.parent / "text.txt"), model="kn", units="space")
    with pytest.raises(UsageError, match="no recurrent net"):
        counted.to_int8()
