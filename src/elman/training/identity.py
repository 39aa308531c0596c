"""How a run is set up, and whether a run that goes on still is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elman.core.errors import UsageError
from elman.training.checkpoint import Checkpoint
from elman.training.config import TrainConfig

# What cannot change in the middle: position, optimiser and average would mean something else.
FIXED = ("batch", "bptt", "bptt_spread", "optimiser", "momentum", "average", "seed", "reset_lines", "tokens")


def describe(config: TrainConfig, identity: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """What a checkpoint says about how the run was set up."""
    own = {"seed": seed, "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {**config.model_dump(mode="json"), **identity, **own}


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
