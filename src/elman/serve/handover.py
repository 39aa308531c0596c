"""From a model's thread to the event loop: one value, or many in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.serve.batching import Reading, Worker

STEPS_AHEAD = 1
PATIENCE = 0.25  # seconds


class Promise:
    """A value that another thread will give."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def keep(self, value: Any) -> None:
        """Give the value; from any thread."""
        self._post(lambda: self.future.set_result(value))

    def fail(self, error: Exception) -> None:
        """Say why there is none; from any thread."""
        self._post(lambda: self.future.set_exception(error))

    def _post(self, settle: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(lambda: None if self.future.done() else settle())


class Mailbox:
    """Things that another thread puts in, in order; one wake-up for all that came together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._arrived = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether more is in it than should be: whoever puts in should wait."""
        return len(self._items) > self._limit

    def put(self, item: Any) -> None:
        """Called by one other thread."""
        self._items.append(item)
        if len(self._items) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._arrived.set)

    async def take(self) -> list[Any]:
        """All that is there, as soon as there is something."""
        while not self._items:
            self._arrived.clear()
            if not self._items:
                await self._arrived.wait()
        found = []
        while self._items:
            found.append(self._items.popleft())
        return found


class Pacer:
    """Lets a model's thread be at most one step ahead of the event loop that sends its tokens.

    Otherwise the two fight for the interpreter: each packet that the loop sends lets the thread go on, for a whole
    switch interval, and with 200 streams a health check took a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps = threading.Semaphore(STEPS_AHEAD)

    def __call__(self) -> None:
        """Wait until the loop has seen to an earlier step, but not for long."""
        if self._steps.acquire(timeout=PATIENCE):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                # behind the tasks that this step's tokens wake up
                self._loop.call_soon_threadsafe(self._release_soon)

    def _release_soon(self) -> None:
        self._loop.call_soon(self._release)

    def _release(self) -> None:
        self._steps.release()


async def read_tokens(worker: Worker, ids: Array, *, state: Any = None, restarts: bool = False) -> tuple[Any, Array]:
    """The state after some tokens and the log-probability of each."""
    promise = Promise()
    reading = Reading(
        np.asarray(ids, dtype=np.int64),
        then=lambda state, log_probs: promise.keep((state, log_probs)),
        fail=promise.fail,
        state=state,
        restarts=restarts,
    )
    worker.read(reading)
    try:
        found: tuple[Any, Array] = await promise.future
        return found
    finally:
        reading.is_cancelled = True


async def call_model(worker: Worker, function: Callable[[], Any]) -> Any:
    """What a function gives that uses the model, called between two steps."""
    promise = Promise()

    def call() -> None:
        try:
            promise.keep(function())
        except Exception as error:
            promise.fail(error)

    worker.call(call)
    return await promise.future
