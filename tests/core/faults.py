"""A shim under the one writer: the Nth file operation fails, or the machine stops there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Crash(BaseException):
    """The machine stops here."""


OPERATIONS = ["open", "write", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "truncate", "ftruncate"]


@contextlib.contextmanager
def failing(at: int, how: Callable[[], BaseException], *, for_good: bool) -> Iterator[list[int]]:
    """Make the `at`-th file operation fail (for good: and every one after it); a write is torn in the middle.

    Only operations of this thread: what others do in this process is none of its business.
    """
    count, thread = [0], threading.get_ident()
    originals = {name: getattr(os, name) for name in OPERATIONS}

    def wrap(name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != thread:
                return originals[name](*args, **options)
            count[0] += 1
            if count[0] == at or (for_good and count[0] > at):
                if name == "write":
                    originals["write"](args[0], args[1][: len(args[1]) // 2])
                raise how()
            return originals[name](*args, **options)

        return wrapped

    try:
        for name in OPERATIONS:
            setattr(os, name, wrap(name))
        yield count
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
