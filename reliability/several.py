"""Rows 6 and 7: training by several processes under torchrun. One of them is killed; two learn what one does."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from reliability.row import Allowance, Count, Figure, NotMeasurableError
from tests.guards.cases import read_curve, write_data

KILLS = 20
KILLS_AT_ONCE = 10  # of one run, a restart each: starting torchrun anew takes longer than to go on
STEPS = 100
NOISE = {"model.hidden": 8, "model.head": "full", "train.batch": 8, "train.bptt": 8, "train.log_steps": 1}


def killed_ranks(allowance: Allowance) -> Figure:
    """SIGKILL of a random process in a random step, ten times a run: torchrun restarts them, and the weights are the same."""
    launch, folder = _launcher(), allowance.folder
    write_data(folder)
    settings = {"model.dropout": 0.3, "train.steps": 2 * KILLS_AT_ONCE + 4, "train.checkpoint_steps": 2}
    launch([_job("whole", **settings)], folder)
    whole, rng, count = _weights(folder / "whole"), random.Random(allowance.seed), Count()
    for first in allowance.until_spent(range(0, KILLS, KILLS_AT_ONCE)):
        name = f"killed-{first}"
        places = [{"rank": rng.randrange(2), "step": 2 * turn + rng.randint(1, 2)} for turn in range(KILLS_AT_ONCE)]
        options = ("--standalone", "--max-restarts", str(KILLS_AT_ONCE))  # one each: torchrun gives up at one more
        errors = launch([_job(name, **settings) | {"stop": places}], folder, *options)
        is_same = not any(errors) and _weights(folder / name) == whole
        for place in places:
            count.add(None if is_same else f"{place}: {errors}")
    return count.figure(" kills", least=KILLS)


def parity(allowance: Allowance) -> Figure:
    """The losses of two processes against those of one with the same rows."""
    launch, folder = _launcher(), allowance.folder
    write_data(folder)
    settings = {"model.dropout": 0.0, "train.average": "none", "train.steps": STEPS, "train.fit_temperature": False}
    for processes in (1, 2):
        launch([_job(f"by-{processes}", **settings)], folder, processes=processes)
    one, two = (np.array([line[1] for line in read_curve(folder / f"by-{number}") if line[1]]) for number in (1, 2))
    difference = float(np.max(np.abs(one - two) / np.abs(one)))
    return Figure(f"{difference:.1e} over {len(one)} steps", len(one) == len(two) == STEPS and difference <= 1e-5)


def _launcher() -> Any:
    try:
        return importlib.import_module("tests.training.together").launch
    except ImportError:
        raise NotMeasurableError("training by several processes is not built yet") from None


def _job(out: str, **settings: Any) -> dict[str, Any]:
    chosen = NOISE | settings
    return {
        "task": "lm",
        "data": "text.train",
        "valid": "text.valid",
        "out": out,
        "model": "lstm",
        "units": "space",
        "settings": chosen,
    }


def _weights(directory: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in load_file(directory / "model.safetensors").items()}
