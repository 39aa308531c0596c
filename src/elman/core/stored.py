"""Reading a model directory: every file is checked against the manifest, even while another process replaces the model."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from pydantic import Field, ValidationError

from elman.core import verified
from elman.core.arrays import Array
from elman.core.errors import BusyError, DataError, MissingError
from elman.core.settings import Config
from elman.core.tensors import parse_tensors

T = TypeVar("T")

FORMAT_VERSION = 1  # format of model directories; a higher one is refused
MANIFEST = "manifest.json"
NEW = ".new"  # suffix of a file that has not been renamed to its final name yet

CHUNK_BYTES = 8 << 20  # bytes hashed and written at once
MAX_CHANGED_BYTES = 64 << 20  # of a file that may be another than the manifest says, since nothing is verified
MAX_MANIFEST_BYTES = 16 << 20  # of no model: ten thousand files have 2 MB

_DAMAGED = "the file is damaged or was changed; copy the model again from its source, or train it again"


class Entry(Config):
    """The checksum and size of a file."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


# No separators and no leading dot: a manifest cannot point outside its directory, nor at the lock.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]


class Manifest(Config):
    """The files of a model directory with their checksums, and the environment they were made in."""

    format_version: int = FORMAT_VERSION
    files: dict[Name, Entry]
    pending: tuple[Name, ...] = ()  # files still called NAME.new
    removed: tuple[Name, ...] = ()  # files of the previous model, still to be removed
    versions: dict[str, str] = Field(default_factory=dict)
    threads: int | None = None
    seed: int | None = None
    data_fingerprint: str | None = None


def read_tensors(path: Path, *, expected: Entry | None = None) -> dict[str, Array]:
    """The tensors of a safetensors file, memory-mapped and read-only. `expected`: its size and checksum, verified."""
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise DataError(f"{path} is empty", code="damaged-model", hint=_DAMAGED)
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if expected is not None and not verified.is_known(status, expected.sha256):
                _check(path, view, expected)
                verified.remember(status, expected.sha256)
        return parse_tensors(path, view)
    except OSError as error:
        raise _unreadable(path, error) from None


def open_regular(path: Path) -> BinaryIO:
    """A file, open for reading; a pipe, a device or a folder in its place is refused, not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} is not a regular file", code="damaged-model", hint=_DAMAGED)
    return os.fdopen(descriptor, "rb")


def _read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a file that has no more than `limit`."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise DataError(
                f"{path} has {size} bytes, where {limit} are expected at most", code="damaged-model", hint=_DAMAGED
            )
        return file.read()


def holds_model(directory: Path) -> bool:
    """Whether this is a model directory, intact or not."""
    try:
        manifest = json.loads(_read_regular(directory / MANIFEST, MAX_MANIFEST_BYTES))
        return isinstance(manifest, dict) and "format_version" in manifest and "files" in manifest
    except (OSError, DataError, ValueError, RecursionError):
        return False


@dataclass(frozen=True)
class Stored:
    """A model directory, open for reading. Every file is checked against the manifest: size and SHA-256."""

    directory: Path
    manifest: Manifest
    verify: bool = True

    def path(self, name: str) -> Path:
        """The current path of a file, NAME.new while it is pending."""
        pending = self.directory / (name + NEW)
        return pending if name in self.manifest.pending and pending.exists() else self.directory / name

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        path, expected = self._find(name)
        limit = expected.size if self.verify else max(expected.size, MAX_CHANGED_BYTES)
        try:
            data = _read_regular(path, limit)
        except OSError as error:
            raise _unreadable(path, error) from None
        if self.verify:
            _check(path, memoryview(data), expected)
        return data

    def check(self, name: str) -> None:
        """Compare a file with the manifest, all of it, also what was verified before; in little memory."""
        path, expected = self._find(name)
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
        except OSError as error:
            raise _unreadable(path, error) from None
        _check(path, view, expected)

    def tensors(self, name: str) -> dict[str, Array]:
        """The tensors of a file, memory-mapped."""
        path, expected = self._find(name)
        return read_tensors(path, expected=expected if self.verify else None)

    def _find(self, name: str) -> tuple[Path, Entry]:
        if name not in self.manifest.files:
            raise DataError(
                f"{self.directory} has no {name}",
                code="damaged-model",
                hint="the model is incomplete; copy or train it again",
            )
        return self.path(name), self.manifest.files[name]


def read_consistently(directory: Path, read: Callable[[Stored], T], *, verify: bool = True) -> T:
    """The result of `read` on the files of one model, even while another process replaces that model."""
    failure: Exception = BusyError(
        f"{directory} keeps being rewritten", hint="try again when the other process has finished"
    )
    for _ in range(30):
        before = _edition(directory)
        stored = open_directory(directory, verify=verify)
        try:
            result = read(stored)
            if _edition(directory) == before:
                return result
        except Exception as error:  # of any kind: half a file can look like anything
            failure = error  # final unless the directory was changed meanwhile
            if _edition(directory) == before and not stored.manifest.pending:
                break
        time.sleep(0.01)
    raise failure


def _edition(directory: Path) -> tuple[int, int] | None:
    """A value that changes whenever the manifest is replaced."""
    try:
        status = (directory / MANIFEST).stat()
        return status.st_ino, status.st_mtime_ns
    except OSError:
        return None


def open_directory(directory: Path, *, verify: bool = True) -> Stored:
    """Open a model directory."""
    if not directory.is_dir():
        raise MissingError(
            f"there is no model at {directory}", code="no-model", hint="give a directory made by `elman train`"
        )
    if not (directory / MANIFEST).exists():
        raise MissingError(
            f"{directory} holds no model: {MANIFEST} is missing",
            code="no-model",
            hint="give a directory made by `elman train`",
        )
    return Stored(directory, read_manifest(directory), verify)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a model directory."""
    path = directory / MANIFEST
    try:
        raw = json.loads(_read_regular(path, MAX_MANIFEST_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is corrupt: {error}", code="damaged-model", hint="copy the model again from its source"
        ) from None
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise DataError(
            f"{directory} has format {version} of a newer elman; this version reads up to {FORMAT_VERSION}",
            code="other-version",
            hint="upgrade elman",
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{path} is not a valid manifest: {place} {first['msg'].lower()}", code="damaged-model"
        ) from None


def _check(path: Path, data: memoryview, expected: Entry) -> None:
    if len(data) != expected.size:
        raise DataError(
            f"{path} has {len(data)} bytes, the manifest says {expected.size}", code="damaged-model", hint=_DAMAGED
        )
    if digest([data]) != expected.sha256:
        raise DataError(
            f"{path} is corrupt: its SHA-256 does not match the manifest", code="damaged-model", hint=_DAMAGED
        )


def _unreadable(path: Path, error: OSError) -> MissingError:
    return MissingError(f"cannot read {path}: {(error.strerror or str(error)).lower()}")


def digest(buffers: Iterable[memoryview], stopped: Sequence[bool] = ()) -> str:
    """SHA-256 of buffers; gives up early once `stopped` is not empty."""
    digest = hashlib.sha256()
    for chunk in chunks(buffers):
        if stopped:
            break
        digest.update(chunk)
    return digest.hexdigest()


def chunks(buffers: Iterable[memoryview]) -> Iterator[memoryview]:
    """The same bytes in pieces of at most CHUNK_BYTES."""
    for buffer in buffers:
        for start in range(0, len(buffer), CHUNK_BYTES):
            yield buffer[start : start + CHUNK_BYTES]
