"""Several nets that are trained side by side and asked together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import UsageError
from elman.lm.protocol import FreeModel
from elman.tasks.lm.families import find_family
from elman.tasks.lm.families.committee_net import Committee
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.tasks.lm.family import Shape
from elman.testing import LAWS, Law, saving_and_loading_is_exact
from tests.tasks.lm.zoo import build

NAMES = ["lstm", "maxent, learned start"]
TEXT = "the cat sat on the mat . the dog sat on the log .\na cat and a dog ran to the mat .\n" * 40


def committee(name: str, *, dtype: torch.dtype = torch.float64) -> Committee:
    nets = [build(name, dtype=dtype, seed=seed) for seed in (0, 1, 2)]
    config = nets[0].config
    assert isinstance(config, RecurrentConfig)
    return Committee(config.model_copy(update={"nets": 3}), nets)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_committee_keeps_the_law(name: str, law: Law) -> None:
    law(committee(name), np.random.default_rng(0), 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_committee_comes_back_from_its_tensors_to_the_bit(name: str) -> None:
    def roundtrip(model: FreeModel[Any]) -> FreeModel[Any]:
        assert isinstance(model, Committee)
        tensors = {key: array.copy() for key, array in model.tensors().items()}
        return Committee.from_tensors(model.config, tensors, vocab_size=model.vocab_size, reset_lines=False)

    saving_and_loading_is_exact(committee(name), np.random.default_rng(0), roundtrip=roundtrip)


def test_its_probability_is_the_mean_of_the_nets() -> None:
    found = committee("lstm")
    state = found.start(2)
    means = np.mean([np.exp(net.predict(part)) for net, part in zip(found.parts, state.nets, strict=True)], axis=0)
    np.testing.assert_allclose(np.exp(found.predict(state)), means, rtol=1e-6)


@pytest.mark.parametrize("lengths", [None, [5, 2, 3]])
def test_outside_training_its_loss_is_its_score(lengths: list[int] | None) -> None:
    found = committee("gru").eval()
    tokens = np.random.default_rng(3).integers(2, 6, (3, 6))
    given = None if lengths is None else torch.tensor(lengths)
    inputs, targets = torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())
    inputs[:, 0] = 1  # the start symbol
    with torch.no_grad():
        loss, _ = found.loss(inputs, targets, given, found.start_training(3))
    scored, _ = found.score(targets.numpy(), np.array(lengths or [5, 5, 5]), found.start(3))
    assert loss.nats.item() == pytest.approx(-scored.sum(), rel=1e-6)


def test_in_training_every_net_gets_its_own_gradient() -> None:
    found = committee("lstm").train()
    tokens = torch.from_numpy(np.random.default_rng(3).integers(0, 6, (2, 7)))
    loss, carried = found.loss(tokens[:, :-1], tokens[:, 1:], None, found.start_training(2))
    loss.total.backward()
    alone = build("lstm", seed=1).train()
    own, after = alone.loss(tokens[:, :-1], tokens[:, 1:], None, alone.start_training(2))
    own.total.backward()
    torch.testing.assert_close(found.parts[1].embedding.weight.grad, alone.embedding.weight.grad)
    torch.testing.assert_close(carried[2], after[0])


def test_nets_are_trained_saved_stopped_and_mixed_like_one(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    text = str(tmp_path / "text.txt")
    settings = {"model.hidden": 24, "model.nets": 2, "train.batch": 4}
    model = elman.train("lm", text, out=str(tmp_path / "two"), model="lstm", units="space", epochs=4, settings=settings)
    again = elman.load(str(tmp_path / "two"))
    assert again.evaluate(text)["perplexity"] == pytest.approx(model.evaluate(text)["perplexity"])
    singles = again.lm.parts
    assert all(isinstance(net, RecurrentModel) for net in singles)
    assert not np.array_equal(singles[0].tensors()["head.bias"], singles[1].tensors()["head.bias"])
    small = again.to_int8()
    assert small.evaluate(text)["perplexity"] == pytest.approx(again.evaluate(text)["perplexity"], rel=0.01)
    assert again.evaluate(text, elman.EvaluateOptions(dynamic=True))["perplexity_dynamic"] > 1


def test_runs_with_other_seeds_have_none_of_its_nets() -> None:
    """Net i was drawn by seed + i: four nets of seed 1 and four of seed 2 shared three."""
    config, ids = RecurrentConfig(hidden=4, nets=4), np.array([2, 3, 1] * 5)
    first, second = (
        find_family("lstm").build(config, ids, Shape(4, reset_lines=False), seed=seed, vectors=None) for seed in (1, 2)
    )
    drawn = [net.tensors()["embedding.weight"].tobytes() for net in (*first.parts, *second.parts)]
    assert len(set(drawn)) == 8


def test_several_nets_say_that_they_are_several_where_one_is_needed(tmp_path: Path) -> None:
    """A budget may choose several nets by itself: "holds a lstm, which has no cells to give; --model lstm makes one"."""
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "rows.tsv").write_text("x\tthe cat\ny\ta dog\n" * 10)
    elman.train(
        "lm",
        tmp_path / "text.txt",
        model="lstm",
        epochs=1,
        settings={"model.hidden": 4, "model.nets": 2},
        out=tmp_path / "m",
    )
    with pytest.raises(UsageError, match="holds 2 nets") as error:
        elman.load(tmp_path / "m").exported()
    assert "model.nets=1" in str(error.value.hint)
    with pytest.raises(UsageError, match="holds 2 nets") as error:
        elman.train("classify", tmp_path / "rows.tsv", epochs=1, init=tmp_path / "m")
    assert "model.nets=1" in str(error.value.hint)
