"""Rows 8 and 9: a disk that is full, and file operations that fail."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elman.core import files
from elman.core.errors import WriteError
from elman.tasks.run_folder import RunFiles, write_run
from elman.training.checkpoint import newest_checkpoint, sweep_checkpoints, write_checkpoint
from elman.training.progress import Progress
from reliability.processes import forked
from reliability.row import Allowance, Count, Figure, NotMeasurableError
from reliability.trainings import Training, end_of, litter_of, prepare
from tests.core.faults import Crash, failing
from tests.core.test_files import NEW, OLD, contents_of, write

SIZES = 40
WIDE = {"model.hidden": 64, "model.head": "full", "train.bptt": 6}  # a checkpoint of some 100 pages
PAGE = 4096

# ------------------------------------------------------------------------------------------------------------ full disk


@contextlib.contextmanager
def _mounted(place: Path) -> Iterator[None]:
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True, check=False)
    if made.returncode:
        raise NotMeasurableError("mounting a tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def _resize(place: Path, num_bytes: int | None) -> None:
    size = "100%" if num_bytes is None else str(max(PAGE, num_bytes // PAGE * PAGE))
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)


def _used(place: Path) -> int:
    status = os.statvfs(place)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def full_disk(allowance: Allowance) -> Figure:
    """From no room at all to 1.2 times a checkpoint, in 40 steps: a run that goes on there says so, and loses nothing."""
    training = Training("lm", "text", "lstm", WIDE)
    data = prepare(allowance.folder / "data")
    training.start(data, allowance.folder / "whole")
    whole = end_of(allowance.folder / "whole")
    count, num_full = Count(), 0
    disk = allowance.folder / "disk"
    with _mounted(disk):
        for size in range(SIZES):
            failure, is_full = _on_small_disk(training, data, disk, 1.2 * size / (SIZES - 1), whole)
            num_full += is_full
            count.add(failure)
    return count.figure(f", {num_full} of them too small: exit 74, one line, nothing lost", least=SIZES)


def _on_small_disk(
    training: Training, data: Path, disk: Path, share: float, whole: dict[str, Any]
) -> tuple[str | None, bool]:
    """What is wrong after a run met a disk with room for a share of a checkpoint; and whether that was too small."""
    out = disk / "model"
    log = disk.parent / "small.log"

    def stop(progress: Progress) -> None:
        if progress.step == 10:
            os.kill(os.getpid(), signal.SIGKILL)

    _resize(disk, None)
    subprocess.run(["rm", "-rf", str(out)], check=True)
    forked(lambda: training.start(data, out, on_progress=stop), seconds=60, log=log)
    before = newest_checkpoint(out)
    if before is None or before.path is None:
        return f"{share:.2f}: the run left no checkpoint", False
    sweep_checkpoints(out)
    checkpoint = sum(path.stat().st_size for path in before.path.iterdir())
    _resize(disk, _used(disk) + round(share * checkpoint))
    ended = forked(lambda: _command("resume", str(out)), seconds=60, log=log)
    _, _, said = ended.said.partition("error: ")
    is_full = ended.code != 0
    if is_full and (ended.code not in (73, 74) or len(said.strip().splitlines()) > 2 or "Traceback" in ended.said):
        return f"{share:.2f}: exit {ended.code}: {ended.said[-300:]}", True
    after = newest_checkpoint(out) if is_full else None
    if is_full and (after is None or after.state["step"] < before.state["step"]):
        return f"{share:.2f}: the checkpoint of step {before.state['step']} is gone", True
    _resize(disk, None)
    ended = forked(lambda: _command("resume", str(out)), seconds=60, log=log)
    if ended.code:
        return f"{share:.2f}: with room again, going on ended with {ended.code}: {ended.said[-300:]}", is_full
    if end_of(out)["saved"] != whole["saved"]:
        return f"{share:.2f}: other weights", is_full
    if litter := litter_of(out):
        return f"{share:.2f}: {', '.join(litter)} is left", is_full
    return None, is_full


def _command(*arguments: str) -> None:
    """The command line, in this process; its exit code is that of the process."""
    from elman.cli.app import run

    code = run(arguments)
    if code:
        os._exit(code)


# ------------------------------------------------------------------------------------------------------------ Nth fault


class _Change(NamedTuple):
    """From an old state of a directory to a new one, and what is seen of it."""

    change: Callable[[Path], object]
    look: Callable[[Path], Any]
    old: Callable[[Path], object]


def _look_run(directory: Path) -> Any:
    files.recover(directory)  # as whoever goes on with it does first
    return RunFiles(directory / files.RUN_FOLDER).asked()


def _look_checkpoint(directory: Path) -> Any:
    found = newest_checkpoint(directory)
    return None if found is None else found.state["value"]


def _look_file(directory: Path) -> Any:
    return (directory / "one.txt").read_bytes()


def _save_checkpoint(directory: Path, step: int) -> None:
    write_checkpoint(directory, step, {"value": step}, {"a": np.full(5_000, step)})


CHANGES = {
    "model": _Change(
        lambda directory: files.commit(directory, NEW), contents_of, lambda directory: write(directory, OLD)
    ),
    "checkpoint": _Change(
        lambda directory: _save_checkpoint(directory, 2),
        _look_checkpoint,
        lambda directory: _save_checkpoint(directory, 1),
    ),
    "run": _Change(
        lambda directory: write_run(directory, {"run.json": b'{"a": 2}'}),
        _look_run,
        lambda directory: write_run(directory, {"run.json": b'{"a": 1}'}),
    ),
    "file": _Change(
        lambda directory: files.write_bytes(directory / "one.txt", b"new" * 9_000),
        _look_file,
        lambda directory: files.write_bytes(directory / "one.txt", b"old" * 9_000),
    ),
}
WAYS: dict[str, tuple[Callable[[], BaseException], bool]] = {
    "crash": (Crash, True),
    "I/O error": (lambda: OSError(errno.EIO, "Input/output error"), False),
    "I/O errors from then on": (lambda: OSError(errno.EIO, "Input/output error"), True),
    "full disk from then on": (lambda: OSError(errno.ENOSPC, "No space left on device"), True),
    "Ctrl-C": (KeyboardInterrupt, False),
}


def nth_fault(allowance: Allowance) -> Figure:
    """Every file operation of every kind of change fails in every way: the old state is there or the new one."""
    count = Count()
    for name, change in CHANGES.items():
        whole = allowance.folder / f"{name}-whole"
        whole.mkdir()
        change.old(whole)
        states = [json.dumps(change.look(whole), default=str)]
        with failing(0, Crash, for_good=False) as counted:
            change.change(whole)
        states.append(json.dumps(change.look(whole), default=str))
        for way, (how, for_good) in WAYS.items():
            for at in range(1, counted[0] + 1):
                directory = allowance.folder / f"{name}-{way}-{at}".replace(" ", "-").replace("/", "")
                directory.mkdir()
                count.add(_fails_at(change, directory, at, how, for_good, states, f"{name}, {way} at {at}"))
    return count.figure(" faults: old or new", least=200)


def _fails_at(
    change: _Change,
    directory: Path,
    at: int,
    how: Callable[[], BaseException],
    for_good: bool,
    states: list[str],
    place: str,
) -> str | None:
    change.old(directory)
    try:
        with failing(at, how, for_good=for_good):
            change.change(directory)
    except (Crash, KeyboardInterrupt, WriteError):
        pass
    except Exception as error:
        return f"{place}: {type(error).__name__}: {error}"
    try:
        found = json.dumps(change.look(directory), default=str)
    except Exception as error:
        return f"{place}: cannot be read: {type(error).__name__}: {error}"
    if found not in states:
        return f"{place}: {found[:80]} is neither old nor new"
    change.change(directory)  # the next writer gets on with it
    if json.dumps(change.look(directory), default=str) != states[1]:
        return f"{place}: the next writer failed"
    return None
