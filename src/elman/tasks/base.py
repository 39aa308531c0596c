"""Tasks besides language modelling, trained by one procedure. A task says how its data becomes a net and its batches.

A task is a `Task`: one object in a module of its own, found by `find_task`. What it trains is a `TaskModel`: text level,
like `Model`. T tokens · B rows
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman import config, store
from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.tasks import runs
from elman.tasks.runs import OnProgress, Report
from elman.text.readers import Sources
from elman.training.budget import Budget
from elman.training.config import TrainConfig
from elman.training.plan_text import Plan
from elman.training.threads import advise_on_load, choose_threads, prepare_environment

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

Read = Callable[[str], bytes]
MEASURING_SHARE = 0.06  # of a budget, at most, for the numbers on the held-out data


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    data: Sources
    valid: Sources | None  # None: none
    holds_out: bool  # the last part of the data is held out instead
    settings: Mapping[str, Mapping[str, Any]]  # by section: what --set, the recipe and the flags say
    seed: int
    command: str | None
    report: Report
    targets: Sources | None = None  # seq2seq: the other side of the data, line by line
    valid_targets: Sources | None = None


@dataclass(frozen=True)
class Prepared:
    """Data read, and all that a run needs of it from now on."""

    record: store.TaskRecord  # `model` is completed when the time is known
    contents: Mapping[str, bytes]  # other files of the model: tokenizers
    tensors: Mapping[str, Array]  # the examples as ids, those of training and those held out
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of the request, for the plan


class TaskModel(ABC):
    """A net that does a task, with its vocabulary and its story. `net` is a torch module with `tensors()`."""

    record: store.TaskRecord
    net: Any
    directory: Path | None

    @abstractmethod
    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Its numbers on the held-out examples among a run's tensors, by the keys of `evaluate`; None without any.

        When it should stop it returns the numbers of the part it has seen, with `examples` saying how many these were.
        """

    @abstractmethod
    def evaluate(self, data: Sources, *, beam: int | None = None, seed: int = 1) -> dict[str, Any]:
        """Its numbers on other data, by the keys of `evaluate`."""

    def info(self) -> dict[str, Any]:
        """What it is, how it was made, and its numbers."""
        record = self.record
        tensors = self.net.tensors()
        return {
            "directory": str(self.directory) if self.directory else None,
            "task": record.task,
            "settings": record.model.model_dump(mode="json"),
            "labels": len(record.labels) or None,
            "parameters": sum(array.size for array in tensors.values()),
            "bytes": sum(array.nbytes for array in tensors.values()),
            "source": record.source.model_dump() if record.source else None,
            "seed": record.seed,
            "seconds": record.seconds,
            "command": record.command,
            "valid": record.valid,
            "notes": list(record.notes),
        }


class Task(ABC):
    """How a task's data becomes a net, its batches and its judge."""

    @abstractmethod
    def prepare(self, request: Request) -> Prepared:
        """Read the data and learn its vocabulary."""

    @abstractmethod
    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""

    @abstractmethod
    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""

    @abstractmethod
    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training examples, to descend on."""

    @abstractmethod
    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Who judges on the way; None without held-out examples."""

    @abstractmethod
    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""

    @abstractmethod
    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> TaskModel:
        """The net with its vocabulary."""


class TaskRun(runs.AnyRun):
    """A run of a task."""

    record: store.TaskRecord


def find_task(name: str) -> Task:
    """The task of that name."""
    match name:
        case "masked":
            from elman.tasks.masked.task import MaskedTask

            return MaskedTask()
        case "bilm":
            from elman.tasks.bilm.task import BilmTask

            return BilmTask()
        case "seq2seq":
            from elman.tasks.seq2seq.task import Seq2SeqTask

            return Seq2SeqTask()
        case "tag":
            from elman.tasks.tag.task import TagTask

            return TagTask()
        case "classify":
            from elman.tasks.classify.task import ClassifyTask

            return ClassifyTask()
        case "qa":
            from elman.tasks.qa.task import QaTask

            return QaTask()
        case _:
            raise UsageError(f"there is no task {name!r}", hint=f"tasks: {', '.join(('lm', *config.tasks()))}")


def refuse_stream_settings(name: str, train: Mapping[str, Any]) -> None:
    """An error for settings of training that only language models have."""
    for key in ("bptt", "bptt_spread", "fit_temperature"):
        if key in train:
            raise UsageError(f"train.{key} does not apply to {name}", hint=f"leave train.{key} out")


def refuse_beam(name: str, beam: int | None) -> None:
    """An error for a beam where nothing is searched."""
    if beam is not None:
        raise UsageError(f"--beam does not apply to {name}", hint="leave it out")


def train_task(
    name: str,
    request: Request,
    *,
    out: Path | None,
    budget: Budget | None,
    threads: int | None,
    device: str | None,
    on_progress: OnProgress,
) -> TaskModel:
    """Read, size, train, measure and save. The directory is reserved by the caller."""
    task = find_task(name)
    prepared = task.prepare(request)
    prepare_environment()
    import torch

    from elman.training.speed import measure_peak

    num_threads = choose_threads(threads)
    torch.set_num_threads(num_threads)
    if (advice := advise_on_load(num_threads)) is not None:
        request.report(advice)
    seconds = 0.9 * (max(1.0, budget.deadline - time.monotonic()) if budget else runs.DEFAULT_SECONDS)
    chosen = task.plan(prepared, seconds=seconds, flops_per_second=measure_peak(repeats=40))
    for sentence in chosen.why[: None if budget else 1]:
        request.report(sentence)
    model_settings = {**chosen.model, **request.settings["model"]}
    train_settings = {**chosen.train, **request.settings["train"]}
    record = prepared.record.model_copy(
        update={
            "model": config.make(config.tasks()[name].model, model_settings, section="model"),
            "threads": num_threads,
        }
    )
    run = TaskRun(
        record=record,
        train=config.make(TrainConfig, train_settings, section="train"),
        budget_seconds=budget.seconds if budget else None,
    )
    net = task.build(record, lambda file: prepared.contents[file], prepared.tensors, report=request.report)
    run = run.model_copy(update={"record": record.model_copy(update={"model": getattr(net, "config", record.model)})})
    if out is not None:
        runs.keep(out, run, contents=prepared.contents, tensors=prepared.tensors)
    return _go(
        task, run, net, prepared.contents, prepared.tensors,
        budget=budget, out=out, resume=False, device=device, report=request.report, on_progress=on_progress,
    )  # fmt: skip


def resume_task(
    directory: Path,
    folder: Path,
    *,
    started: float,
    device: str | None,
    report: Report,
    on_progress: OnProgress,
) -> TaskModel:
    """Go on with the run in a folder."""
    prepare_environment()
    import torch

    run = runs.read(folder, TaskRun)
    task = find_task(run.record.task)
    own = {path.name for path in folder.iterdir() if path.is_file()} - {runs.RUN, runs.IDS}
    contents = {name: (folder / name).read_bytes() for name in sorted(own)}
    tensors = files.read_tensors(folder / runs.IDS)
    torch.set_num_threads(run.record.threads or choose_threads())
    net = task.build(run.record, lambda file: contents[file], tensors, report=lambda sentence: None)
    return _go(
        task, run, net, contents, tensors,
        budget=None if run.budget_seconds is None else Budget(run.budget_seconds, started),
        out=directory, resume=True, device=device, report=report, on_progress=on_progress,
    )  # fmt: skip


def load_task(directory: Path, *, verify: bool = True) -> TaskModel:
    """The model for a task in a directory."""
    task = find_task(store.task_of(directory))
    saved = store.load_task(directory, task.restore, verify=verify)
    return task.wrap(saved.record, saved.read, saved.net, directory)


def _go(
    task: Task,
    run: TaskRun,
    net: Any,
    contents: Mapping[str, bytes],
    tensors: Mapping[str, Array],
    *,
    budget: Budget | None,
    out: Path | None,
    resume: bool,
    device: str | None,
    report: Report,
    on_progress: OnProgress,
) -> TaskModel:
    from elman.training.loop import Trainer

    net.to(runs.choose_device(device, report))
    batches = task.batches(run.record, tensors, train=run.train)
    trainer = Trainer(
        net,
        batches,
        task.examiner(run.record, net, tensors, train=run.train),
        config=run.train,
        seed=run.record.seed,
        identity={"tokens": batches.tokens_per_epoch},
        directory=out,
        resume=resume,
        budget=None if budget is None else Budget(budget.seconds * (1.0 - MEASURING_SHARE), budget.started),
    )
    notes = list(run.record.notes)
    outcome = runs.follow(trainer, notes=notes, report=report, on_progress=on_progress)
    deadline = float("inf") if budget is None else budget.deadline - max(0.5, 0.01 * budget.seconds)
    made = task.wrap(run.record, lambda file: contents[file], net, None)
    valid = made.measure(tensors, should_stop=lambda: time.monotonic() > deadline)
    record = run.record.model_copy(update=runs.told(trainer, outcome, notes) | {"valid": valid})
    if out is None:
        return task.wrap(record, lambda file: contents[file], net, None)
    spare = trainer.spare_seconds()
    if spare is not None and budget is not None:
        spare += budget.seconds * MEASURING_SHARE  # the trainer's budget was so much shorter
    runs.save(out, record, tensors=net.tensors(), contents=contents, spare_seconds=spare, report=report)
    return load_task(out, verify=False)
