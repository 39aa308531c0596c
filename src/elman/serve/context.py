"""What all routes share: the models, the sessions, and how much is under way at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from elman.core.errors import ElmanError
from elman.serve.completions import Completion, as_api_error
from elman.serve.errors import ApiError
from elman.serve.metrics import Metrics
from elman.serve.served import Models
from elman.serve.sessions import Sessions

T = TypeVar("T")


@dataclass(frozen=True)
class ServeOptions:
    """How a server is run."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()  # besides those of the address it listens on
    max_streams: int = 64  # rows of a model's batch
    max_waiting: int = 32  # requests beyond as many; more are refused
    max_sessions: int = 256
    logs_requests: bool = True
    logs_prompts: bool = False


class Admission:
    """So many requests at once; one more is told to come again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.num_admitted = 0
        self.is_closing = False

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """A place for one request."""
        self.check()
        self.num_admitted += 1
        try:
            yield
        finally:
            self.num_admitted -= 1

    def check(self) -> None:
        """Refuse a request for which there is no place."""
        if self.is_closing:
            raise ApiError(503, "the server is shutting down", headers={"retry-after": "5"})
        if self.num_admitted >= self._limit:
            raise ApiError(
                429,
                f"{self._limit} requests are under way, which is the most",
                code="overloaded",
                headers={"retry-after": "1"},
            )


@dataclass(frozen=True)
class Context:
    """What the routes work with."""

    models: Models
    options: ServeOptions
    metrics: Metrics
    sessions: Sessions
    admission: Admission

    @classmethod
    def make(cls, models: Models, options: ServeOptions) -> Context:
        """A fresh one."""
        sessions, admission = Sessions(options.max_sessions), Admission(options.max_streams + options.max_waiting)
        return cls(models, options, Metrics(models, sessions, admission), sessions, admission)

    def count(self, completion: Completion) -> None:
        """Count the tokens of a completion that is over."""
        usage = completion.usage()
        for kind, key in (("read", "prompt_tokens"), ("drawn", "completion_tokens")):
            self.metrics.tokens.labels(completion.served.id, kind).inc(usage[key])

    async def in_thread(self, function: Callable[..., T], *arguments: Any, is_slow: bool = False) -> T:
        """What is too slow for the event loop; errors that a client can mend are his. is_slow: it may take seconds."""
        threads = self.models.slow_threads if is_slow else self.models.threads
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        except ElmanError as error:
            raise as_api_error(error) from None

    async def answer(self, function: Callable[..., Any], *arguments: Any, is_slow: bool = False) -> Response:
        """What a function gives, as JSON that is written in a thread too: it may be long."""
        return await self.in_thread(lambda: JSONResponse(function(*arguments)), is_slow=is_slow)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work; it is cancelled when the client goes away."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client went away")
        return task.result()
    except ElmanError as error:
        raise as_api_error(error) from None
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
