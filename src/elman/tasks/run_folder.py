"""The folder of a run that goes on, `DIR/checkpoints`: all of it was written or it is not there, and damage is found.

It holds what was asked for (run.json), the files of the model to be, the rows as ids (memory-mapped, so memory does not grow
with the corpus), the held-out rows, the weights to start from if they are trained ones, and a manifest of all these; besides,
the trainer's checkpoints, which have manifests of their own, and the journal.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import BusyError, DataError, MissingError, UsageError, WriteError
from elman.core.files import RUN, RUN_FOLDER
from elman.core.stored import MANIFEST, NEW, Stored, holds_model, open_directory, read_tensors

ARRAYS = "ids.safetensors"
HELDOUT = "heldout.jsonl"
START = "start.safetensors"
WASTE = RUN_FOLDER + ".old" + NEW  # a run that is being removed


def write_run(directory: Path, contents: Mapping[str, files.Content]) -> None:
    """Begin a run in a directory that is reserved, in place of one that was there. A kill leaves the old one, or the new.

    Between the two renames neither has the name of a run: whoever locks the directory next gives it to the new one.
    """
    folder, fresh, waste = directory / RUN_FOLDER, directory / (RUN_FOLDER + NEW), directory / WASTE
    with files.write_errors(folder):
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(waste, ignore_errors=True)
        fresh.mkdir()
        try:
            files.commit(fresh, contents)
            with contextlib.suppress(FileNotFoundError):
                folder.rename(waste)
            fresh.rename(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                waste.rename(folder)
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        shutil.rmtree(waste, ignore_errors=True)


def remove_run(directory: Path) -> None:
    """Remove the run that is there. Half of one is never left under its name."""
    folder, waste = directory / RUN_FOLDER, directory / WASTE
    shutil.rmtree(waste, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(waste)
    shutil.rmtree(waste, ignore_errors=True)


def find_run(directory: Path) -> Path | None:
    """The folder of the run to go on with; None where a model is there instead, which is all that was wanted."""
    if files.holds_run(directory):
        return directory / RUN_FOLDER
    if holds_model(directory):
        return None
    raise UsageError(f"there is no run to go on with in {directory}", code="no-run", hint="elman train begins one")


def tidy(directory: Path) -> None:
    """Remove what a kill left of a run whose model is there, if somebody may write there and nobody does."""
    if (directory / files.LOCK).exists() or any(directory.glob(f"*{NEW}")):
        with contextlib.suppress(WriteError, BusyError), files.lock(directory):
            files.recover(directory)


class RunFiles:
    """What was written of a run when it began. Each file is checked against the manifest when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stored: Stored | None = None
        with _damage():
            if (folder / MANIFEST).exists():  # runs of version 0.1.0 have none
                self._stored = open_directory(folder)

    @property
    def has_manifest(self) -> bool:
        """Whether damage would be found."""
        return self._stored is not None

    def has(self, name: str) -> bool:
        """Whether the run has such a file."""
        return (self.folder / name).is_file() if self._stored is None else name in self._stored.manifest.files

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        with _damage():
            return (self.folder / name).read_bytes() if self._stored is None else self._stored.read(name)

    def tensors(self, name: str) -> dict[str, Array]:
        """The tensors of a file, mapped into memory."""
        with _damage():
            return read_tensors(self.folder / name) if self._stored is None else self._stored.tensors(name)

    def asked(self) -> dict[str, Any]:
        """What was asked for."""
        content = self._parsed(RUN, self.read(RUN))
        if not isinstance(content, dict):
            raise DataError(f"{self.folder / RUN} is damaged: it is not a JSON object", code="damaged-run")
        return content

    def heldout_rows(self) -> list[Any]:
        """The held-out rows, as JSON."""
        return [self._parsed(HELDOUT, line) for line in self.read(HELDOUT).splitlines()]

    def _parsed(self, name: str, text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise DataError(f"{self.folder / name} is damaged: {error}", code="damaged-run") from None


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """A file that is missing or not as it was written: the run cannot go on."""
    try:
        yield
    except (DataError, MissingError) as error:
        raise DataError(
            error.what, code="damaged-run", hint="the run is damaged; begin it anew with --overwrite"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(
            f"cannot read {error.filename}: {reason}",
            code="damaged-run",
            hint="the run is damaged; begin it anew with --overwrite",
        ) from None
