"""Run the application: a socket of its own, uvicorn on it, and a quiet end."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

import uvicorn

from elman.core.errors import ElmanError
from elman.serve.app import make_app
from elman.serve.context import ServeOptions
from elman.serve.hosts import check_options
from elman.serve.protocol import GuardedProtocol
from elman.serve.served import Models

DRAIN_SECONDS = 9  # in which what is under way at the end may finish; with what follows the end is there within 10
BACKLOG = 2048
SWITCH_SECONDS = 0.001  # that a thread may keep the interpreter while the event loop waits for it


def listen(options: ServeOptions) -> tuple[socket.socket, ServeOptions]:
    """A socket on the address that was asked for, and the options with the port that it has (0 is any that is free)."""
    check_options(options)
    host = options.host.strip("[]")
    try:
        family = socket.getaddrinfo(host, options.port, type=socket.SOCK_STREAM)[0][0]
        # Named as TCP, since only then asyncio sends small packets at once: answers came 40 ms late, with the client's ACK
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, options.port))
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
    except (OSError, OverflowError) as error:
        what = f"cannot listen on {options.host} port {options.port}: {getattr(error, 'strerror', None) or error}"
        raise ElmanError(
            what.lower(), code="cannot-listen", hint="another --port, or --port 0 for any that is free"
        ) from None
    return found, replace(options, port=found.getsockname()[1])


class Server(uvicorn.Server):
    """uvicorn, which says when it is ready and stops admitting at once when it is told to end."""

    def __init__(self, models: Models, options: ServeOptions, *, on_ready: Callable[[], None] = lambda: None) -> None:
        self.guard = make_app(models, options)
        self._on_ready = on_ready
        logging.getLogger("uvicorn").disabled = True  # the guard writes the log
        logging.getLogger("uvicorn.error").disabled = True
        super().__init__(
            uvicorn.Config(
                self.guard,
                http=GuardedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End by a signal is how a server ends: it is not passed on."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what is under way; told a second time, end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Admit nothing new, then wait for what is under way."""
        self.guard.context.admission.is_closing = True
        await super().shutdown(sockets)


def serve(models: Models, options: ServeOptions, *, on_ready: Callable[[str], None] = lambda address: None) -> None:
    """Serve until a signal ends it. on_ready: is told the address."""
    found, options = listen(options)
    sys.setswitchinterval(SWITCH_SECONDS)
    host = f"[{options.host.strip('[]')}]" if ":" in options.host else options.host
    Server(models, options, on_ready=lambda: on_ready(f"http://{host}:{options.port}")).run(sockets=[found])
