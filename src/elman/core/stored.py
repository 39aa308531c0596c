"""A model directory open for reading: every file is checked against the manifest, also while somebody replaces the model."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from elman.core.arrays import Array
from elman.core.errors import BusyError, DataError, MissingError
from elman.core.settings import Config
from elman.core.tensors import parse_tensors

T = TypeVar("T")

FORMAT_VERSION = 1  # of a model directory; a higher one is refused
MANIFEST = "manifest.json"
NEW = ".new"  # behind the name of a file that is not yet in its place

CHUNK_BYTES = 8 << 20

_DAMAGED = "the file was damaged or changed; copy the model again from where it came, or train it again"


class Entry(Config):
    """What a file must be, to the bit."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


# No separators and no leading dot: a manifest cannot point outside its directory, nor at the lock.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]


class Manifest(Config):
    """The list of a model directory's files, and under which circumstances they were made."""

    format_version: int = FORMAT_VERSION
    files: dict[Name, Entry]
    pending: tuple[Name, ...] = ()  # still called NAME.new
    removed: tuple[Name, ...] = ()  # of the model before, still to be removed
    versions: dict[str, str] = Field(default_factory=dict)
    threads: int | None = None
    seed: int | None = None
    data_fingerprint: str | None = None


def read_tensors(path: Path, *, expected: Entry | None = None) -> dict[str, Array]:
    """The tensors of a safetensors file, mapped into memory and read-only. `expected` is checked to the bit."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise DataError(f"{path} is empty", hint=_DAMAGED)
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if expected is not None:
            _check(path, view, expected)
        return parse_tensors(path, view)
    except OSError as error:
        raise _unreadable(path, error) from None


def holds_model(directory: Path) -> bool:
    """Whether there is a model directory of ours here, intact or not."""
    try:
        manifest = json.loads((directory / MANIFEST).read_bytes())
        return isinstance(manifest, dict) and "format_version" in manifest and "files" in manifest
    except (OSError, ValueError, RecursionError):
        return False


@dataclass(frozen=True)
class Stored:
    """A model directory, open for reading. Every file is checked against the manifest: its size, and its SHA-256."""

    directory: Path
    manifest: Manifest
    verify: bool = True

    def path(self, name: str) -> Path:
        """Where the file is now."""
        beside = self.directory / (name + NEW)
        return beside if name in self.manifest.pending and beside.exists() else self.directory / name

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        path, expected = self._find(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _unreadable(path, error) from None
        if self.verify:
            _check(path, memoryview(data), expected)
        return data

    def tensors(self, name: str) -> dict[str, Array]:
        """The tensors of a file, mapped into memory."""
        path, expected = self._find(name)
        return read_tensors(path, expected=expected if self.verify else None)

    def _find(self, name: str) -> tuple[Path, Entry]:
        if name not in self.manifest.files:
            raise DataError(f"{self.directory} has no {name}", hint="it is no complete model; train it again")
        return self.path(name), self.manifest.files[name]


def read_consistently(directory: Path, read: Callable[[Stored], T], *, verify: bool = True) -> T:
    """What `read` makes of the files of one model, also while somebody replaces that model by another."""
    failure: Exception = BusyError(f"{directory} is being rewritten all the time", hint="try again when that is done")
    for _ in range(30):
        before = _edition(directory)
        stored = open_directory(directory, verify=verify)
        try:
            result = read(stored)
            if _edition(directory) == before:
                return result
        except (
            Exception
        ) as error:  # half a file can look like anything; an error counts if nobody has written meanwhile
            failure = error
            if _edition(directory) == before and not stored.manifest.pending:
                break
        time.sleep(0.01)
    raise failure


def _edition(directory: Path) -> tuple[int, int] | None:
    """Differs whenever the manifest was replaced."""
    try:
        status = (directory / MANIFEST).stat()
        return status.st_ino, status.st_mtime_ns
    except OSError:
        return None


def open_directory(directory: Path, *, verify: bool = True) -> Stored:
    """The model directory that is there now."""
    if not directory.is_dir():
        raise MissingError(f"there is no model at {directory}", hint="a model is a directory that `elman train` makes")
    if not (directory / MANIFEST).exists():
        raise MissingError(f"{directory} holds no model: no {MANIFEST}", hint="give the directory `elman train` made")
    return Stored(directory, read_manifest(directory), verify)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a model directory."""
    path = directory / MANIFEST
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is corrupt: {error}", hint="copy the model again from where it came") from None
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise DataError(
            f"{directory} has format {version}, made by a newer elman; this one reads {FORMAT_VERSION}",
            hint="upgrade elman",
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{path} is no manifest of a model: {place} {first['msg'].lower()}") from None


def _check(path: Path, data: memoryview, expected: Entry) -> None:
    if len(data) != expected.size:
        raise DataError(f"{path} has {len(data)} bytes, its manifest says {expected.size}", hint=_DAMAGED)
    if digest([data]) != expected.sha256:
        raise DataError(f"{path} is corrupt: its SHA-256 is not the one in the manifest", hint=_DAMAGED)


def _unreadable(path: Path, error: OSError) -> MissingError:
    return MissingError(f"cannot read {path}: {(error.strerror or str(error)).lower()}")


def digest(buffers: Iterable[memoryview], stopped: Sequence[bool] = ()) -> str:
    digest = hashlib.sha256()
    for chunk in chunks(buffers):
        if stopped:
            break
        digest.update(chunk)
    return digest.hexdigest()


def chunks(buffers: Iterable[memoryview]) -> Iterator[memoryview]:
    for buffer in buffers:
        for start in range(0, len(buffer), CHUNK_BYTES):
            yield buffer[start : start + CHUNK_BYTES]
