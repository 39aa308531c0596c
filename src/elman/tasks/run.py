"""A training run of a net, whatever its task: on disk from the first moment, sized to its time, then saved as a model.

A run lives in `DIR/checkpoints` (`tasks.run_folder`) until it is over. A model that was in DIR stays as it is until then.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from elman import pictures, store
from elman.core import files
from elman.core.errors import DataError, ElmanError, MissingError, UsageError
from elman.core.files import RUN
from elman.core.settings import make
from elman.curves import training_curves
from elman.tasks.base import AnyRecord, Examples, NetTask, OnProgress, Prepared, Report, TaskModel, TrainRequest
from elman.tasks.legacy import adopt_journal, upgrade_run
from elman.tasks.run_folder import ARRAYS, HELDOUT, START, RunFiles, remove_run, write_run
from elman.tasks.sizing import Run, TooSmallError, second_look, size
from elman.training.budget import Budget, Reserve, check_feasible, format_duration, measure_crowding
from elman.training.config import TrainConfig
from elman.training.journal import read_journal
from elman.training.plan import USUAL_MACHINE
from elman.training.progress import Outcome, Wording
from elman.training.threads import advise_on_load, choose_threads, prepare_environment
from elman.training.world import ALONE, LostProcessError, World, read_launch

if TYPE_CHECKING:
    from elman.training.loop import Trainer


MEASURE_SHARE = 0.001  # of a budget, to measure how fast the machine is: half a second to five
VISIBLE_SECONDS = 30.0  # until a folder that one machine has written has to be seen by the others


@dataclass(frozen=True)
class Hearing:
    """Who hears what is said on the way; nobody, of the processes that only help."""

    report: Report = lambda sentence: None
    on_progress: OnProgress = lambda progress: None


# ------------------------------------------------------------------------------------------------------------- starting


def check_start(task: NetTask[Any, Any, Any], request: TrainRequest) -> None:
    """Refuse what no net can be trained with, before anything is read."""
    from elman.training.decision import require_an_end

    train = make(TrainConfig, request.settings["train"], section="train")
    require_an_end(
        has_end=task.plans_an_end or any(end is not None for end in (request.budget, train.epochs, train.steps)),
        has_validation=request.holds_out or request.valid is not None,
    )
    if request.budget is not None:
        check_feasible(request.budget, Reserve(), now=time.monotonic(), step_seconds=0.0)
    check_device(request)


def check_device(request: TrainRequest) -> None:
    """Refuse one that is not there."""
    if request.device is not None:
        prepare_environment()
        choose_device(request.device, request.report)


def train_net(task: NetTask[Any, Any, Any], prepared: Prepared[Any, Any, Any], request: TrainRequest) -> TaskModel[Any]:
    """Size, train, measure and save a net; one that turns out to be too small for the time is begun again, once."""
    prepare_environment()
    import torch

    from elman.training.speed import measure_machine

    threads = choose_threads(request.threads, processes=read_launch().local_size)
    torch.set_num_threads(threads)
    if (advice := advise_on_load(threads)) is not None:
        request.report(advice)
    budget = request.budget
    machine = USUAL_MACHINE
    if budget is not None:
        machine = measure_machine(seconds=min(5.0, max(0.5, MEASURE_SHARE * budget.seconds)))
    if request.world.size > 1:
        if budget is not None:
            machine = replace(machine, flops_per_second=request.world.size * machine.flops_per_second)
        run, _ = size(task, prepared, request, machine)
        return _begin(run, prepared, request, on_progress=request.on_progress)
    run, plan = size(task, prepared, request, machine)
    try:
        return _begin(run, prepared, request, on_progress=second_look(task, prepared, request, plan, machine))
    except TooSmallError as small:
        request.report(small.sentence)
        machine = small.machine
    del run  # with the error, it would keep the first net and its optimiser in memory
    run, _ = size(task, prepared, request, machine)
    return _begin(run, prepared, request, on_progress=request.on_progress)


def _begin(
    run: Run, prepared: Prepared[Any, Any, Any], request: TrainRequest, *, on_progress: OnProgress
) -> TaskModel[Any]:
    """Write the run down and train it."""
    from elman.training.checkpoint import has_trained
    from elman.training.signals import Stopped

    world = request.world
    if world.size > 1:
        world.require_rows(run.task.batches(run.record, run.examples, train=run.train).max_rows)
    if run.out is not None:
        starts_trained = prepared.start is not None or bool(run.frozen)
        _write_run(run, run.out, starts_trained=starts_trained, launch=world.identity)
        announce(world, run.out, resume=False)
    hear = Hearing(request.report, on_progress)
    try:
        return _train(run, resume=False, device=request.device, world=world, hear=hear)
    except (Stopped, TooSmallError, LostProcessError):
        raise
    except Exception:  # refused or failed, not stopped: what cannot be gone on with is not in the way of the next try
        if run.out is not None and not has_trained(run.out):
            remove_run(run.out)
        raise


def _write_run(run: Run, directory: Path, *, starts_trained: bool, launch: str | None) -> None:
    """Write down what was asked for, so that a kill from here on loses nothing but time."""
    contents: dict[str, files.Content] = {ARRAYS: run.examples.arrays, **run.examples.assets.files()}
    if run.examples.heldout is not None:
        rows = run.task.heldout_to_json(run.examples.heldout)
        contents[HELDOUT] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if starts_trained:
        contents[START] = run.net.tensors()
    asked: dict[str, Any] = {
        "train": run.train.model_dump(mode="json"),
        "budget_seconds": run.budget.seconds if run.budget else None,
        "frozen": run.frozen,
        "record": run.record.model_dump(mode="json"),
    }
    if launch is not None:
        asked["launch"] = launch
    contents[RUN] = json.dumps(asked, indent=1).encode()
    write_run(directory, contents)


# ------------------------------------------------------------------------------------------------------------- going on


def task_of_run(folder: Path) -> str:
    """The name of the task that a run is for."""
    return str(RunFiles(folder).asked().get("record", {}).get("task"))


def resume_net(
    task: NetTask[Any, Any, Any],
    directory: Path,
    *,
    started: float,
    device: str | None,
    threads: int | None,
    hear: Hearing,
    world: World = ALONE,
) -> TaskModel[Any]:
    """Go on with the run in a directory. threads: as many as it was begun with, if not given."""
    announce(world, directory, resume=True)
    run = _stored_run(task, directory, started=started, threads=threads)
    return _train(run, resume=True, device=device, world=world, hear=hear)


def announce(world: World, directory: Path, *, resume: bool, is_finished: bool = False) -> None:
    """Tell the other processes of the run that was begun, or is gone on with: they read it from its folder."""
    world.has_begun = True
    world.lead(lambda: None)  # they wait as long as it takes to come here
    world.shared({"directory": str(directory.absolute()), "resume": resume, "is_finished": is_finished}, dict)


def join_net(
    world: World, *, started: float, device: str | None, threads: int | None, find_task: Callable[[str], Any]
) -> TaskModel[Any] | None:
    """Train with the first process, which has begun a run or goes on with one. -> the model; None if it was there before"""
    world.lead(lambda: None)
    told: dict[str, Any] = world.shared(None, dict)
    if told["is_finished"]:
        return None
    directory = Path(told["directory"])
    folder = directory / files.RUN_FOLDER
    _require_folder(folder)
    task = find_task(task_of_run(folder))
    run = _stored_run(task, directory, started=started, threads=threads)
    return _train(run, resume=told["resume"], device=device, world=world, hear=Hearing())


def _require_folder(folder: Path) -> None:
    """Wait for a folder that another machine has written, as network file systems show it late."""
    end = time.monotonic() + VISIBLE_SECONDS
    while not (folder / RUN).is_file():
        if time.monotonic() > end:
            raise MissingError(
                f"cannot see {folder}, which holds the text and the checkpoints of the run",
                hint="--out has to be in a directory that all machines share",
            )
        time.sleep(0.1)


def was_begun_by(directory: Path, world: World) -> bool:
    """Whether the run that is there was begun by this very launch of torchrun, which has restarted its processes."""
    if world.identity is None or not files.holds_run(directory):
        return False
    return RunFiles(directory / files.RUN_FOLDER).asked().get("launch") == world.identity


def _stored_run(task: NetTask[Any, Any, Any], directory: Path, *, started: float, threads: int | None) -> Run:
    """The run that was written in a directory."""
    prepare_environment()
    import torch

    from elman.nets.vocabulary_net import load_tensors

    stored = RunFiles(directory / files.RUN_FOLDER)
    if not stored.has_manifest:
        adopt_journal(directory)  # of version 0.1.0
    asked = stored.asked()
    arrays = stored.tensors(ARRAYS)
    rows = upgrade_run(task.name, asked, arrays)  # of version 0.1.0
    try:
        record: AnyRecord = task.record_type.model_validate(asked["record"])
        train = TrainConfig.model_validate(asked["train"])
        seconds = asked["budget_seconds"]
    except (ValidationError, KeyError) as error:
        raise DataError(f"{stored.folder / RUN} is damaged: {str(error).splitlines()[0]}", code="damaged-run") from None
    if stored.has(HELDOUT):
        rows = stored.heldout_rows()
    threads = threads or record.threads or choose_threads()
    torch.set_num_threads(threads)
    record = record.model_copy(update={"threads": threads})
    assets = task.read_assets(record, stored.read)
    examples = Examples(assets, arrays, None if rows is None else task.heldout_from_json(rows))
    frozen = tuple(asked.get("frozen", ()))
    start = stored.tensors(START) if stored.has(START) else None
    if start is not None and not frozen:
        net = task.restore(record, assets, start)
    else:
        net = task.build(record, examples, report=lambda sentence: None)
        if start is not None:  # built as at first, since it counts the words of training; then it has all weights
            load_tensors(net, start)
    budget = None if seconds is None else Budget(seconds, started, measure_crowding())
    return Run(task, record, train, examples, net, budget, directory, frozen)


# ------------------------------------------------------------------------------------------------------- to the end


def _train(run: Run, *, resume: bool, device: str | None, world: World, hear: Hearing) -> TaskModel[Any]:
    """Train; then measure and save, in the first process."""
    from elman.training.loop import Trainer

    task, budget = run.task, run.budget
    finishing = 0.0 if budget is None else task.finishing_seconds(run.record, run.examples, budget)
    run.net.to(choose_device(device, hear.report))
    batches = task.batches(run.record, run.examples, train=run.train)
    trainer = Trainer(
        run.net,
        batches,
        task.examiner(run.record, run.net, run.examples, train=run.train),
        config=run.train,
        seed=run.record.seed,
        identity=task.identity(run.record, batches, run.train),
        directory=run.out,
        resume=resume,
        wording=task.wording(run.record),
        budget=budget,
        finishing_seconds=finishing,
        frozen=run.frozen,
        world=world,
    )
    notes = list(run.record.notes)
    counted = task.wording(run.record).counted
    outcome = _follow(trainer, counted, notes=notes, hear=hear)
    made = world.lead(lambda: _finish(run, trainer, outcome, notes=notes, report=hear.report))
    if made is not None:
        return made
    assert run.out is not None  # the first process has saved it
    return task.load(run.out, verify=False)


def _finish(run: Run, trainer: Trainer, outcome: Outcome, *, notes: list[str], report: Report) -> TaskModel[Any]:
    """Measure and save."""
    from elman.training.signals import Stopped

    task, budget = run.task, run.budget
    deadline = trainer.deadline
    if budget is not None:
        deadline -= min(10.0, max(0.5, 0.01 * budget.seconds))  # to save
    trained = time.monotonic()
    model = task.wrap(run.record, run.examples.assets, run.net, None)
    try:
        model, valid = task.finish(model, run.examples, outcome, deadline=deadline)
    except KeyboardInterrupt:
        if run.out is None:
            raise
        hint = f"elman resume {run.out} goes on from there"
        raise Stopped("stopped by Ctrl-C after training, saved", signum=signal.SIGINT, hint=hint) from None
    for sentence in _notes_on(valid, task, run.examples):
        notes.append(sentence)
        report(sentence)
    record = model.record.model_copy(
        update={
            "seconds": round(outcome.seconds + time.monotonic() - trained, 3),
            "notes": tuple(notes),
            "train": trainer.config,
            "outcome": {
                "steps": outcome.steps,
                "tokens": outcome.tokens,
                "epochs": round(outcome.epochs, 3),
                "why": outcome.why,
            },
            "valid": None if valid is None else {key: value for key, value in valid.items() if key != "notes"},
        }
    )
    model = task.wrap(record, run.examples.assets, model.net, None)  # type: ignore[attr-defined]  # all made here have one
    if run.out is None:
        return model
    _save(run.out, model, task.wording(run.record), spare_seconds=trainer.spare_seconds(), report=report)
    return task.load(run.out, verify=False)


def _notes_on(valid: Mapping[str, Any] | None, task: NetTask[Any, Any, Any], examples: Examples[Any, Any]) -> list[str]:
    """What is to be said of the numbers on the held-out rows."""
    if valid is not None:
        return list(valid.get("notes", ()))
    if examples.heldout is not None and task.measuring_share:
        return ["this budget had no time to measure the held-out rows"]
    return []


def _follow(trainer: Trainer, counted: str, *, notes: list[str], hear: Hearing) -> Outcome:
    """Train to the end; what is said is reported and noted."""
    for progress in trainer.run():
        for sentence in progress.notes:
            notes.append(sentence)
            hear.report(sentence)
        hear.on_progress(progress)
    outcome = trainer.outcome
    assert outcome is not None
    hear.report(
        f"{outcome.steps:,} steps, {outcome.tokens:,} {counted}, {outcome.epochs:.1f} passes in "
        f"{format_duration(outcome.seconds)}: {outcome.why}"
    )
    return outcome


def _save(out: Path, model: TaskModel[Any], wording: Wording, *, spare_seconds: float | None, report: Report) -> None:
    """From here on it is a model, not a run; with a picture of how it went, if that can be drawn in the time to spare."""
    metrics = read_journal(out / files.RUN_FOLDER, report=report)
    contents = {**model.files(), **_curves(metrics, wording, spare_seconds, report)}
    store.save(out, model.record, tensors=model.tensors(), contents=contents, metrics=metrics)
    remove_run(out)


def _curves(
    metrics: Sequence[Mapping[str, Any]], wording: Wording, seconds: float | None, report: Report
) -> dict[str, bytes]:
    """The picture of a run as a file of its model; none where nothing was measured, or the time is over."""
    loss = "perplexity" if wording.has_perplexity else "exp(loss)"
    spec = training_curves(metrics, counted=wording.counted, loss=loss)
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
        return torch.device("cuda", read_launch().local_rank % torch.cuda.device_count())
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"there is no device {name!r} here", code="unknown-name", hint="cpu, or cuda where there is one"
        ) from None
