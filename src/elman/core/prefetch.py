"""Reading ahead: items are made ready by a thread while earlier ones are worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(items: Iterable[T], *, depth: int = 2) -> Generator[T, None, None]:
    """The same items, made ready by a thread while the caller works on earlier ones; what it raises is raised here.

    Tokenising holds Python's lock and numpy lets go of it, so reading and scoring overlap. Close it to end early.
    """
    ready: queue.Queue[tuple[list[T], BaseException | None]] = queue.Queue(depth)  # one item, or none at the end
    is_closed = threading.Event()

    def work() -> None:
        source = iter(items)
        try:
            for item in source:
                ready.put(([item], None))
                if is_closed.is_set():
                    break
            ready.put(([], None))
        except BaseException as error:
            ready.put(([], error))
        finally:
            if hasattr(source, "close"):
                source.close()

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if not item:
                return
            yield item[0]
    finally:
        is_closed.set()
        _drain(ready, thread)


def _drain(ready: queue.Queue[Any], thread: threading.Thread, *, seconds: float = 1.0) -> None:
    """Make room until the thread has ended; one stuck in a read that never returns is left behind (it is a daemon)."""
    for _ in range(int(seconds / 0.01)):
        while not ready.empty():
            ready.get_nowait()
        thread.join(0.01)
        if not thread.is_alive():
            return
