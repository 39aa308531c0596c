"""Writing files: tensors without a second copy in memory, and atomic changes of a model directory.

A change is a redo log, so that a kill at any moment leaves either the old model or the new one:

1. every new file is written next to the old one as `NAME.new`, and synced;
2. `manifest.json` is replaced (one rename) by one that lists every file's SHA-256 and size, and which are `pending`;
3. the pending files are renamed, files that only the old model had are removed;
4. the manifest is replaced by one without `pending`.

Step 2 is the commit point. A reader uses `NAME.new` for a pending NAME as long as it exists; the next writer renames
pending files and removes all other `NAME.new`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import numpy as np

from elman import __version__
from elman.core.arrays import Array
from elman.core.errors import BusyError, DataError, FullDiskError, MissingError, WriteError
from elman.core.stored import FORMAT_VERSION, MANIFEST, NEW, Entry, Manifest, chunks, digest, holds_model, read_manifest
from elman.core.tensors import tensor_buffers

Content: TypeAlias = bytes | Mapping[str, Array]  # the bytes of a file, or the tensors of a .safetensors file

LOCK = ".lock"
RUN_FOLDER = "checkpoints"  # of a run that goes on
RUN = "run.json"  # in it: what was asked for


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> Entry:
    """Write a safetensors file without copying the arrays, sync it, and hash it in a second thread."""
    return _write_file(path, tensor_buffers(tensors))


def commit(
    directory: Path,
    contents: Mapping[str, Content],
    *,
    threads: int | None = None,
    seed: int | None = None,
    data_fingerprint: str | None = None,
) -> Manifest:
    """Make these the files of a model directory, all of them or, on any failure, none. The caller holds its lock."""
    with write_errors(directory):
        before = recover(directory)
        try:
            entries = {name: _write_content(directory / (name + NEW), content) for name, content in contents.items()}
            manifest = Manifest(
                files=entries,
                pending=tuple(entries),
                removed=tuple(sorted(set(before.files) - set(entries))) if before else (),
                versions=_versions(),
                threads=threads,
                seed=seed,
                data_fingerprint=data_fingerprint,
            )
            _sync_directory(directory)
            _write_manifest(directory, manifest)
        except BaseException:
            with contextlib.suppress(OSError):
                _sweep(directory)
            raise
    with contextlib.suppress(OSError, WriteError):  # the model is committed; the next writer cleans up the rest
        manifest = _finish(directory, manifest)
    return manifest


def recover(directory: Path) -> Manifest | None:
    """Finish a change that was cut off, and sweep what never became part of a model. The caller holds the lock."""
    with write_errors(directory):
        manifest = _readable_manifest(directory)
        if manifest is not None and (manifest.pending or manifest.removed):
            manifest = _finish(directory, manifest)
        _sweep(directory)
        return manifest


def _finish(directory: Path, manifest: Manifest) -> Manifest:
    for name in manifest.pending:
        with contextlib.suppress(FileNotFoundError):  # already renamed before the interruption
            os.replace(directory / (name + NEW), directory / name)  # noqa: PTH105
    for name in manifest.removed:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(directory / name)  # noqa: PTH108
    _sync_directory(directory)
    manifest = manifest.model_copy(update={"pending": (), "removed": ()})
    _write_manifest(directory, manifest)
    return manifest


def _sweep(directory: Path) -> None:
    """Remove every NAME.new that is not pending in the manifest on disk."""
    manifest = _readable_manifest(directory)
    pending = {name + NEW for name in manifest.pending} if manifest else set()
    run, fresh = directory / RUN_FOLDER, directory / (RUN_FOLDER + NEW)
    if not run.exists() and holds_model(fresh):  # written to its end, and stopped before it got its name
        os.rename(fresh, run)  # noqa: PTH104
    for path in directory.glob(f"*{NEW}"):
        if path.name not in pending and path.is_file():
            os.unlink(path)  # noqa: PTH108
        elif path.is_dir() and path.name.startswith(RUN_FOLDER + "."):  # of a run that was being written or removed
            shutil.rmtree(path)


def _readable_manifest(directory: Path) -> Manifest | None:
    """The manifest, or None if there is no readable one."""
    try:
        return read_manifest(directory)
    except (DataError, MissingError):
        return None


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    text = json.dumps(manifest.model_dump(exclude_defaults=True) | {"format_version": FORMAT_VERSION}, indent=2)
    temporary = directory / (MANIFEST + NEW)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108
    try:
        _write_file(temporary, [memoryview(text.encode() + b"\n")])
    except WriteError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    os.replace(temporary, directory / MANIFEST)  # noqa: PTH105
    _sync_directory(directory)


def _write_content(path: Path, content: Content) -> Entry:
    return _write_file(path, [memoryview(content)]) if isinstance(content, bytes) else write_tensors(path, content)


def _write_file(path: Path, buffers: Sequence[memoryview]) -> Entry:
    """Write and sync a file that is not there yet, while another thread hashes the same memory."""
    with write_errors(path), ThreadPoolExecutor(max_workers=1) as pool:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        stopped: list[bool] = []
        try:
            hashed = pool.submit(digest, buffers, stopped)
            for buffer in buffers:
                for chunk in chunks([buffer]):
                    while len(chunk):
                        chunk = chunk[os.write(descriptor, chunk) :]
                    _release(buffer)
            os.fsync(descriptor)
        except BaseException:
            stopped.append(True)
            raise
        finally:
            os.close(descriptor)
        return Entry(sha256=hashed.result(), size=sum(len(buffer) for buffer in buffers))


def _release(buffer: memoryview) -> None:
    """Release the resident pages of a memory-mapped buffer that has been written; no effect on other buffers."""
    owner: object = buffer.obj
    while owner is not None:
        if isinstance(owner, np.memmap):
            if owner.mode != "c":  # copy-on-write pages exist only in memory
                owner._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        owner = owner.base if isinstance(owner, np.ndarray) else None


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync directories
            raise
    finally:
        os.close(descriptor)


def _versions() -> dict[str, str]:
    versions = {"elman": __version__, "numpy": np.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    if "torch" in sys.modules:
        versions["torch"] = str(sys.modules["torch"].__version__)
    return versions


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for a single file; it replaces `path` only if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{NEW}")
    with write_errors(path):
        try:
            yield temporary
            descriptor = os.open(temporary, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)  # noqa: PTH105
            _sync_directory(path.parent)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108


def write_bytes(path: Path, content: bytes) -> None:
    """Write a single file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """An OSError inside becomes a WriteError that says what to do."""
    try:
        yield
    except OSError as error:
        hints = {
            errno.ENOSPC: "free disk space and try again; existing files are unchanged",
            errno.EDQUOT: "free some of your disk quota and try again; existing files are unchanged",
            errno.EFBIG: "the file size limit is too low (ulimit -f); existing files are unchanged",
            errno.EACCES: "choose another directory with --out, or get write permission",
            errno.EROFS: "the file system is read-only; choose another directory with --out",
            errno.ENOENT: "its parent directory does not exist",
        }
        reason = (error.strerror or str(error)).lower()
        kind = FullDiskError if error.errno in (errno.ENOSPC, errno.EDQUOT) else WriteError
        raise kind(f"cannot write {path}: {reason}", hint=hints.get(error.errno or 0)) from None


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """An exclusive write lock on a directory, created if needed; a second writer gets a BusyError.

    The lock ends with the process, so a kill never leaves a directory locked.
    """
    created = _make_directory(directory)
    descriptor = _take_lock(directory)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(directory / LOCK)  # noqa: PTH108
        os.close(descriptor)
        with contextlib.suppress(OSError):  # directories that we created and that are still empty are removed
            for path in created:
                path.rmdir()


def is_locked(directory: Path) -> bool:
    """Whether a process is writing into a directory now."""
    try:
        with (directory / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or none that may be looked at
        pass
    return False


def _make_directory(directory: Path) -> list[Path]:
    """Create the directory and its parents. -> those created, deepest first"""
    missing = []
    path = directory
    while not path.exists():
        missing.append(path)
        path = path.parent
    with write_errors(directory):
        if not path.is_dir():
            raise WriteError(
                f"{path} is a file, not a directory", code="out-exists", hint="choose another directory with --out"
            )
        directory.mkdir(parents=True, exist_ok=True)
    return missing


def _take_lock(directory: Path) -> int:
    path = directory / LOCK
    with write_errors(directory):
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The owner removes the file when done: a lock on a file that was removed or replaced locks nothing.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # noqa: PTH116
                        return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise _busy(directory) from None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _busy(directory: Path) -> BusyError:
    return BusyError(f"another process is writing into {directory}", hint="wait until it is done, or use another --out")


def refuse_busy(directory: Path) -> None:
    """An error if somebody else writes into a directory now. Nothing is written to find out."""
    with contextlib.suppress(OSError), (directory / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(directory) from None


def holds_run(directory: Path) -> bool:
    """Whether there is a run of ours here that has not finished."""
    folder = directory / RUN_FOLDER
    return (folder / RUN).is_file() or holds_model(folder) or holds_model(directory / (RUN_FOLDER + NEW))


def check_vacant(directory: Path, *, overwrite: bool) -> None:
    """Refuse a directory that is not empty, unless it holds a model or run that may be overwritten."""
    if not directory.is_dir():
        return
    try:
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise WriteError(f"cannot write {directory}: {(error.strerror or str(error)).lower()}") from None
    if holds_model(directory):
        if not overwrite:
            raise WriteError(f"{directory} holds a model already", code="out-exists", hint="--overwrite replaces it")
        return
    if holds_run(directory):
        if not overwrite:
            raise WriteError(
                f"{directory} holds an unfinished run",
                code="out-exists",
                hint=f"elman resume {directory} continues it, --overwrite starts again",
            )
        return
    # A writer killed before its first manifest leaves its lock file and some NAME.new.
    if any(name != LOCK and not (LOCK in names and name.endswith(NEW)) for name in names):
        raise WriteError(
            f"{directory} is not empty and holds no model", code="out-exists", hint="choose a new directory with --out"
        )
