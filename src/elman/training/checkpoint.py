"""Checkpoints: everything a run needs to be resumed, as tensors and one JSON record; synced, verified, no pickle.

`checkpoints/step-000000150/` holds `state.json`, `state.safetensors` and a manifest with their SHA-256. The manifest is
written last, so a directory without one never became a checkpoint. The newest intact one is used; two are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError, WriteError
from elman.core.files import RUN_FOLDER, commit
from elman.core.stored import MANIFEST, open_directory

FORMAT_VERSION = 1
STATE = "state.json"
TENSORS = "state.safetensors"
STEP = "step-"  # begins the name of a checkpoint's folder
# So many checkpoints are kept; the older one is there in case the newest gets damaged.
KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a step."""

    state: dict[str, Any]  # what is in state.json
    tensors: Mapping[str, Array]
    path: Path
    step: int
    notes: tuple[str, ...] = ()  # about newer ones that could not be used


def write_checkpoint(directory: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """Add a checkpoint and remove all but the newest two; on failure nothing changes. The caller holds the lock."""
    folder = directory / RUN_FOLDER
    path = folder / f"{STEP}{step:09d}"
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        _sync(folder)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    try:
        text = json.dumps({"version": FORMAT_VERSION, **state}, indent=1) + "\n"
        commit(path, {STATE: text.encode(), TENSORS: tensors})
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise
    for old in _complete(folder)[KEPT_CHECKPOINTS:]:
        _remove(old)
    return path


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is intact, or None where there never was one."""
    notes: list[str] = []
    found = _complete(directory / RUN_FOLDER)
    for path in found:
        try:
            state, tensors = _read(path)
        except ElmanError as error:
            notes.append(f"{path.name} is not intact and was passed over: {error.what}")
            continue
        if state.get("version") != FORMAT_VERSION:
            raise DataError(
                f"{path} was written by another version of elman",
                code="other-version",
                hint=f"go on with that version, or remove {directory / RUN_FOLDER} to start anew",
            )
        return Checkpoint(state, tensors, path, int(path.name.removeprefix(STEP)), tuple(notes))
    if found:
        raise DataError(
            f"no checkpoint in {directory / RUN_FOLDER} is intact: {notes[0]}",
            code="damaged-run",
            hint=f"remove {directory / RUN_FOLDER} to start anew",
        )
    return None


def read_checkpoint(directory: Path, step: int) -> Checkpoint:
    """The checkpoint of a step, as another process has found it."""
    path = directory / RUN_FOLDER / f"{STEP}{step:09d}"
    state, tensors = _read(path)
    return Checkpoint(state, tensors, path, step)


def has_trained(directory: Path) -> bool:
    """Whether there is a checkpoint of a run that has made a step: something to go on with."""
    return any(path.name > f"{STEP}{0:09d}" for path in _complete(directory / RUN_FOLDER))


def sweep_checkpoints(directory: Path) -> None:
    """Remove unfinished checkpoints of a killed process. The caller holds the lock."""
    folder = directory / RUN_FOLDER
    for path in folder.glob("step-*") if folder.is_dir() else ():
        if path.is_dir() and not (path / MANIFEST).exists():
            shutil.rmtree(path, ignore_errors=True)


def remove_checkpoints(directory: Path) -> None:
    """Remove all checkpoints, for a run that starts anew in the same directory. The caller holds the lock."""
    for path in _complete(directory / RUN_FOLDER):
        _remove(path)
    sweep_checkpoints(directory)


def _complete(folder: Path) -> list[Path]:
    """Paths of the checkpoints that have a manifest, newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.glob("step-*") if (path / MANIFEST).exists()), reverse=True)


def _read(path: Path) -> tuple[dict[str, Any], Mapping[str, Array]]:
    stored = open_directory(path)
    try:
        state = json.loads(stored.read(STATE))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path / STATE} is corrupt: {error}", code="damaged-run") from None
    if not isinstance(state, dict):
        raise DataError(f"{path / STATE} is corrupt", code="damaged-run")
    return state, stored.tensors(TENSORS)


def _remove(path: Path) -> None:
    """Remove the manifest first: half a checkpoint must not look like a whole one."""
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink()
        shutil.rmtree(path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
