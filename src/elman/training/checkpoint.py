"""Everything a run needs to go on, on disk: tensors and one JSON record, synced, checked to the bit, no pickle.

`checkpoints/step-000000150/` holds `state.json`, `state.safetensors` and a manifest with their SHA-256. The manifest is
written last, so a directory without one never became a checkpoint. The newest that is intact wins; two are kept.
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
from elman.core.errors import DataError, ElmanError, MissingError, WriteError
from elman.core.files import MANIFEST, commit, open_directory

VERSION = 1
FOLDER = "checkpoints"
STATE = "state.json"
TENSORS = "state.safetensors"
KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a step."""

    state: dict[str, Any]  # plain JSON
    tensors: Mapping[str, Array]
    path: Path | None = None
    notes: tuple[str, ...] = ()  # about newer ones that could not be used


def write_checkpoint(directory: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """Add a checkpoint and drop all but the newest two; on failure, what was there stays. The caller holds the lock."""
    folder = directory / FOLDER
    path = folder / f"step-{step:09d}"
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        _sync(folder)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    try:
        text = json.dumps({"version": VERSION, **state}, indent=1) + "\n"
        commit(path, {STATE: text.encode(), TENSORS: tensors})
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise
    for old in _complete(folder)[KEPT:]:
        _remove(old)
    return path


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is intact, or None where there never was one."""
    notes: list[str] = []
    found = _complete(directory / FOLDER)
    for path in found:
        try:
            state, tensors = _read(path)
        except ElmanError as error:
            notes.append(f"{path.name} is not intact and was passed over: {error.what}")
            continue
        if state.get("version") != VERSION:
            raise DataError(
                f"{path} was written by another version of elman",
                hint=f"go on with that version, or remove {directory / FOLDER} to start anew",
            )
        return Checkpoint(state, tensors, path, tuple(notes))
    if found:
        raise DataError(
            f"no checkpoint in {directory / FOLDER} is intact: {notes[0]}",
            hint=f"remove {directory / FOLDER} to start anew",
        )
    return None


def sweep_checkpoints(directory: Path) -> None:
    """Remove what a killed writer left. The caller holds the lock."""
    folder = directory / FOLDER
    for path in folder.glob("step-*") if folder.is_dir() else ():
        if path.is_dir() and not (path / MANIFEST).exists():
            shutil.rmtree(path, ignore_errors=True)


def remove_checkpoints(directory: Path) -> None:
    """Forget a run: for one that starts anew in the same place. The caller holds the lock."""
    for path in _complete(directory / FOLDER):
        _remove(path)
    sweep_checkpoints(directory)


def _complete(folder: Path) -> list[Path]:
    """Checkpoints whose manifest is there, newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.glob("step-*") if (path / MANIFEST).exists()), reverse=True)


def _read(path: Path) -> tuple[dict[str, Any], Mapping[str, Array]]:
    stored = open_directory(path)
    try:
        state = json.loads(stored.read(STATE))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path / STATE} is corrupt: {error}") from None
    if not isinstance(state, dict):
        raise DataError(f"{path / STATE} is corrupt")
    return state, stored.tensors(TENSORS)


def _remove(path: Path) -> None:
    """The manifest first: half a checkpoint must not look like one."""
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink()
        shutil.rmtree(path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_checkpoint(directory: Path) -> bool:
    """Whether a run can go on here."""
    with contextlib.suppress(MissingError):
        return bool(_complete(directory / FOLDER))
    return False
