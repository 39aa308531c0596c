"""Sizes of nets whose settings are swept: all else is equal, or the number of parameters is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elman.compare.entries import Entry
from elman.compare.request import Request
from elman.compare.texts import Parts
from elman.core.errors import UsageError
from elman.core.settings import make, merge_settings, sections_of
from elman.tasks.base import Prepared, TrainRequest
from elman.training.plan import Means

WIDTH_STEP = 4  # between widths that are tried
MAX_WIDTH = 8_192

Settings = dict[str, Any]


def settle(request: Request, parts: Parts, *, seconds: float) -> dict[str, Settings]:
    """Settings for every value of a sweep, by the name of its entry: what is chosen for the first holds for all.

    With `equal`, the width of each net is such that it has about as many parameters as the first.
    """
    from elman.training.speed import measure_machine

    assert request.sweep is not None
    first = request.entries[0]
    given = merge_settings({"model.family": first.model}, settings=request.settings_of(first), recipe=None)
    valid = None if parts.valid is None else [parts.valid]
    asked = TrainRequest(
        request.task.name, list(parts.train), given, valid=valid, holds_out=valid is None, seed=request.seed
    )
    prepared = request.task.prepare(asked)
    machine = measure_machine()
    means = Means(seconds, machine.flops_per_second, given["model"], given["train"], machine.bfloat16_speedup)
    plan = request.task.plan(prepared, means)
    chosen = {f"model.{key}": value for key, value in plan.model.items()}
    chosen |= {f"train.{key}": value for key, value in plan.train.items()}
    if request.sweep.equal is None:
        return {entry.name: chosen for entry in request.entries}
    if not request.sweep.setting.startswith("model."):
        raise UsageError(
            f"{request.sweep.setting} does not change how many parameters there are",
            code="does-not-apply",
            hint="drop --equal",
        )
    width = int({**request.settings_of(first), **chosen}.get("model.hidden", prepared.record.model.hidden))
    target = _count(request, prepared, first, chosen | {"model.hidden": width})
    found = {first.name: chosen | {"model.hidden": width}}
    for entry in request.entries[1:]:

        def size(hidden: int, entry: Entry = entry) -> int:
            return _count(request, prepared, entry, chosen | {"model.hidden": hidden})

        found[entry.name] = chosen | {"model.hidden": nearest_width(size, target)}
    return found


def nearest_width(size: Callable[[int], int], target: int) -> int:
    """The width whose number of parameters is nearest to the target; size grows with the width."""
    high = 1
    while size(high * WIDTH_STEP) < target and high * WIDTH_STEP < MAX_WIDTH:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle * WIDTH_STEP) < target else (low, middle)
    widths = [step * WIDTH_STEP for step in (low, high) if step]
    return min(widths, key=lambda width: abs(size(width) - target))


def _count(request: Request, prepared: Prepared[Any, Any, Any], entry: Entry, chosen: Settings) -> int:
    """The parameters of a net, which is built to count them."""
    settings = sections_of({**chosen, **request.settings_of(entry), "model.hidden": chosen["model.hidden"]})["model"]
    family = {} if entry.model is None else {"family": entry.model}
    model = make(type(prepared.record.model), {**family, **settings}, section="model")
    net = request.task.build(
        prepared.record.model_copy(update={"model": model}), prepared.examples, report=lambda said: None
    )
    return sum(int(array.size) for array in net.tensors().values())
