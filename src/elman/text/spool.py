"""Numbers that may become too many for memory: kept in memory while they are few, in a file when they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from elman.core.arrays import Array
from elman.core.errors import WriteError

MAX_MEMORY_BYTES = 200 << 20
CHUNK_ITEMS = 1 << 20


@contextmanager
def writing_to(directory: Path | None) -> Iterator[None]:
    """Says what a failure to write means."""
    try:
        yield
    except OSError as error:
        where = directory or tempfile.gettempdir()
        hint = "a large text needs space there, as much as itself and half as much again"
        raise WriteError(f"cannot write to {where}: {error.strerror}", hint=hint) from None


class Spool:
    """An array that grows at its end. The file has no name, so it is gone with the process, however that ends."""

    def __init__(self, dtype: npt.DTypeLike, directory: Path | None) -> None:
        self._dtype = np.dtype(dtype)
        self._directory = directory
        self._parts: list[Array] = []
        self._file: IO[bytes] | None = None
        self._num_items = 0

    def __len__(self) -> int:
        return self._num_items

    def append(self, items: Array) -> None:
        """Put items behind those that are there."""
        self._parts.append(items.astype(self._dtype, copy=False))
        self._num_items += len(items)
        if self._file is not None or self._num_items * self._dtype.itemsize > MAX_MEMORY_BYTES:
            self._write()

    def _write(self) -> None:
        with writing_to(self._directory):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115  (see `close`)
            for part in self._parts:
                self._file.write(part.data)
            self._file.flush()
        self._parts = []

    def parts(self) -> Iterator[Array]:
        """Everything, in pieces."""
        if self._file is None:
            yield from self._parts
            return
        for start in range(0, self._num_items, CHUNK_ITEMS):
            yield self._read(self._file, start)

    def _read(self, file: IO[bytes], start: int) -> Array:
        file.seek(start * self._dtype.itemsize)
        return np.frombuffer(file.read(CHUNK_ITEMS * self._dtype.itemsize), dtype=self._dtype)

    def finish(self, table: Array | None = None) -> Array:
        """Everything as one array, in memory or mapped; each item replaced by table[item] if there is a table."""
        dtype = self._dtype if table is None else table.dtype
        if self._file is None:
            whole = np.empty(self._num_items, dtype=dtype)
            start = 0
            while self._parts:  # given back as we go
                part = self._parts.pop(0)
                whole[start : start + len(part)] = part if table is None else table.take(part)
                start += len(part)
            return whole
        if table is not None:
            self._replace(table)
        mapped = np.memmap(self._file, dtype=dtype, mode="r", shape=(self._num_items,))
        self.close()  # the map stays
        return mapped

    def _replace(self, table: Array) -> None:
        """Replace the items in the file; the new ones are no wider, so none is written over before it is read."""
        assert self._file is not None and table.dtype.itemsize <= self._dtype.itemsize
        for start in range(0, self._num_items, CHUNK_ITEMS):
            items = table.take(self._read(self._file, start))
            self._file.seek(start * table.dtype.itemsize)
            self._file.write(items.data)
        self._file.truncate(self._num_items * table.dtype.itemsize)
        self._file.flush()

    def close(self) -> None:
        """Give up the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
