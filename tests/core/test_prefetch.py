"""Reading ahead in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from elman.core.errors import DataError
from elman.core.prefetch import prefetch


def counted(made: list[int], closed: threading.Event, stop_at: int = 1000) -> Iterator[int]:
    try:
        for i in range(stop_at):
            made.append(i)
            yield i
    finally:
        closed.set()


def prefetchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_prefetching_gives_every_item_in_order_even_none() -> None:
    assert list(prefetch([3, None, 1, 2])) == [3, None, 1, 2]
    assert list(prefetch([])) == []
    assert prefetchers() == []


def test_prefetching_reads_on_while_the_caller_is_at_work_but_not_without_bound() -> None:
    made: list[int] = []
    reached = threading.Event()

    def items() -> Iterator[int]:
        for i in range(1000):
            made.append(i)
            if i == 2:
                reached.set()
            yield i

    with closing(prefetch(items(), depth=2)) as ahead:
        assert next(ahead) == 0
        assert reached.wait(10), "item 2 is made while the caller still holds item 0"
        reached.wait(0.05)
        assert len(made) <= 4


def test_an_error_of_the_reader_reaches_the_caller_after_what_was_read() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise DataError("line 2 is broken")

    ahead = prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(DataError, match="line 2 is broken"):
        next(ahead)
    assert prefetchers() == []


def test_leaving_early_ends_the_thread_and_closes_the_source() -> None:
    made: list[int] = []
    closed = threading.Event()
    with closing(prefetch(counted(made, closed))) as ahead:
        assert next(ahead) == 0
    assert closed.is_set()
    assert prefetchers() == []
