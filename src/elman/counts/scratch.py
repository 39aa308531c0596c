"""Arrays for counting, in memory or in temporary files, and a thread pool for chunks of work.

The files are memory-mapped and have no name, so they are gone with the process, however it ends. Their pages are released after
every chunk, so that only a few chunks stay resident, whatever the size of the corpus. Access is sequential or sorted, so the
file system can keep up.
"""

from __future__ import annotations

import mmap
import os
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
from elman.core.workers import num_workers

Item = TypeVar("Item")
Result = TypeVar("Result")

BYTES_PER_TOKEN = 100  # memory to count order 5, measured on 18 M tokens; other orders in proportion
BYTES_PER_SLOT = 160  # temporary memory per row of a chunk of work
MIN_MEMORY = 256 << 20  # smallest limit in bytes; the interpreter and numpy take a quarter of it


class Scratch:
    """Allocates arrays for counting within a memory limit. A context manager: its files are given up at the end."""

    def __init__(self, memory_bytes: int | None = None, *, directory: Path | None = None, threads: int | None = None):
        check_memory(memory_bytes)
        self.memory_bytes = memory_bytes
        self.threads = threads or num_workers()
        self.spills = False
        self.chunk_rows = 1 << 17  # rows per chunk of work; its arrays fit into the cache
        self._directory = directory
        self._maps: list[np.memmap[Any, Any]] = []

    def plan(self, num_tokens: int, order: int) -> None:
        """Decide, once the size of the corpus is known, whether to count in memory or in files."""
        if self.memory_bytes is None:
            return
        self.spills = num_tokens * BYTES_PER_TOKEN * (order + 1) // 6 > self.memory_bytes - MIN_MEMORY // 2
        if self.spills:
            affordable_rows = (self.memory_bytes - MIN_MEMORY // 2) // (BYTES_PER_SLOT * (self.threads + 1))
            self.chunk_rows = max(1 << 14, min(self.chunk_rows, affordable_rows))

    def empty(self, rows: int, dtype: npt.DTypeLike) -> Array:
        """An uninitialised array. Untouched rows cost no memory, so `rows` may be an upper bound."""
        if not self.spills or rows == 0:
            return np.empty(rows, dtype)
        try:
            with tempfile.TemporaryFile(dir=self._directory) as file:
                # its space is reserved: on a full disk a page that cannot be written back would end the process
                os.posix_fallocate(file.fileno(), 0, rows * np.dtype(dtype).itemsize)
                array = np.memmap(file, dtype, mode="r+", shape=(rows,))
        except OSError as error:
            raise WriteError(
                f"cannot create temporary files in {self._directory or tempfile.gettempdir()}: {error.strerror}",
                hint="free disk space, set TMPDIR to another disk, or raise --memory",
            ) from None
        self._maps.append(array)
        return array

    def release_pages(self) -> None:
        """Release the resident pages of all files; their contents stay on disk."""
        for array in self._maps:
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """function(item) for each item, in order, computed a few ahead in threads: numpy releases the GIL."""
        if self.threads == 1:
            for item in items:
                yield function(item)
                self.release_pages()
            return
        with ThreadPoolExecutor(self.threads) as pool:
            ahead: deque[Future[Result]] = deque()
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > self.threads:
                    yield ahead.popleft().result()
                    self.release_pages()
            while ahead:
                yield ahead.popleft().result()
                self.release_pages()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._maps.clear()


def check_memory(memory_bytes: int | None) -> None:
    """Refuse a memory limit that is too low for counting."""
    if memory_bytes is not None and memory_bytes < MIN_MEMORY:
        given = f"{memory_bytes >> 20}M" if memory_bytes >= 1 << 20 else f"{memory_bytes:,} bytes"
        raise UsageError(
            f"--memory {given} is too little for counting",
            code="too-little-memory",
            hint=f"give at least {MIN_MEMORY >> 20}M",
        )
