"""Work in forked processes: torch is imported once, and a child may be killed, hang or eat memory without harm."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elman.core.errors import ElmanError

NUM_LANES = 2  # children at work at a time: the machines that this is for have two processors
BROKEN = 99  # exit code of a child that raised what is no error for users


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (minus the signal), what it said, its peak memory."""

    code: int
    said: str
    max_rss: int


def forked(work: Callable[[], None], *, seconds: float, log: Path | None = None) -> Ended:
    """Do it in a child, which is killed after so many seconds; an error for users gives its exit code, and its text."""
    log = Path(os.devnull) if log is None else log
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _be_child(work, log)
    deadline = time.monotonic() + seconds
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            _, _, usage = os.wait4(child, 0)
            return Ended(-signal.SIGALRM, f"did not end within {seconds:.0f} s", usage.ru_maxrss << 10)
        time.sleep(0.002)
    said = log.read_text(errors="replace") if log.is_file() else ""
    return Ended(os.waitstatus_to_exitcode(status), said, usage.ru_maxrss << 10)


def _be_child(work: Callable[[], None], log: Path) -> None:
    code = BROKEN
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        work()
        code = 0
    except ElmanError as error:
        print(f"error: {error.what}", file=sys.stderr)
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def answer_of(work: Callable[[], Any], *, seconds: float, place: Path) -> Any:
    """What it gives, as JSON, computed in a child; an error if that fails."""

    def write() -> None:
        place.write_text(json.dumps(work()))

    log = place.with_suffix(".log")
    ended = forked(write, seconds=seconds, log=log)
    if ended.code:
        raise RuntimeError(f"{ended.code}: {ended.said[-800:]}")
    return json.loads(place.read_text())


def in_lanes(work: Callable[[int], Any], folder: Path) -> list[Any]:
    """What it gives for each lane, as JSON, computed side by side in a child each; an error if one fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    children = {}
    for lane in range(NUM_LANES):
        place = folder / f"lane-{lane}.json"
        child = os.fork()
        if not child:
            _be_child(functools.partial(_write_answer, work, lane, place), place.with_suffix(".log"))
        children[child] = place
    answers = []
    for child, place in children.items():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            raise RuntimeError(f"{code}: {place.with_suffix('.log').read_text(errors='replace')[-800:]}")
        answers.append(json.loads(place.read_text()))
    return answers


def _write_answer(work: Callable[[int], Any], lane: int, place: Path) -> None:
    place.write_text(json.dumps(work(lane)))
