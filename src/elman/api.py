"""The text level: models that take and give text. What the command line does, Python can do with these."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elman import store
from elman.core.errors import UsageError
from elman.core.settings import make, merge_settings
from elman.tasks.base import EvaluateOptions, NetTask, Prediction, PredictOptions, Report, TaskModel, TrainRequest
from elman.tasks.catalogue import TASKS, find_task, load_model
from elman.tasks.lm.mixing import mix
from elman.tasks.lm.model import Model, Score
from elman.tasks.run import find_run, resume_net, task_of_run
from elman.text.readers import Sources, as_sources
from elman.training.budget import Budget, parse_duration
from elman.training.config import TrainConfig
from elman.training.progress import Progress
from elman.training.threads import prepare_environment

__all__ = [
    "EvaluateOptions",
    "Model",
    "PredictOptions",
    "Prediction",
    "Score",
    "TaskModel",
    "import_arpa",
    "load",
    "load_language_model",
    "mix",
    "resume",
    "train",
]

NO_VALID = "none"


def _silent(message: str) -> None:
    """What is said while a model is made is also in its record."""


def train(
    task: str,
    data: str | Path | Sources,
    *,
    out: str | Path | None = None,
    model: str | None = None,
    valid: str | Path | Sources | None = None,
    units: str | None = None,
    reset_lines: bool | None = None,
    budget: str | float | None = None,
    started: float | None = None,
    memory: str | int | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: str | Path | None = None,
    init: str | Path | None = None,
    targets: str | Path | Sources | None = None,
    valid_targets: str | Path | Sources | None = None,
    seed: int = 1,
    threads: int | None = None,
    device: str | None = None,
    overwrite: bool = False,
    command: str | None = None,
    report: Report = _silent,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Any:
    """Train a model on text and save it in the directory `out` (None: only give it back). -> a `TaskModel`

    Without `valid` the last part of the data is held out; `valid="none"` trains on all of it. `settings` are what
    `--set` takes: {"model.order": 5}. `budget` is an upper bound of time from `started` (on
    time.monotonic's clock; now, if not given) to the saved model; counting takes what it needs. `init` is a
    net to go on from, with its vocabulary; for classify, tag, qa and seq2seq a language model whose words and cells
    are begun with. `targets` are for seq2seq: line by line the other side of `data`, where it is not a table of
    pairs; `valid_targets` that of `valid`.
    """
    flags = {"data.units": units, "data.reset_lines": reset_lines, "model.family": model}
    seconds = None if budget is None else parse_duration(budget)
    request = TrainRequest(
        task=task,
        data=as_sources(data),
        settings=merge_settings(flags, settings=settings, recipe=recipe),
        valid=None if valid is None or valid == NO_VALID else as_sources(valid),
        holds_out=valid is None,
        targets=None if targets is None else as_sources(targets),
        valid_targets=None if valid_targets is None else as_sources(valid_targets),
        out=None if out is None else Path(out),
        budget=None if seconds is None else Budget(seconds, time.monotonic() if started is None else started),
        memory_bytes=None if memory is None else parse_size(memory),
        init=None if init is None else Path(init),
        seed=seed,
        threads=threads,
        device=device,
        command=command,
        report=report,
        on_progress=on_progress,
    )
    found = find_task(task)
    given = {
        "targets": ("--target", request.targets or request.valid_targets),
        "reset_lines": ("--reset-lines", reset_lines),
        "memory": ("--memory", memory),
        "init": ("--init", init),
    }
    for name, (flag, value) in given.items():
        if value is not None and name not in found.flags:
            others = [other for other in TASKS if name in find_task(other).flags]
            raise UsageError(f"{flag} does not apply to {task}", hint=f"leave it out; it is for {', '.join(others)}")
    make(TrainConfig, request.settings["train"], section="train")
    request = found.complete(request)
    found.check(request)
    with reserved(request.out, overwrite=overwrite):
        return found.train(request)


@contextlib.contextmanager
def reserved(out: Path | None, *, overwrite: bool) -> Any:
    """Make sure, before any work is done, that a model may be written there, if it is to be written at all."""
    with store.reserve(out, overwrite=overwrite) if out is not None else contextlib.nullcontext():
        yield


def load(directory: str | Path, *, verify: bool = True) -> Any:
    """The model in a directory, a `TaskModel`. Its files are checked for damage first; `verify=False` skips that."""
    prepare_environment()
    return load_model(Path(directory), verify=verify)


def load_language_model(directory: str | Path, *, verify: bool = True) -> Model:
    """The language model in a directory; an error if the model there is for another task and holds none."""
    made: TaskModel[Any] = load(directory, verify=verify)
    return made.language_model()


def resume(
    directory: str | Path,
    *,
    started: float | None = None,
    device: str | None = None,
    report: Report = _silent,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Any:
    """Go on with a run that was stopped; a finished one is just loaded. `started`: when this process began."""
    directory, now = Path(directory), time.monotonic()
    folder = find_run(directory)
    if folder is None:
        return load(directory)
    with store.reserve_run(directory):
        task = find_task(task_of_run(folder))
        assert isinstance(task, NetTask)  # only nets leave a run behind
        return resume_net(
            task,
            directory,
            started=now if started is None else started,
            device=device,
            report=report,
            on_progress=on_progress,
        )


def import_arpa(
    path: str | Path,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> Model:
    """Make a model of an ARPA file, which scores as the tool that made it would."""
    from elman.tasks.lm import counting

    place = None if out is None else Path(out)
    with reserved(place, overwrite=overwrite):
        return counting.import_arpa(Path(path), out=place, command=command)


def parse_size(value: str | int) -> int:
    """Bytes: `4G`, `500M`, `1.5GB`, or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(i?[bB])?", str(value))
    if not found:
        raise UsageError(f"{value!r} is no amount of memory", hint="for example 500M or 4G")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
