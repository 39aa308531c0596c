"""Where does the time of a budget go? The parts of a training run, in per cent, for each family of nets or for a task.

    python benchmarks/step_parts.py lm TRAIN VALID [--models rnn gru lstm window transformer] [--budget 60s] [--threads 2]
    python benchmarks/step_parts.py tag|classify|seq2seq|qa TRAIN VALID [--budget 60s] [--threads 2]

Every net is of the size that the plan gives it. *Start*: from the beginning of `elman.train` to the first step (reading,
counting, sizing, the first checkpoint). *End*: all that comes after the last step (the last validation, measuring,
saving). In between: batches are cut from the data, forward, backward, the norm of the gradient and clipping, the
optimiser, the average of weights, log lines, copies of the weights in memory, checkpoints on disk, validation, what is
reported after each step; *rest* is what none of these is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import elman
from elman.training import loop
from elman.training.loop import Trainer
from elman.training.optimiser import Optimiser, WeightAverage
from elman.training.run import Run

PARTS: tuple[tuple[Any, str, str], ...] = (
    (Run, "_loss", "forward"),
    (torch.Tensor, "backward", "backward"),
    (Run, "_clip_gradients", "clipping"),
    (Optimiser, "step", "optimiser"),
    (WeightAverage, "update", "average"),
    (Trainer, "_log_step", "log"),
    (loop, "take_snapshot", "copies"),
    (Trainer, "_save", "checkpoints"),
    (Trainer, "_validate", "validation"),
    (Trainer, "_progress", "progress"),
)
COLUMNS = ("start", "batches", *(part for *_, part in PARTS), "rest", "end")


class Stopwatch:
    """Seconds of each part of one run."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.first_step: float | None = None
        self.last_step = 0.0
        self.before_end: dict[str, float] = {}

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The same function, whose time counts where it is called between the first step and the last."""

        def call(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                if self.first_step is not None:
                    self.seconds[part] += time.perf_counter() - began

        return call

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A step of the trainer. What comes after the last one counts as the end."""

        def call(run: Run, *arguments: Any, **options: Any) -> Any:
            if self.first_step is None:
                self.first_step = time.perf_counter()
                batches = run.batches
                run.batches = _Timed(batches, self.timed(batches.part, "batches"))  # type: ignore[assignment]
            found = function(run, *arguments, **options)
            self.last_step = time.perf_counter()
            self.before_end = dict(self.seconds)
            return found

        return call

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, part in PARTS:
                stack.enter_context(patch.object(owner, name, self.timed(getattr(owner, name), part)))
            stack.enter_context(patch.object(Run, "step", self.step(Run.step)))
            yield


class _Timed:
    """Batches whose cutting is timed."""

    def __init__(self, batches: Any, part: Callable[..., Any]) -> None:
        self._batches = batches
        self.part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def measure(task: str, train: Path, valid: Path, **options: Any) -> tuple[dict[str, float], Any]:
    """Shares of the whole run, in per cent, and the model."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, watch.running():
        began = time.perf_counter()
        model = elman.train(task, train, valid=valid, out=f"{folder}/model", seed=1, **options)
        ended = time.perf_counter()
    assert watch.first_step is not None
    seconds = {"start": watch.first_step - began, **watch.before_end, "end": ended - watch.last_step}
    seconds["rest"] = ended - began - sum(seconds.values())
    return {name: 100 * seconds.get(name, 0.0) / (ended - began) for name in COLUMNS}, model


def main() -> None:
    """Print a row for each net."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task")
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--models", nargs="+", default=["rnn", "gru", "lstm", "window", "transformer"])
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    print("|", " | ".join(["net", "hidden", *COLUMNS]), "|")
    for name in given.models if given.task == "lm" else [None]:
        options = {} if name is None else {"model": name}
        shares, model = measure(
            given.task, given.train, given.valid, budget=given.budget, threads=given.threads, **options
        )
        cells = [name or given.task, f"{model.record.model.hidden}", *(f"{shares[part]:.1f}" for part in COLUMNS)]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
