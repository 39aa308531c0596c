"""Runs of nets, whatever they learn: kept on disk from the first moment, followed to the end, then saved as a model.

A run lives in `DIR/checkpoints` until it is over: what was asked for (run.json), the files of the model to be, the data
as ids (memory-mapped, so memory does not grow with the corpus), and the trainer's own checkpoints.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from elman import pictures, store
from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError, UsageError
from elman.core.settings import Config
from elman.training.budget import format_duration
from elman.training.config import TrainConfig
from elman.training.progress import Outcome, Progress

if TYPE_CHECKING:
    from elman.training.loop import Trainer

Report = Callable[[str], None]
OnProgress = Callable[[Progress], None]
RUN = "run.json"
IDS = "ids.safetensors"
DEFAULT_SECONDS = 1800.0  # the time a net is sized for where there is no budget


class AnyRun(Config):
    """What was asked for, so that `resume` needs nothing else."""

    train: TrainConfig
    budget_seconds: float | None


R = TypeVar("R", bound=AnyRun)


def keep(out: Path, run: AnyRun, *, contents: Mapping[str, bytes], tensors: Mapping[str, Array]) -> None:
    """Write down what was asked for, so that a kill from here on loses nothing but time."""
    folder = out / files.RUN_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files.write_tensors(folder / IDS, tensors)
    for name, content in contents.items():
        files.write_bytes(folder / name, content)
    files.write_bytes(folder / RUN, run.model_dump_json(indent=1).encode())  # last: it says that the rest is there


def find(directory: Path) -> Path | None:
    """The folder of the run to go on with; None where a model is there instead, which is all that was wanted."""
    folder = directory / files.RUN_FOLDER
    if (folder / RUN).is_file():
        return folder
    if files.holds_model(directory):
        return None
    raise UsageError(f"there is no run to go on with in {directory}", hint="elman train begins one")


def read_json(folder: Path) -> dict[str, Any]:
    """run.json as it is."""
    try:
        content = json.loads((folder / RUN).read_bytes())
    except ValueError as error:
        raise DataError(f"{folder / RUN} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{folder / RUN} is damaged: it is not a JSON object")
    return content


def read(folder: Path, kind: type[R]) -> R:
    """What was asked for."""
    try:
        return kind.model_validate(read_json(folder))
    except ValidationError as error:
        raise DataError(f"{folder / RUN} is damaged: {str(error).splitlines()[0]}") from None


def follow(trainer: Trainer, *, notes: list[str], report: Report, on_progress: OnProgress) -> Outcome:
    """Train to the end; what is said is reported and noted."""
    for progress in trainer.run():
        for sentence in progress.notes:
            notes.append(sentence)
            report(sentence)
        on_progress(progress)
    outcome = trainer.outcome
    assert outcome is not None
    report(
        f"{outcome.steps:,} steps, {outcome.tokens:,} tokens, {outcome.epochs:.1f} passes in "
        f"{format_duration(outcome.seconds)}: {outcome.why}"
    )
    return outcome


def told(trainer: Trainer, outcome: Outcome, notes: list[str]) -> dict[str, Any]:
    """How a run went, as fields of a record."""
    return {
        "seconds": round(outcome.seconds, 3),
        "notes": tuple(notes),
        "train": trainer.config,
        "outcome": {
            "steps": outcome.steps,
            "tokens": outcome.tokens,
            "epochs": round(outcome.epochs, 3),
            "why": outcome.why,
        },
    }


def save(
    out: Path,
    record: store.AnyRecord,
    *,
    tensors: Mapping[str, Array],
    contents: Mapping[str, bytes],
    spare_seconds: float | None,
    report: Report,
) -> None:
    """From here on it is a model, not a run; with a picture of how it went, if that can be drawn in the time to spare."""
    path = out / store.METRICS
    metrics = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    curves = _curves(metrics, spare_seconds, report)
    store.save(out, record, tensors=tensors, contents={**contents, **curves}, metrics=metrics)
    shutil.rmtree(out / files.RUN_FOLDER, ignore_errors=True)


def _curves(metrics: Sequence[Mapping[str, Any]], seconds: float | None, report: Report) -> dict[str, bytes]:
    """The picture of a run as a file of its model; none where nothing was measured, or the time is over."""
    spec = pictures.training_curves(metrics)
    if spec is None:
        return {}
    try:
        drawn = pictures.render(spec, ".svg") if seconds is None else pictures.render_within(spec, seconds)
    except ElmanError as error:  # a model is worth more than its picture
        report(error.what)
        return {}
    if drawn is None:
        report("this budget had no time to draw the curves of the run")
        return {}
    return {store.CURVES: drawn}


def choose_device(name: str | None, report: Report) -> Any:
    """The device of torch that was asked for; a graphics card where there is one; else the processor."""
    import torch

    if name is None:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        report("training on the graphics card (--device cpu for the processor)")
        return torch.device("cuda")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):
        raise UsageError(f"there is no device {name!r} here", hint="cpu, or cuda where there is one") from None
