"""Options of `predict` and `evaluate`, for every task: each model says which of them apply to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from elman.core.errors import UsageError
from elman.text.readers import Sources
from elman.text.settings import Errors


@dataclass(frozen=True)
class PredictOptions:
    """How `predict` answers. What is not given is chosen by the model; what does not apply to a task is refused."""

    beam: int | None = None  # 1 is greedy
    n_best: int | None = None
    length_penalty: float | None = None
    prefix: str = ""  # with which every target has to begin
    max_tokens: int | None = None
    alignments: bool = False
    keep_unknown: bool = False
    truncate: bool = False  # sources that are too long are cut instead of refused
    format: str | None = None
    errors: Errors | None = None  # None: as the model was trained; what is passed over has an empty answer in its place
    details: bool = False  # probabilities and attention too, for `as_json`


@dataclass(frozen=True)
class EvaluateOptions:
    """How `evaluate` measures."""

    beam: int | None = None
    reset_lines: bool | None = None  # None: as trained
    dynamic: bool = False
    dynamic_rate: float | None = None
    targets: Sources | None = None
    errors: Errors | None = None  # None: as the model was trained
    seed: int = 1
    report_share: Callable[[float], None] | None = None  # of what takes long: how much is done, from 0 to 1


FLAGS = {"targets": "--target", "reset_lines": "--reset-lines (and --stream)"}
EVERYWHERE = {"details", "seed", "errors", "report_share"}


def refuse_options(task: str, options: PredictOptions | EvaluateOptions, *, takes: frozenset[str]) -> None:
    """An error for the first option that was given and does not apply to a task."""
    for one in dataclasses.fields(options):
        if one.name not in takes | EVERYWHERE and getattr(options, one.name) != one.default:
            flag = FLAGS.get(one.name, "--" + one.name.replace("_", "-"))
            raise UsageError(f"{flag} does not apply to {task}", code="does-not-apply", hint="leave it out")
