"""A model whose numbers are not finite is refused by every verb: damaged, or its training diverged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elman
from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError
from tests.commands import Run


def change(directory: Path, out: Path, name: str, value: float) -> Path:
    """A copy of the model whose manifest is right and one of whose numbers is this."""
    model = elman.load(directory)
    tensors = {key: np.array(array) for key, array in model.tensors().items()}
    tensors[name].reshape(-1)[1] = value
    with store.reserve(out, overwrite=True):
        store.save(out, model.record, tensors=tensors, contents=model.files())
    return out


@pytest.fixture(scope="module")
def net(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("nets") / "m"
    settings = {"model.hidden": 8, "train.batch": 4, "train.bptt": 12, "train.steps": 3}
    elman.train("lm", text, out=out, model="rnn", units="space", settings=settings, threads=1)
    return out


VERBS = {
    "next": lambda model, text: ("next", model, "the"),
    "score": lambda model, text: ("score", model, text),
    "generate": lambda model, text: ("generate", model, "--tokens", "3"),
    "evaluate": lambda model, text: ("evaluate", model, text),
}


@pytest.mark.parametrize("flags", [(), ("--no-verify",)])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_net_with_weights_that_are_not_finite_is_refused_by_every_verb(
    run: Run, net: Path, text: Path, tmp_path: Path, value: float, verb: str, flags: tuple[str, ...]
) -> None:
    """`next` printed nothing and `score` printed nan, with exit code 0."""
    damaged = change(net, tmp_path / "m", "embedding.weight", value)
    found = run(*VERBS[verb](damaged, text), *flags)
    assert (found.code, found.out) == (65, "")
    assert "embedding.weight" in found.err and "the model is damaged, or its training diverged" in found.err


@pytest.mark.parametrize("verb", VERBS)
def test_finite_weights_whose_probabilities_are_not_numbers_are_an_error_too(
    run: Run, net: Path, text: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elman.nets.neural_lm import NeuralLm

    def broken(made: Callable[..., Array]) -> Callable[..., Array]:
        return lambda *arguments: made(*arguments) * np.float32(np.nan)

    def broken_score(self: NeuralLm, *arguments: object) -> tuple[Array, object]:
        log_probs, state = score(self, *arguments)  # type: ignore[arg-type]
        return log_probs * np.float32(np.nan), state

    score = NeuralLm.score
    monkeypatch.setattr(NeuralLm, "predict", broken(NeuralLm.predict))
    monkeypatch.setattr(NeuralLm, "score", broken_score)
    found = run(*VERBS[verb](net, text))
    assert (found.code, found.out.strip()) == (65, "")
    assert "it is damaged, or its training diverged" in found.err


@pytest.mark.parametrize("name", ["log_probs.1", "log_probs.3", "backoffs.1"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_table_with_infinity_or_nan_is_refused(model: Path, tmp_path: Path, name: str, value: float) -> None:
    change(model, tmp_path / "m", name, value)
    for verify in (True, False):
        with pytest.raises(DataError, match=f"table {name} has (NaN|infinity) in it: the model is damaged"):
            elman.load(tmp_path / "m", verify=verify)


def test_a_table_with_the_logarithm_of_zero_is_fine(model: Path, tmp_path: Path) -> None:
    change(model, tmp_path / "m", "log_probs.1", -np.inf)
    assert elman.load(tmp_path / "m").next("the cat")
