"""Many models, one text, one rule: `elman.compare(...)` trains them, measures them and says which differences are sure.

    found = elman.compare("corpus.txt", out="comparison", models=["mkn", "lstm", "mkn+lstm+cache"], budget="10m")
    found.data["models"]

The room is a function too: `elman.compare(...)` and `elman.compare.compare(...)` are the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from elman.api import load
from elman.compare.report import write_report
from elman.compare.request import (
    DEFAULT_BUDGET,
    Request,
    Sweep,
    as_paths,
    find_net_task,
    make_entries,
    parse_models,
)
from elman.compare.running import Runner
from elman.compare.state import SCHEMA_VERSION, open_state, versions, write_state
from elman.compare.texts import Parts, cut_text, fingerprints, refuse_same
from elman.core.errors import DataError, no_such
from elman.core.files import lock
from elman.core.settings import sections_of
from elman.training.budget import parse_duration
from elman.training.progress import Progress
from elman.training.threads import prepare_environment

SMALL_TOKENS = 10_000  # of a text; with fewer, nets learn it by heart


@dataclass(frozen=True)
class Comparison:
    """What was found, as comparison.json has it, and where the models are."""

    directory: Path
    data: dict[str, Any]

    def load(self, name: str) -> Any:
        """One of the models that were compared."""
        places = {row["name"]: row["directory"] for row in self.data["models"] if row["error"] is None}
        if name not in places:
            raise no_such("model", name, places)
        return load(self.directory / places[name])


def compare(
    data: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: str = "lm",
    models: Sequence[str] | str | None = None,
    sweep: str | Sequence[str] | None = None,
    equal: str | None = None,
    budget: str | float | None = None,
    epochs: float | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 1,
    threads: int | None = None,
    overwrite: bool = False,
    started: float | None = None,
    command: str | None = None,
    report: Callable[[str], None] = lambda sentence: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """Train several models on the same files and measure them by one rule, into the directory `out`.

    models: names as `--model` has them; `mkn+lstm+cache` is a mixture. Without them, the history of the task.
    settings: what `--set` takes, for every model that has it. sweep: `model.layers=1,2,3`, of one model; with
    equal="parameters" all nets have about as many. budget: for the whole comparison; 10 minutes, where neither it nor
    epochs nor train.steps is given. The same call again goes on where it was stopped.
    """
    began = time.monotonic() if started is None else started
    prepare_environment()
    found_task = find_net_task(task)
    axis = Sweep.parse([sweep] if isinstance(sweep, str) else list(sweep or ()), equal)
    names = parse_models(models) if isinstance(models, str) else models
    given = dict(settings or {}) | ({} if epochs is None else {"train.epochs": epochs})
    if budget is None and not {"train.epochs", "train.steps"} & given.keys():
        budget = DEFAULT_BUDGET
    seconds = None if budget is None else parse_duration(budget)
    request = Request(found_task, make_entries(found_task, names, axis), axis, seconds, given, seed, threads)
    request.check()
    train, place = as_paths(data), Path(out)
    others = [str(path) for path in (valid, test) if path is not None]
    asked = request.identity() | {"fingerprints": fingerprints([*train, *as_paths(others)] if others else train)}
    valid_name, test_name = (None if path is None else str(path) for path in (valid, test))
    refuse_same(train, valid_name, test_name, asked["fingerprints"])
    with lock(place):
        state = open_state(place, asked, overwrite=overwrite)
        if state is None:
            state = _begin(request, train, valid_name, test_name, place, asked=asked, command=command)
        parts = _parts(state)
        for note in [state["note"], *_doubts(request, parts)]:
            if note:
                report(note)
        Runner(request, parts, place, state, began, report, on_progress).run()
        write_report(place, state)
    if all(row["error"] is not None for row in state["models"]):
        raise DataError(f"no model could be compared: {state['models'][0]['error']}", code="part-failed")
    return Comparison(place, state)


def _begin(
    request: Request,
    train: Sequence[str],
    valid: str | None,
    test: str | None,
    out: Path,
    *,
    asked: Mapping[str, Any],
    command: str | None,
) -> dict[str, Any]:
    """A comparison in which nothing has been compared yet."""
    if request.task.makes_language_models:
        data = request.task.data_settings(sections_of(request.settings)["data"])
        parts = cut_text(train, valid, test, out, data=data, heldout=data.heldout)
    else:
        measured_on = "test" if test else "valid" if valid else "held out"
        parts = Parts(tuple(train), valid, test, measured_on)
    state: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "seed": request.seed,
        "budget_seconds": request.budget_seconds,
        "seconds": 0.0,
        "versions": versions(),
        "data": {
            "train": list(parts.train),
            "valid": parts.valid,
            "test": parts.test,
            "fingerprints": asked["fingerprints"],
            "train_tokens": None,
            "test_tokens": None,
            "lines": None,
        },
        "task": request.task.name,
        "units": None,
        "vocab_size": None,
        "signature": None,
        "measured_on": parts.measured_on,
        "note": parts.note,
        **{key: [] for key in ("models", "differences", "by_frequency", "by_position", "lines")},
        **{key: [] for key in ("gradients", "mixtures", "failed")},
        "sweep": None,
        "sizes": {},
        "request": dict(asked),
    }
    write_state(out, state)
    return state


def _parts(state: Mapping[str, Any]) -> Parts:
    data = state["data"]
    return Parts(tuple(data["train"]), data["valid"], data["test"], state["measured_on"], state["note"])


def _doubts(request: Request, parts: Parts) -> list[str]:
    """What makes the numbers mean less than they seem to."""
    num_bytes = sum(Path(path).stat().st_size for path in parts.train if Path(path).is_file())
    if request.budget_seconds is None or not any(map(request.is_trained, request.entries)):
        return []
    if num_bytes and num_bytes < 4 * SMALL_TOKENS:
        return [f"the text has only {num_bytes:,} bytes: nets will learn it by heart long before the budget is over"]
    return []


class _Room(ModuleType):
    """A module that can be called, since the public name `elman.compare` is a function's."""

    def __call__(self, *arguments: Any, **options: Any) -> Comparison:
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Room
