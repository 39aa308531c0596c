"""HTTP as uvicorn reads it, with what it lacks: deadlines for slow clients, a limit on headers and on connections.

A deadline of uvicorn's own begins anew with every byte, and no middleware can have one, since it runs after parsing.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RECEIVE_SECONDS = 10.0  # from the first byte of a request (or the connection) to its last
SEND_SECONDS = 15.0  # that a client may take to read, once so much is unread that no more is sent
SEND_BUFFER = 32 << 10  # bytes that the system keeps for a client that does not read
MAX_HEADER_BYTES = 64 << 10
MAX_CONNECTIONS = 1024


class GuardedProtocol(HttpToolsProtocol):
    """A connection that is closed when its client is slower than it may be."""

    waiting: ClassVar[OrderedDict[GuardedProtocol, None]] = (
        OrderedDict()
    )  # connections whose request is not complete, by age

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._receive_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._is_in_header = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The clock runs from here; where there are too many, who waits longest without a request leaves."""
        super().connection_made(transport)
        if (connection := transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        transport.set_write_buffer_limits(high=SEND_BUFFER)
        if len(self.connections) > MAX_CONNECTIONS:
            oldest = next(iter(GuardedProtocol.waiting), self)
            oldest._give_up()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """No clock runs any more."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self.transport.is_closing():
            return
        if self._receive_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_request()  # the next one on a connection that was kept
        if self._is_in_header:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES and not self._header_ends(data):
                message = f"the headers are larger than {MAX_HEADER_BYTES} bytes"
                self._refuse(b"431 Request Header Fields Too Large", message, "headers_too_large")
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._is_in_header = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is here."""
        super().on_message_complete()
        self._stop_receiving()
        self._header_bytes, self._is_in_header = 0, True

    def on_response_complete(self) -> None:
        """The answer is written; where the connection ends with it, the client has to read it in time."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._expect_reading()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        super().resume_writing()

    def _expect_request(self) -> None:
        self._receive_timer = self.loop.call_later(RECEIVE_SECONDS, self._give_up)
        GuardedProtocol.waiting[self] = None

    def _expect_reading(self) -> None:
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(SEND_SECONDS, self._give_up)

    def _stop_receiving(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None
        GuardedProtocol.waiting.pop(self, None)

    def _stop_timers(self) -> None:
        self._stop_receiving()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _give_up(self) -> None:
        self._stop_timers()
        self.transport.abort()  # also one that is closing, and waits for its last bytes to be read

    def _header_ends(self, data: bytes) -> bool:
        """Whether the header ends within the limit and the rest of these bytes is body."""
        before = self._header_bytes - len(data)
        return 0 <= data.find(b"\r\n\r\n") <= MAX_HEADER_BYTES - before

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in the envelope of all errors."""
        self._refuse(b"400 Bad Request", msg, "invalid_http")

    def _refuse(self, status: bytes, message: str, code: str) -> None:
        self._stop_timers()
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = json.dumps({"error": error}).encode()
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()
        self._expect_reading()
