"""Large files that were verified once are known again by device, inode, size and times: a model of a gigabyte opens at once.

Whatever is written into a file changes its times, and only its owner could set them back. Files that were changed moments ago are
not remembered: a second change could fall into the same tick of the clock. One small file for each, in the user's cache.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

LARGE_BYTES = 16 << 20  # hashed in about a hundredth of a second; smaller files are hashed each time
SETTLED_NS = 2_000_000_000  # since the last change: longer than a tick of any file system
MAX_REMEMBERED = 1_000


def is_known(status: os.stat_result, sha256: str) -> bool:
    """Whether this very file, unchanged since, had this checksum."""
    if status.st_size < LARGE_BYTES:
        return False
    try:
        return _place(status).read_text() == _describe(status, sha256)
    except (OSError, ValueError):
        return False


def remember(status: os.stat_result, sha256: str) -> None:
    """This file had this checksum, read when it had this status. Where nothing can be written, nothing is remembered."""
    if status.st_size < LARGE_BYTES or time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < SETTLED_NS:
        return
    with contextlib.suppress(OSError):
        folder = _place(status).parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remembered = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for oldest in remembered[: max(0, len(remembered) - MAX_REMEMBERED)]:
            oldest.unlink()
        temporary = folder / f"{os.getpid()}.new"
        temporary.write_text(_describe(status, sha256))
        temporary.replace(_place(status))


def user_cache() -> Path:
    """Where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elman"


def _place(status: os.stat_result) -> Path:
    return user_cache() / "verified" / f"{status.st_dev:x}-{status.st_ino:x}"


def _describe(status: os.stat_result, sha256: str) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {sha256}\n"
