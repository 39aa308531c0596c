"""Room to count in: arrays in memory while they fit, in files beyond that, and chunks of work for two threads.

The files are memory-mapped. Their pages are given back after every chunk, so what stays resident is a few chunks of work,
whatever the size of the corpus. Access patterns are sequential or sorted, so the file system can keep up.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from elman.core.arrays import Array
from elman.core.errors import UsageError, WriteError

Item = TypeVar("Item")
Result = TypeVar("Result")

BYTES_PER_TOKEN = 100  # of counting order 5 in memory, measured on 18 M tokens; other orders in proportion
BYTES_PER_SLOT = 160  # of temporary arrays in one chunk of work, for each of its rows
MIN_MEMORY = 256 << 20  # the interpreter and numpy take a quarter of it


class Scratch:
    """Allocates arrays for counting within a limit of memory. Use it as a context manager: files go when it ends."""

    def __init__(self, memory_bytes: int | None = None, *, directory: Path | None = None, threads: int | None = None):
        check_memory(memory_bytes)
        self.memory_bytes = memory_bytes
        self.threads = threads or min(2, os.cpu_count() or 1)
        self.spills = False
        self.chunk_rows = 1 << 17  # so that what one chunk needs stays in the cache
        self._parent = directory
        self._folder: Path | None = None
        self._maps: list[np.memmap[Any, Any]] = []

    def plan(self, num_tokens: int, order: int) -> None:
        """Decide, once the size of the corpus is known, whether to count in memory or in files."""
        if self.memory_bytes is None:
            return
        self.spills = num_tokens * BYTES_PER_TOKEN * (order + 1) // 6 > self.memory_bytes - MIN_MEMORY // 2
        if self.spills:
            room = (self.memory_bytes - MIN_MEMORY // 2) // (BYTES_PER_SLOT * (self.threads + 1))
            self.chunk_rows = max(1 << 14, min(self.chunk_rows, room))

    def empty(self, rows: int, dtype: npt.DTypeLike) -> Array:
        """An array to fill. Rows that are never touched cost nothing, so upper bounds may be asked for."""
        if not self.spills or rows == 0:
            return np.empty(rows, dtype)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="elman-count-", dir=self._parent))
        path = self._folder / f"{len(self._maps)}"
        try:
            array = np.memmap(path, dtype, mode="w+", shape=(rows,))
        except OSError as error:
            raise WriteError(
                f"cannot make room to count in {self._folder}: {error.strerror}",
                hint="free some disk, or set TMPDIR to a place with more, or give more --memory",
            ) from None
        self._maps.append(array)
        return array

    def forget(self) -> None:
        """Give the resident pages of all files back; their contents stay."""
        for array in self._maps:
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """function(item) for each item, in order, a few ahead in threads; numpy lets go of the interpreter meanwhile."""
        if self.threads == 1:
            for item in items:
                yield function(item)
                self.forget()
            return
        with ThreadPoolExecutor(self.threads) as pool:
            ahead: deque[Future[Result]] = deque()
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > self.threads:
                    yield ahead.popleft().result()
                    self.forget()
            while ahead:
                yield ahead.popleft().result()
                self.forget()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._maps.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def check_memory(memory_bytes: int | None) -> None:
    """Refuse a limit in which nothing can be counted."""
    if memory_bytes is not None and memory_bytes < MIN_MEMORY:
        raise UsageError(
            f"--memory {memory_bytes >> 20}M is too little to count in", hint=f"give at least {MIN_MEMORY >> 20}M"
        )
