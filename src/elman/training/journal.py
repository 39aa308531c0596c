"""The log of a run: metrics.jsonl and, if asked for, TensorBoard event files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elman.core.errors import ElmanError, WriteError

METRICS = "metrics.jsonl"
EVENTS = "events"

# Never through a link: a folder of somebody else's making could point anywhere.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def read_journal(directory: Path, *, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl. What is not one, as after damage to the disk, is left out and reported."""
    path = directory / METRICS
    found, num_bad = [], 0
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            num_bad += 1
    if num_bad:
        report(f"{num_bad:,} lines of {path} are damaged and left out")
    return found


class Journal:
    """Writes metrics.jsonl, one JSON object a line, flushed at once. A resumed run truncates it to `position` bytes.

    events: where TensorBoard's event files go, if it is asked for.
    """

    def __init__(self, directory: Path, *, position: int = 0, step: int = 0, events: Path | None = None) -> None:
        self.path = directory / METRICS
        self._events: Any = None
        self._open_events = None if events is None else _event_opener(events, step)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(self.path, _APPEND, 0o666), "ab")
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        self.cut(min(position, self.position))

    def write(self, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Append the values of a step. NaN and infinity become null."""
        clean = {"step": step, **{key: _finite(value) for key, value in values.items()}}
        try:
            self._file.write(json.dumps(clean).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        if self._open_events is not None:
            self._events = self._events or self._open_events()  # at the first line: a run that is refused leaves none
            for key, value in clean.items():
                if key != "step" and isinstance(value, int | float):
                    self._events.add_scalar(key, value, step)

    @property
    def position(self) -> int:
        """The length of the file in bytes."""
        return self._file.tell()

    def cut(self, position: int) -> None:
        """Remove what was written after a position: the run was rolled back and will write these steps again."""
        try:
            self._file.truncate(position)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise _cannot_write(self.path, error) from None

    def sync(self) -> int:
        """Make sure that the file is on disk. -> its length in bytes"""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        return self._file.tell()

    def close(self) -> None:
        """Close metrics.jsonl and the event file."""
        try:
            self._file.close()
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        finally:
            if self._events is not None:
                self._events.close()


def _finite(value: float | int | str | None) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cannot_write(path: Path, error: OSError) -> WriteError:
    return WriteError(f"cannot write {path}: {(error.strerror or str(error)).lower()}", hint="make room and try again")


def _event_opener(directory: Path, step: int) -> Callable[[], Any]:
    """What opens an event file, if that can be done at all."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ElmanError(
            "train.tensorboard needs tensorboardX, which is not installed",
            code="missing-package",
            hint="pip install 'elman[track]'",
        ) from None
    return lambda: SummaryWriter(str(directory), purge_step=step or None)
