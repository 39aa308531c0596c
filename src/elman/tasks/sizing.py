"""The size of a net for the time and the machine: chosen before training, and looked at again soon after it began."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elman.core.settings import Config, make
from elman.tasks.base import AnyRecord, Examples, NetTask, OnProgress, Prepared, TrainRequest
from elman.tasks.founded_task import FoundedTask
from elman.training.budget import Budget, format_duration
from elman.training.config import TrainConfig
from elman.training.plan import Machine, Means, Plan
from elman.training.progress import Progress

DEFAULT_SECONDS = 1800.0  # training time that a net is sized for where there is no budget
FREEZE_SHARE = 0.2  # share of a run in which weights of a foundation hold still, where train.freeze is not given
TRAINING_COPIES = 4  # copies of the weights in memory: themselves, the gradient, and the two averages of Adam
LOOK_SHARE = 0.03  # share of a run after which the machine is measured again, and how fast the run gets on
FASTER = 1.4  # times as fast as was planned: then the net is sized anew
PLANNED_SHARE = 0.9  # share of the remaining time that is planned for training; the rest is for measuring and saving


@dataclass(frozen=True)
class Run:
    """A run that can be started or gone on with: the task, what was asked for, its data and its net."""

    task: NetTask[Any, Any, Any]
    record: AnyRecord
    train: TrainConfig
    examples: Examples[Any, Any]
    net: Any
    budget: Budget | None
    out: Path | None
    frozen: tuple[str, ...] = ()  # parameters that hold still at first, for the share of the run that train.freeze says


def size(
    task: NetTask[Any, Any, Any], prepared: Prepared[Any, Any, Any], request: TrainRequest, machine: Machine
) -> tuple[Run, Plan]:
    """A net of the size that suits the time and the machine, ready to be trained, and the plan that says why."""
    import torch

    from elman.nets.allocation import LimitedMemory

    budget, given = request.budget, request.settings
    seconds = planned_seconds(task, prepared, budget)
    plan = task.plan(prepared, _means(seconds, machine, request, prepared.record.model))
    freeze = {} if prepared.foundation is None else {"freeze": FREEZE_SHARE}
    train = make(TrainConfig, {**plan.train, **freeze, **given["train"]}, section="train")
    record, net = prepared.record, prepared.start
    frozen: tuple[str, ...] = ()
    request.say(plan.sentences(seconds=seconds if budget else None))
    if net is None:
        settings = {**plan.model, **given["model"]}
        record = record.model_copy(update={"model": make(type(record.model), settings, section="model")})
        with LimitedMemory(1 if torch.cuda.is_available() else TRAINING_COPIES):
            net = task.build(record, prepared.examples, report=request.report)
    if prepared.foundation is not None:
        assert isinstance(task, FoundedTask)
        taken = prepared.foundation.copy_into(net, *task.foundation_parts(net))
        request.report(taken.sentence)
        record, frozen = record.model_copy(update={"notes": (*record.notes, taken.sentence)}), taken.names
    if budget is None and train.epochs is None and train.steps is None:
        request.report("without --budget or --epochs it ends when validation has stopped getting better")
    config = getattr(net, "config", record.model)
    record = record.model_copy(update={"model": config, "threads": torch.get_num_threads()})
    return Run(task, record, train, prepared.examples, net, budget, request.out, frozen), plan


class TooSmallError(Exception):
    """There is time for a larger net than the one that is trained."""

    def __init__(self, sentence: str, machine: Machine) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.machine = machine  # as fast as it is now


def second_look(
    task: NetTask[Any, Any, Any],
    prepared: Prepared[Any, Any, Any],
    request: TrainRequest,
    plan: Plan,
    machine: Machine,
) -> OnProgress:
    """Passes progress on; early in a run under a budget, a net that is too small for the time is given up.

    It is where the machine was busy when it was measured, and where all passes that were planned would be made long before
    the time is over.
    """
    from elman.training.speed import measure_machine

    looked = request.budget is None or prepared.start is not None or "hidden" not in plan.model
    passes = plan.train.get("epochs")
    first: tuple[float, float, float] | None = None  # after the first step: the time, what is left of it, passes made

    def follow(progress: Progress) -> None:
        nonlocal looked, first
        request.on_progress(progress)
        if looked or progress.fraction is None or progress.step < 1:
            return
        if first is None:
            first = time.monotonic(), training_seconds(task, prepared, request.budget), progress.epoch
        if progress.fraction < LOOK_SHARE:
            return
        looked = True
        now = measure_machine()
        faster = now.flops_per_second / machine.flops_per_second
        why = f"the machine was busy when the net was sized and is {faster:.1f} times as fast now"
        began, had, done = first
        if passes is not None and progress.epoch > done:
            needed = (time.monotonic() - began) * (passes - done) / (progress.epoch - done)
            if had / needed > faster:
                faster = had / needed
                now = replace(now, flops_per_second=faster * machine.flops_per_second)
                why = f"the net would have all its passes after {format_duration(needed)} of {format_duration(had)}"
        if faster < FASTER:
            return
        seconds = planned_seconds(task, prepared, request.budget)
        means = _means(seconds, now, request, prepared.record.model)
        anew = task.plan(prepared, means).model
        larger = [
            f"{anew[name]} {what} instead of {plan.model.get(name, 1)}"
            for name, what in (("hidden", "units"), ("nets", "nets"))
            if anew.get(name, 1) > plan.model.get(name, 1)
        ]
        if larger:
            raise TooSmallError(f"{why}: begun again with {' and '.join(larger)}", now)

    return follow


def _means(seconds: float, machine: Machine, request: TrainRequest, model: Config) -> Means:
    """With the values that were set as the records have them: on a command line all are text."""
    given, train = request.settings, make(TrainConfig, request.settings["train"], section="train")
    return Means(
        seconds,
        machine.flops_per_second,
        {key: getattr(model, key) for key in given["model"]},
        {key: getattr(train, key) for key in given["train"]},
        machine.bfloat16_speedup,
        is_limited=request.budget is not None,
    )


def planned_seconds(task: NetTask[Any, Any, Any], prepared: Prepared[Any, Any, Any], budget: Budget | None) -> float:
    """What a net is sized for: most of what is left to train in."""
    return PLANNED_SHARE * training_seconds(task, prepared, budget)


def training_seconds(task: NetTask[Any, Any, Any], prepared: Prepared[Any, Any, Any], budget: Budget | None) -> float:
    """What is left of a budget to train in, or what a run without one is sized for."""
    if budget is None:
        return DEFAULT_SECONDS
    finishing = task.finishing_seconds(prepared.record, prepared.examples, budget)
    return max(1.0, budget.deadline - time.monotonic() - finishing)
