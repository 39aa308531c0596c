"""The keeper of a run: its checkpoints, its metrics.jsonl, and the signals that ask it to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from elman.core.errors import UsageError
from elman.core.files import RUN_FOLDER
from elman.training.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    read_checkpoint,
    remove_checkpoints,
    sweep_checkpoints,
    write_checkpoint,
)
from elman.training.config import TrainConfig
from elman.training.decision import Decision
from elman.training.journal import EVENTS, Journal
from elman.training.run import Run, to_tensors
from elman.training.run_state import RunState, state_from_json, state_to_json
from elman.training.signals import Signals, Stopped
from elman.training.world import ALONE, World

# Settings that cannot change when a run is resumed: position, optimiser and average would mean something else.
FIXED_SETTINGS = ("batch", "bptt", "bptt_spread", "optimiser", "momentum", "average", "seed", "reset_lines", "tokens")
# These depend on the machine; with others, results differ in the last bits.
MACHINE_SETTINGS = ("threads", "torch")


class Keeper:
    """Saves and restores a run in a directory, whose lock the caller holds. Without a directory it only catches signals.

    Of several processes the first writes; the others read the checkpoint that it found.

    identity: settings besides those of `config` that a resumed run must share, for the checkpoint.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        config: TrainConfig,
        identity: Mapping[str, Any],
        seed: int,
        world: World = ALONE,
    ) -> None:
        self.directory = directory
        self._world = world
        self._settings = describe_settings(config, identity, seed=seed, processes=world.size)
        self._tensorboard = config.tensorboard
        self._signals = Signals()
        self._journal: Journal | None = None

    # --------------------------------------------------------------------------------------------------- checkpoints

    def restore(self, run: Run, *, resume: bool) -> list[str]:
        """Restore the newest checkpoint if asked to, else remove those of earlier runs. -> notes for the user"""
        if self.directory is None:
            return []
        found = self._world.lead(lambda: self._find(resume=resume))
        place = self._world.shared({"step": None if found is None else found.step}, dict)["step"]
        if place is None:
            return ["there is no checkpoint yet: starting from the beginning"] if resume else []
        found = found or read_checkpoint(self.directory, place)
        notes = [*found.notes, *compare_settings(found, self._settings)]
        run.restore(state_from_json(found.state), run.own_part(to_tensors(found.tensors)))
        return [*notes, f"going on after step {run.state.step}"]

    def _find(self, *, resume: bool) -> Checkpoint | None:
        """The checkpoint to go on from, if there is one; what is in the way of new ones is removed."""
        assert self.directory is not None
        sweep_checkpoints(self.directory)
        if resume:
            return newest_checkpoint(self.directory)
        remove_checkpoints(self.directory)
        return None

    def save(self, run: Run, *, seconds: float) -> None:
        """Write a checkpoint. Raises BadStep rather than save weights that are NaN. `seconds`: spent so far."""
        assert self.directory is not None
        run.refuse_bad_weights()
        state = run.state
        state.seconds = seconds
        if self._journal is not None:
            state.journal_bytes = self._journal.sync()
        record, arrays = {**state_to_json(state), "settings": self._settings}, run.arrays()
        if self._world.is_first:
            write_checkpoint(self.directory, state.step, record, arrays)

    # ------------------------------------------------------------------------------------------------- metrics.jsonl

    @contextmanager
    def open(self, state: RunState) -> Iterator[None]:
        """Catch signals and write metrics.jsonl until the end of the block; lines after the checkpoint are cut off."""
        with ExitStack() as stack:
            stack.enter_context(self._signals)
            if self.directory is not None and self._world.is_first:
                events = self.directory / EVENTS if self._tensorboard else None
                folder = self.directory / RUN_FOLDER  # beside a model that may be there, until the run is over
                journal = Journal(folder, position=state.journal_bytes, step=state.step, events=events)
                self._journal = stack.enter_context(closing(journal))
            yield

    def write_metrics(self, state: RunState, *, epoch: float, **values: float | str) -> None:
        """Add a line to metrics.jsonl."""
        if self._journal is not None:
            self._journal.write(state.step, {"epoch": round(epoch, 4), "tokens": state.tokens, **values})
            state.journal_bytes = self._journal.position

    def cut_metrics(self, state: RunState) -> None:
        """Remove the lines that were written after this state, to which the run was rolled back."""
        if self._journal is not None:
            self._journal.cut(state.journal_bytes)

    # ------------------------------------------------------------------------------------------------------- signals

    @property
    def signum(self) -> int | None:
        """The signal that asked the run to stop, if one did."""
        return self._signals.caught

    def stopped(self, state: RunState, decision: Decision) -> Stopped:
        """The error to raise once a run that was asked to stop has been saved."""
        assert decision.signum is not None
        saved = "saved" if self.directory is not None else "nothing is saved"
        return Stopped(
            f"{decision.reason} after step {state.step}, {saved}",
            signum=decision.signum,
            hint=f"elman resume {self.directory} goes on from there" if self.directory is not None else None,
        )


def describe_settings(
    config: TrainConfig, identity: Mapping[str, Any], *, seed: int, processes: int = 1
) -> dict[str, Any]:
    """The settings of a run as its checkpoints store them."""
    machine = {"threads": torch.get_num_threads(), "torch": torch.__version__, "processes": processes}
    return {**config.model_dump(mode="json"), **identity, "seed": seed, **machine}


def compare_settings(found: Checkpoint, settings: Mapping[str, Any]) -> list[str]:
    """Notes on settings that differ from those of the checkpoint; an error where a run cannot be resumed with them."""
    before = {"processes": 1, **found.state.get("settings", {})}
    notes = []
    for name, value in settings.items():
        if before.get(name) == value:
            continue
        if name in FIXED_SETTINGS:
            raise UsageError(
                f"the run in {found.path} was begun with {name}={before.get(name)}; it cannot go on with {value}",
                code="run-differs",
                hint="go on with the old setting, or train anew with --overwrite",
            )
        if name == "processes":
            notes.append(
                f"{before[name]} processes have trained so far, from here on {value}: rows and what was carried for them "
                "are divided anew, and the result will not be the same to the bit"
            )
        elif name in MACHINE_SETTINGS:
            notes.append(f"{name} was {before.get(name)} and is {value}: the result will not be the same to the bit")
        else:
            notes.append(f"train.{name} was {before.get(name)}; from here on it is {value}")
    return notes
