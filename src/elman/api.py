"""The text level: models that take and give text. What the command line does, Python can do with these."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from elman import store
from elman.core.errors import BusyError, UsageError, in_python
from elman.core.files import RUN_FOLDER
from elman.core.settings import make, merge_settings, refuse
from elman.tasks.base import EvaluateOptions, NetTask, Prediction, PredictOptions, Report, TaskModel, TrainRequest
from elman.tasks.catalogue import TASKS, find_task, load_model
from elman.tasks.lm.mixing import mix
from elman.tasks.lm.model import Model
from elman.tasks.lm.scoring import Score, ScoredRows
from elman.tasks.run import Hearing, announce, join_net, resume_net, task_of_run, was_begun_by
from elman.tasks.run_folder import find_run, tidy
from elman.text.memory import texts
from elman.text.readers import Sources, as_sources, find_files
from elman.training.budget import Budget, measure_crowding, parse_duration
from elman.training.config import TrainConfig
from elman.training.display import is_notebook, shown
from elman.training.progress import Progress
from elman.training.threads import prepare_environment
from elman.training.world import World, join

__all__ = [
    "EvaluateOptions",
    "Model",
    "PredictOptions",
    "Prediction",
    "Score",
    "ScoredRows",
    "TaskModel",
    "import_arpa",
    "import_hf",
    "load",
    "load_language_model",
    "mix",
    "resume",
    "texts",
    "train",
]

NO_VALID = "none"
LEAVE_SECONDS = 45.0  # until a process that torchrun has ended has to be gone
SHOWN_FILES = 8  # of a directory
T = TypeVar("T")


def _silent(message: str) -> None:
    """What is said while a model is made is also in its record."""


def train(
    task: str,
    data: Any,
    *,
    out: str | Path | None = None,
    model: str | None = None,
    valid: Any = None,
    units: str | None = None,
    reset_lines: bool | None = None,
    budget: str | float | None = None,
    epochs: float | None = None,
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
    progress: bool | None = None,
) -> Any:
    """Train a model on text and save it in the directory `out` (None: only give it back). -> a `TaskModel`

    `data` (and `valid`) are names of files, or a list of texts (`elman.texts` where a text could be taken for a name), of
    rows or of records, a data frame, or an open file.
    Without `valid` the last part of the data is held out; `valid="none"` trains on all of it. `settings` are what
    `--set` takes: {"model.order": 5}. `budget` is an upper bound of time from `started` (on time.monotonic's clock; now,
    if not given) to the saved model; counting takes what it needs. `epochs` is a number of passes, for nets. `init` is a
    net to go on from, with its vocabulary; for classify, tag, qa and seq2seq a language model whose words and cells are
    begun with. `targets` are for seq2seq: line by line the other side of `data`, where it is not a table of pairs;
    `valid_targets` that of `valid`. `progress` shows a bar and what is said on the way; if it is not given, only in a
    notebook.
    """
    flags = {"data.units": units, "data.reset_lines": reset_lines, "model.family": model, "train.epochs": epochs}
    seconds = None if budget is None else parse_duration(budget)
    request = TrainRequest(
        task=task,
        data=as_sources(data),
        settings=merge_settings(flags, settings=settings, recipe=recipe),
        valid=None if valid is None or (isinstance(valid, str) and valid == NO_VALID) else as_sources(valid),
        holds_out=valid is None,
        targets=None if targets is None else as_sources(targets),
        valid_targets=None if valid_targets is None else as_sources(valid_targets),
        out=None if out is None else Path(out),
        budget=None
        if seconds is None
        else Budget(seconds, time.monotonic() if started is None else started, measure_crowding()),
        memory_bytes=None if memory is None else parse_size(memory),
        init=None if init is None else _directory(init),
        seed=seed,
        threads=threads,
        device=device,
        command=command,
        report=report,
        on_progress=on_progress,
    )
    for source in request.data:
        if Path(str(source)).is_dir():
            report(_describe_directory(str(source)))
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
            raise UsageError(
                f"{flag} does not apply to {task}",
                code="does-not-apply",
                hint=f"leave it out; it is for {', '.join(others)}",
            )
    make(TrainConfig, request.settings["train"], section="train")
    if "count" not in {section for section, *_ in found.records()}:
        refuse(request.settings, ("count",), task)
    request = found.complete(request)
    found.check(request)
    with join(request.report) as world, _displayed(f"training {model or task}", progress) as (say, show):
        hear = Hearing(_both(request.report, say), _both(request.on_progress, show))
        _check_together(request, world, is_trained=found.is_trained(request.settings["model"].get("family")))
        own = _Process(time.monotonic() if started is None else started, device, threads, hear, world)
        if not world.is_first:
            return own.help(request.out)
        if request.out is not None and (was_begun_by(request.out, world) or world.has_made(request.out)):
            return own.go_on(request.out)
        with reserved(request.out, overwrite=overwrite):
            made = found.train(replace(request, report=hear.report, on_progress=hear.on_progress, world=world))
            if request.out is not None and not world.has_begun:  # made by this process alone
                announce(world, request.out, resume=False, is_finished=True)
            if request.out is not None:
                world.remember_made(request.out)
            return made


@dataclass(frozen=True)
class _Process:
    """A process that goes on with a run, or helps another to train."""

    started: float
    device: str | None
    threads: int | None
    hear: Hearing
    world: World

    def go_on(self, directory: Path) -> Any:
        """Go on with the run in a directory; a finished one is just loaded."""
        if find_run(directory) is None:
            tidy(directory)
            announce(self.world, directory, resume=True, is_finished=True)
            self.hear.report(f"{directory} was finished already, and is left as it is")
            return load(directory)
        with _patiently(lambda: store.reserve_run(directory), is_restart=self.world.identity is not None):
            task = find_task(task_of_run(directory / RUN_FOLDER))
            assert isinstance(task, NetTask)  # only nets leave a run behind
            return resume_net(
                task,
                directory,
                started=self.started,
                device=self.device,
                threads=self.threads,
                hear=self.hear,
                world=self.world,
            )

    def help(self, directory: Path | None) -> Any:
        """Train with the first process, which begins a run in a directory, or goes on with it."""
        assert directory is not None
        found = join_net(
            self.world, started=self.started, device=self.device, threads=self.threads, find_task=find_task
        )
        return load(directory) if found is None else found


@contextlib.contextmanager
def _patiently(reserve: Callable[[], Any], *, is_restart: bool) -> Iterator[None]:
    """Reserve a directory, and wait a little for a process that torchrun has just ended, if it still holds it."""
    end = time.monotonic() + (LEAVE_SECONDS if is_restart else 0.0)
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(reserve())
                break
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        yield


def _check_together(request: TrainRequest, world: World, *, is_trained: bool) -> None:
    """Refuse what several processes cannot do together, and what only they can."""
    if world.size == 1:
        if request.settings["train"].get("sync") is not None:
            raise UsageError(
                "train.sync is for several processes",
                code="does-not-apply",
                hint="`torchrun --nproc-per-node 2 -m elman train ...`, or leave train.sync out",
            )
        return
    if not is_trained:
        raise UsageError(
            "torchrun is for nets, this model is counted",
            code="does-not-apply",
            hint="--model lstm, or leave torchrun out",
        )
    if request.out is None:
        raise UsageError(
            "several processes need a directory to share", code="missing-option", hint="give out=DIRECTORY"
        )


@contextlib.contextmanager
def _displayed(message: str, is_asked: bool | None) -> Iterator[tuple[Report, Callable[[Progress], None]]]:
    """What shows sentences and progress, where somebody wants to see them."""
    if is_asked or (is_asked is None and is_notebook()):
        with shown(message) as (say, show):
            yield lambda sentence: say(in_python(sentence)), show
    else:
        yield _silent, lambda progress: None


def _both(first: Callable[[T], None], second: Callable[[T], None]) -> Callable[[T], None]:
    def call(value: T) -> None:
        first(value)
        second(value)

    return call


def _directory(init: Path | str) -> Path:
    if not isinstance(init, str | Path):
        place = getattr(init, "directory", None)
        hint = f"init={str(place)!r}" if place else "save it first: model.save(DIRECTORY), then init=DIRECTORY"
        raise UsageError(f"init is the directory of a model, not {init!r}", code="wrong-type", hint=hint)
    return Path(init)


def _describe_directory(directory: str) -> str:
    files = find_files([directory])
    names = ", ".join(str(Path(str(file)).relative_to(directory)) for file in files[:SHOWN_FILES])
    more = f" and {len(files) - SHOWN_FILES:,} more" if len(files) > SHOWN_FILES else ""
    return f"{directory} has {len(files):,} files, all of them are read: {names}{more}"


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
    threads: int | None = None,
    report: Report = _silent,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    progress: bool | None = None,
) -> Any:
    """Go on with a run that was stopped; a finished one is just loaded. `started`: when this process began.

    threads: as many as the run was begun with, if not given; with another number the result is not the same to the bit.
    """
    directory, now = Path(directory), time.monotonic()
    with join(report) as world, _displayed("training", progress) as (say, show):
        hear = Hearing(_both(report, say), _both(on_progress, show))
        own = _Process(now if started is None else started, device, threads, hear, world)
        return own.go_on(directory) if world.is_first else own.help(directory)


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


def import_hf(
    directory: str | Path,
    *,
    out: str | Path | None = None,
    context: int | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> Model:
    """Make a model of a causal language model in Hugging Face's layout: config.json, safetensors, tokenizer.json.

    context: tokens that it reads at most before it begins anew with half of them; its own limit, or 2,048, if not given.
    """
    from elman.tasks.lm.hugging_face import import_hf

    place = None if out is None else Path(out)
    with reserved(place, overwrite=overwrite):
        return import_hf(Path(directory), out=place, context=context, command=command)


def parse_size(value: str | int) -> int:
    """Bytes: `4G`, `500M`, `1.5GB`, or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(i?[bB])?", str(value))
    if not found:
        raise UsageError(f"{value!r} is no amount of memory", code="bad-value", hint="for example 500M or 4G")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
