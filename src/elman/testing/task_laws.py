"""Laws that every task's model must satisfy, for your own tasks too.

`lines` are inputs of the model, one per line; `data` is a file for `evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.errors import UsageError
from elman.tasks.base import PredictOptions, TaskModel
from elman.tasks.catalogue import load_model
from elman.testing.comparing import BrokenLawError

TEXTS = ("a", "the cat sat on the mat", "the the the", "on")  # to be encoded, where no lines are given
RECORDED = 1e-5  # scores by another order of the same operations, in float32
TOLERANCE = 2e-4  # printed probabilities have four digits, of which the last may be rounded either way


def check_task_model(
    model: TaskModel[Any], *, folder: Path, lines: Sequence[str] = (), data: Path | None = None
) -> None:
    """Check all laws. `folder` is an empty directory for files; without `lines` predictions are not checked."""
    if lines:
        a_line_alone_is_answered_as_among_others(model, lines, folder=folder)
        empty_input_is_answered(model, folder=folder)
    if is_net(model):
        a_text_alone_is_encoded_as_among_others(model, lines or TEXTS)
        recording_changes_no_score(model, lines or TEXTS)
    what_was_saved_answers_the_same(model, lines, folder=folder, data=data)
    if data is not None and model.record.valid is not None:
        what_was_measured_in_training_is_what_evaluate_says(model, data)


def a_line_alone_is_answered_as_among_others(model: TaskModel[Any], lines: Sequence[str], *, folder: Path) -> None:
    """A prediction does not depend on the other lines or their order; predictions are in the order of the lines."""
    together = _predictions(model, lines, folder)
    if len(together) != len(lines):
        raise BrokenLawError(f"{len(lines)} lines have {len(together)} predictions")
    backwards = _predictions(model, list(reversed(lines)), folder)
    for number, line in enumerate(lines):
        _compare(_predictions(model, [line], folder)[0], together[number], f"line {number + 1} alone")
        _compare(backwards[-1 - number], together[number], f"line {number + 1} in reverse order")


def is_net(model: TaskModel[Any]) -> bool:
    """Whether it gives texts vectors."""
    try:
        model.encode(["a"])
    except UsageError:
        return False
    return True


def a_text_alone_is_encoded_as_among_others(model: TaskModel[Any], texts: Sequence[str]) -> None:
    """One vector or one a token, whatever stands beside it and in any order; a text without tokens is zeros."""
    for pool in ("last", "mean", "max", None):
        together = model.encode([*texts, ""], pool=pool)
        backwards = model.encode([*texts, ""][::-1], pool=pool)
        for number, text in enumerate(texts):
            alone = model.encode(text, pool=pool)
            for found, what in ((together[number], "among others"), (backwards[-1 - number], "in the opposite order")):
                if found.shape != alone.shape or not np.allclose(found, alone, rtol=TOLERANCE, atol=TOLERANCE):
                    raise BrokenLawError(f"the vector of text {number + 1} is another {what} than alone, pool={pool}")
        if together[-1].any():
            raise BrokenLawError("the vector of an empty text is not zeros")


def recording_changes_no_score(model: TaskModel[Any], lines: Sequence[str]) -> None:
    """What is predicted by a reading with recording on is what is predicted without, for every line with words."""
    import torch

    for line in filter(str.strip, lines):
        reading = model.reading(line)
        with torch.no_grad():
            _, scores = reading.trace(reading.words())
        found = scores[range(len(reading.chosen)), reading.chosen].numpy()
        wanted = reading.unrecorded()
        if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=RECORDED, atol=RECORDED):
            raise BrokenLawError(f"{line!r}: with recording {found}, without {wanted}")


def empty_input_is_answered(model: TaskModel[Any], *, folder: Path) -> None:
    """An empty file gives no predictions and no error."""
    path = folder / "empty.txt"
    path.write_text("")
    predictions = list(model.predict_lines([path]))
    if predictions:
        raise BrokenLawError(f"an empty file has {len(predictions)} predictions")


def what_was_saved_answers_the_same(
    model: TaskModel[Any], lines: Sequence[str], *, folder: Path, data: Path | None
) -> None:
    """A model that was saved and loaded has the same record, predictions and metrics."""
    model.save(folder / "saved")
    again = load_model(folder / "saved")
    _compare(again.record.model_dump(mode="json"), model.record.model_dump(mode="json"), "the record")
    if lines:
        _compare(_predictions(again, lines, folder), _predictions(model, lines, folder), "predictions after loading")
    if data is not None:
        _compare(again.evaluate(data), model.evaluate(data), "metrics after loading")


def what_was_measured_in_training_is_what_evaluate_says(model: TaskModel[Any], data: Path) -> None:
    """The metrics in the record equal those of `evaluate` on the held-out data."""
    measured, found = model.record.valid or {}, model.evaluate(data)
    shared = [key for key in measured if key in found and measured[key] is not None and key != "notes"]
    if not any(isinstance(measured[key], float) for key in shared):
        raise BrokenLawError("the record has no metric of evaluate")
    for key in shared:
        _compare(found[key], measured[key], f"evaluate's {key}")


def _predictions(model: TaskModel[Any], lines: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    path = folder / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    plain = [prediction.line() for prediction in model.predict_lines([path])]
    detailed = [prediction.as_json() for prediction in model.predict_lines([path], PredictOptions(details=True))]
    if len(plain) != len(detailed):
        raise BrokenLawError(f"{len(plain)} plain predictions, {len(detailed)} with details")
    return [{"line": line, "json": json} for line, json in zip(plain, detailed, strict=True)]


def _compare(found: Any, wanted: Any, what: str) -> None:
    """Raise an error if two values differ by more than rounding."""
    if isinstance(found, float) and isinstance(wanted, float):
        if not math.isclose(found, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise BrokenLawError(f"{what}: {found} instead of {wanted}")
    elif isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        for key in wanted:
            _compare(found[key], wanted[key], f"{what}, {key}")
    elif isinstance(found, list | tuple) and isinstance(wanted, list | tuple) and len(found) == len(wanted):
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _compare(one, other, f"{what}, {number}")
    elif found != wanted:
        raise BrokenLawError(f"{what}: {found!r} instead of {wanted!r}")
