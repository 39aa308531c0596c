"""Measuring on held-out rows for as long as there is time, and numbers as they are printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.tasks.base import ShouldStop

FIRST_ROWS, MOST_ROWS = 8, 1024  # rows of the first chunk, and of the largest: the clock is checked between chunks
CHUNK_SECONDS = 0.4  # time that a chunk should take
DIGITS = 4  # decimals of probabilities and weights in JSON


def rows_in_time(num_rows: int, should_stop: ShouldStop) -> Iterator[list[int]]:
    """The numbers of rows in random order, a chunk at a time, until all have come or there is no more time."""
    order = np.random.default_rng(0).permutation(num_rows).tolist()
    done, size = 0, FIRST_ROWS
    while done < num_rows and not should_stop():
        began = time.perf_counter()
        chunk = order[done : done + size]
        yield chunk
        done += len(chunk)
        fitting = int(size * CHUNK_SECONDS / max(time.perf_counter() - began, 1e-9))
        size = max(FIRST_ROWS, min(MOST_ROWS, 2 * size, fitting))


def part_notes(measured: int, total: int, what: str) -> list[str]:
    """A sentence where there was only time for a part of the rows."""
    return [f"there was time to measure {measured:,} of {total:,} held-out {what}"] if measured < total else []


def rounded(values: Array | list[Any] | float) -> Any:
    """Probabilities or weights as JSON has them."""
    if isinstance(values, np.ndarray):
        return rounded(values.tolist())
    return [rounded(value) for value in values] if isinstance(values, list) else round(values, DIGITS)
