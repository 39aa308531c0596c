"""Slow clients, large headers and too many connections, on the wire."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elman.serve import protocol
from tests.serve.running import Running, running

BODY = b'{"text": "the cat"}'


@pytest.fixture
def hasty(model: Path, stream_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that waits for a tenth of the time."""
    monkeypatch.setattr(protocol, "RECEIVE_SECONDS", 1.0)
    monkeypatch.setattr(protocol, "SEND_SECONDS", 1.0)
    with running([model, stream_model]) as found:
        yield found


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def head(server: Running, *more: str, path: str = "/v1/score") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes, after whatever it still says."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


def test_who_says_nothing_or_little_is_closed(hasty: Running) -> None:
    """A deadline that begins anew with every byte would never come."""
    idle, header, body = connect(hasty), connect(hasty), connect(hasty)
    header.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    body.sendall(head(hasty, "Content-Length: 100"))
    started = time.monotonic()
    open_ones = {header, body}
    while open_ones and time.monotonic() - started < 20:
        time.sleep(0.2)
        for one in [*open_ones]:
            try:
                one.sendall(b"x")
                one.settimeout(0.01)
                if one.recv(1) == b"":
                    open_ones.discard(one)
            except TimeoutError:
                pass
            except OSError:
                open_ones.discard(one)
    assert not open_ones
    assert is_closed(idle)
    for one in (idle, header, body):
        one.close()
    assert hasty.get("/healthz").status_code == 200


def test_who_does_not_read_is_closed_and_his_stream_ends(hasty: Running) -> None:
    wish = {"model": "stream", "prompt": "the", "max_tokens": 4096, "logprobs": 20, "n": 16, "stream": True}
    request = json.dumps(wish).encode()
    worker = hasty.context.models["stream"].worker
    assert worker is not None
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(head(hasty, f"Content-Length: {len(request)}", path="/v1/completions") + request)
        deadline = time.monotonic() + 60
        while worker.num_active == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        while hasty.context.admission.num_admitted and time.monotonic() < deadline:
            time.sleep(0.05)
        assert hasty.context.admission.num_admitted == 0
        assert worker.num_steps < 4096  # it did not end by itself
        assert is_closed(connection)


def test_a_connection_that_is_used_again_has_its_time_again(hasty: Running) -> None:
    with connect(hasty) as connection:
        for _ in range(3):
            connection.sendall(head(hasty, f"Content-Length: {len(BODY)}") + BODY)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            while not answer.endswith(b"]}"):
                answer += connection.recv(65536)
            time.sleep(0.6)


@pytest.mark.parametrize("size", [70_000, 1 << 20])
def test_a_header_beyond_the_limit_is_431(server: Running, size: int) -> None:
    with connect(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(server, "X-Large: " + "a" * size))
        with contextlib.suppress(ConnectionResetError):  # the rest was sent into a closed socket
            found = connection.recv(65536)
            assert found.startswith(b"HTTP/1.1 431")
            assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


def test_a_body_behind_a_small_header_is_no_header(server: Running) -> None:
    body = json.dumps({"text": "the cat " * 20_000}).encode()
    with connect(server) as connection:
        connection.sendall(head(server, f"Content-Length: {len(body)}") + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_what_is_no_http_is_refused_in_the_envelope(server: Running) -> None:
    with connect(server) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        found = connection.recv(65536)
        assert found.startswith(b"HTTP/1.1 400")
        assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


def test_where_there_are_too_many_the_idle_leave_and_the_good_are_served(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 20)
    idle = [connect(server) for _ in range(40)]
    for _ in range(5):
        assert server.get("/healthz").status_code == 200
    assert sum(is_closed(one) for one in idle[:15]) == 15
    for one in idle:
        one.close()
