"""Row 10: NaN and infinity at ten places. Found within a step, the best checkpoint kept, a message, no nan as an answer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elman
from elman import store
from elman.core.errors import ElmanError
from elman.nets.neural_lm import NeuralLm
from elman.training import loop
from elman.training.checkpoint import newest_checkpoint, write_checkpoint
from elman.training.validation import Validation
from reliability.row import Allowance, Count, Figure
from tests.training.test_guard import Broken
from tests.training.tiny import Tiny, notes, run, trainer

LINES = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?"] * 20
AT = 12


def not_numbers(allowance: Allowance) -> Figure:
    """Every place in turn."""
    loop.measure_peak = lambda **_: 1e11  # how fast the machine could be is not of interest here
    count = Count()
    for name, look in SITES.items():
        folder = allowance.folder / name.replace(" ", "-")
        folder.mkdir()
        try:
            failure = look(folder)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        count.add(None if failure is None else f"{name}: {failure}")
    return count.figure(" sites", least=10)


# ------------------------------------------------------------------------------------------------------------ training


def _in_training(how: str) -> Callable[[Path], str | None]:
    """Broken in one step: that step is named, and no weight nor checkpoint has it."""

    def look(folder: Path) -> str | None:
        model = Broken(how, at=AT)
        said, is_ended = "", False
        try:
            said = notes(run(trainer(folder, model=model)))
        except ElmanError as error:
            said, is_ended = error.what, True
        return _whole(folder, model, said, is_ended=is_ended)

    return look


def _whole(folder: Path, model: torch.nn.Module, said: str, *, is_ended: bool = False) -> str | None:
    if f"step {AT}" not in said:
        return f"step {AT} is not named: {said[:200]}"
    found = newest_checkpoint(folder)
    if found is None:
        return None if is_ended else "no checkpoint"
    if any(array.dtype.kind == "f" and np.isnan(array).any() for array in found.tensors.values()):
        return "the checkpoint has NaN"
    return None if is_ended or all(bool(torch.isfinite(one).all()) for one in model.parameters()) else "bad weights"


def _activation(folder: Path) -> str | None:
    model, calls = Tiny(), [0]

    def spoil(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        calls[0] += model.training and torch.is_grad_enabled()
        return output * math.inf if calls[0] == AT and torch.is_grad_enabled() else output

    model.output.register_forward_hook(spoil)
    return _whole(folder, model, notes(run(trainer(folder, model=model))))


def _gradient(folder: Path) -> str | None:
    model, calls = Tiny(), [0]

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return gradient * math.inf if calls[0] == AT else gradient

    model.lstm.weight_hh_l0.register_hook(spoil)
    return _whole(folder, model, notes(run(trainer(folder, model=model))))


def _rate(folder: Path) -> str | None:
    real, model = loop.schedule.rate, Tiny()
    with _replaced(
        loop.schedule, "rate", lambda *a, step, **k: math.nan if step == AT - 1 else real(*a, step=step, **k)
    ):
        try:
            run(trainer(folder, model=model))
        except ElmanError as error:
            return _whole(folder, model, error.what, is_ended=True)
    return "it was used"


def _metric(folder: Path) -> str | None:
    made = trainer(folder)
    examiner: Any = made._examiner
    real, calls = examiner.validate, [0]

    def validate(*arguments: Any, **options: Any) -> Validation:
        calls[0] += 1
        found = real(*arguments, **options)
        return Validation(math.nan, found.tokens, found.is_whole) if calls[0] == 1 else found

    examiner.validate = validate
    said = notes(run(made))
    if "the validation loss is nan" not in said:
        return f"it is not told: {said[:200]}"
    return None if math.isfinite(made.state.best_loss) else "it became the best"


def _checkpoint_tensor(folder: Path) -> str | None:
    """A checkpoint whose manifest is right and whose weights are not: the run refuses to go on."""
    with contextlib.suppress(StopIteration):
        made = trainer(folder)
        for progress in made.run():
            if progress.step == AT:
                break
    found = newest_checkpoint(folder)
    assert found is not None
    tensors = {name: np.array(array) for name, array in found.tensors.items()}
    name = next(name for name in tensors if "output.weight" in name and tensors[name].dtype.kind == "f")
    tensors[name].reshape(-1)[0] = math.nan
    write_checkpoint(folder, found.state["step"], found.state, tensors)
    model = Tiny()
    try:
        said = notes(run(trainer(folder, model=model, resume=True)))
    except ElmanError as error:
        return None if "finite" in error.what or "nan" in error.what.lower() else error.what
    return None if "not finite" in said or "nan" in said.lower() else f"it is not told: {said[:200]}"


# ---------------------------------------------------------------------------------------------------------------- using


def _logits(folder: Path) -> str | None:
    settings = {"model.hidden": 8, "train.steps": 1}
    made = elman.train(
        "lm", elman.texts(LINES), out=folder / "m", model="rnn", units="space", settings=settings, threads=1
    )
    real = NeuralLm.predict
    with _replaced(NeuralLm, "predict", lambda self, state: real(self, state) * np.float32(math.nan)):
        try:
            return f"wrote {made.generate('the', tokens=3)!r}"
        except ElmanError:
            return None


def _table(folder: Path) -> str | None:
    model = elman.train("lm", elman.texts(LINES), out=folder / "m", model="mkn", units="space")
    tensors = {key: np.array(array) for key, array in model.tensors().items()}
    tensors["log_probs.1"][1] = math.nan
    with store.reserve(folder / "bad", overwrite=True):
        store.save(folder / "bad", model.record, tensors=tensors, contents=model.files())
    try:
        elman.load(folder / "bad")
    except ElmanError:
        return None
    return "it was loaded"


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    real = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, real)


SITES: dict[str, Callable[[Path], str | None]] = {
    "loss": _in_training("loss"),
    "gradient": _gradient,
    "weight": _in_training("weight"),
    "activation": _activation,
    "input embedding": _in_training("embedding"),
    "learning rate": _rate,
    "logits at sampling": _logits,
    "metric": _metric,
    "n-gram table": _table,
    "checkpoint tensor": _checkpoint_tensor,
}
