"""Row 14: one line of a gigabyte, and ten million distinct words, through a pipe: done or refused, in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reliability.row import Allowance, Figure

LIMIT = 3 << 29  # 1.5 GiB
REFUSED_SECONDS = 60
WORDS = 10_000_000
LINE_BYTES = 1 << 30
PIECE = 1 << 20


def huge(allowance: Allowance) -> Figure:
    """Counted with --memory 1G; what cannot be done is refused within a minute."""
    results, is_good = [], True
    for name, chunks in {"1 GiB line": _long_line, "10^7 words": _many_words}.items():
        code, seconds, peak, said = _train(chunks(), allowance.folder / name.replace(" ", "-"))
        is_refused = code == 65 and seconds < REFUSED_SECONDS
        is_good &= peak < LIMIT and (code == 0 or is_refused)
        how = "done" if code == 0 else "refused" if is_refused else f"exit {code} {said[-80:]!r}"
        results.append(f"{name}: {how} in {seconds:.0f} s, {peak / (1 << 30):.2f} GiB")
    return Figure("; ".join(results), is_good)


def _long_line() -> Iterator[bytes]:
    piece = b"the cat sat on the mat and the dog on the log " * (PIECE // 46)
    for _ in range(LINE_BYTES // len(piece) + 1):
        yield piece


def _many_words() -> Iterator[bytes]:
    for first in range(0, WORDS, 10_000):
        lines = (" ".join(f"w{word}" for word in range(line, line + 10)) for line in range(first, first + 10_000, 10))
        yield ("\n".join(lines) + "\n").encode()


def _train(chunks: Iterator[bytes], out: Path) -> tuple[int, float, int, str]:
    """-> exit code, seconds, peak memory in bytes, what was said"""
    command = [sys.executable, "-m", "elman", "train", "lm", "-", "--model", "mkn", "--units", "space"]
    command += ["--memory", "1G", "--valid", "none", "--set", "model.order=2", "--set", "data.min_count=1"]
    command += ["--set", "data.max_words=2000000", "--out", str(out)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said: list[bytes] = []
    reading = threading.Thread(target=_collect, args=(process.stderr.read, said))  # type: ignore[union-attr]
    reading.start()
    assert process.stdin is not None
    try:
        for chunk in chunks:
            process.stdin.write(chunk)
        process.stdin.close()
    except BrokenPipeError:  # it has seen enough
        pass
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reading.join()
    seconds = time.monotonic() - began
    return process.returncode, seconds, usage.ru_maxrss << 10, b"".join(said).decode(errors="replace")


def _collect(read: Callable[[], bytes], said: list[bytes]) -> None:
    said.append(read())
