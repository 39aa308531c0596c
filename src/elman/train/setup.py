"""How a run is set up, and whether a run that goes on still is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elman.config import TrainConfig
from elman.errors import UsageError
from elman.lm import Array
from elman.text.batches import Lines, Streams
from elman.train.checkpoint import Checkpoint

# What cannot change in the middle: position, optimiser and average would mean something else.
FIXED = ("batch", "bptt", "bptt_spread", "optimiser", "momentum", "average", "seed", "reset_lines", "tokens")


def make_batches(
    ids: Array, config: TrainConfig, *, rows: int, bptt: int, seed: int, reset_lines: bool
) -> Streams | Lines:
    """The corpus in the form the run reads it: streams, or lines each alone."""
    if not reset_lines:
        return Streams(ids, rows=rows, bptt=bptt, spread=config.bptt_spread, seed=seed)
    if config.bptt_spread:
        raise UsageError("train.bptt_spread does not apply with --reset-lines: every line is read to its end")
    return Lines(ids, tokens=rows * bptt, seed=seed)


def describe(config: TrainConfig, rows: int, bptt: int, *, seed: int, reset_lines: bool, tokens: int) -> dict[str, Any]:
    """What a checkpoint says about how the run was set up."""
    chosen = {"batch": rows, "bptt": bptt, "seed": seed, "reset_lines": reset_lines, "tokens": tokens}
    return {**config.model_dump(mode="json"), **chosen, "threads": torch.get_num_threads(), "torch": torch.__version__}


def changes(found: Checkpoint, settings: Mapping[str, Any]) -> list[str]:
    """What is set otherwise than when the run stopped: told, or refused where it would make no sense."""
    before = found.state.get("settings", {})
    notes = []
    for name, value in settings.items():
        if before.get(name) == value:
            continue
        if name in FIXED:
            raise UsageError(
                f"the run in {found.path} was begun with {name}={before.get(name)}; it cannot go on with {value}",
                hint="go on with the old setting, or train anew with --overwrite",
            )
        if name in ("threads", "torch"):
            notes.append(f"{name} was {before.get(name)} and is {value}: the result will not be the same to the bit")
        else:
            notes.append(f"train.{name} was {before.get(name)}; from here on it is {value}")
    return notes
