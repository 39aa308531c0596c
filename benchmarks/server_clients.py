"""Clients for benchmarks/server.py: a server as a process of its own, and requests over plain sockets by the hundred."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_is_failed = False


def report(name: str, figure: str, target: str, is_passed: bool) -> None:
    """One line for people and for programs."""
    global _is_failed
    _is_failed |= not is_passed
    print(f"{name}\t{figure}\t{target}\t{'pass' if is_passed else 'fail'}", flush=True)


def is_failed() -> bool:
    """Whether any line said so."""
    return _is_failed


def wish(seed: int, tokens: int, **more: Any) -> dict[str, Any]:
    """A completion that takes as many tokens as it is asked for."""
    return {"prompt": "The value of", "max_tokens": tokens, "seed": seed, **more}


@dataclass
class Process:
    """A running server."""

    popen: subprocess.Popen[str]
    port: int
    seconds_to_ready: float

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.popen.pid)

    def rss(self) -> int:
        """Resident bytes."""
        return int(self.process.memory_info().rss)

    def stop(self) -> int:
        """End it politely. -> the exit code"""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(30)


def start(models: Sequence[Path], *options: str, log: Path | None = None) -> Process:
    """A server on a free port, once it is ready."""
    began = time.monotonic()
    command = [sys.executable, "-m", "elman", "serve", *map(str, models), "--port", "0", "--threads", "1", *options]
    popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert popen.stderr is not None
    for line in popen.stderr:
        if found := re.search(r"serving at http://.*:(\d+)", line):
            seconds = time.monotonic() - began
            # whoever does not read a pipe stops the one who writes
            subprocess.Popen(["cat"], stdin=popen.stderr, stdout=log.open("w") if log else subprocess.DEVNULL)
            return Process(popen, int(found[1]), seconds)
    raise RuntimeError("the server did not start")


@contextlib.contextmanager
def served(models: Sequence[Path], *options: str) -> Iterator[Process]:
    """A server for a while."""
    server = start(models, *options)
    try:
        yield server
    finally:
        if server.popen.poll() is None:
            server.stop()


@dataclass
class Answer:
    """What came back, and when."""

    status: int  # 0: the connection broke
    seconds: float
    first: float  # seconds to the first byte of the body
    raw: bytes = b""  # the body as it came
    headers: bytes = b""
    num_events: int = 0

    @property
    def body(self) -> bytes:
        """Without the frames of a transfer in chunks."""
        return _unchunk(self.raw) if b"chunked" in self.headers.lower() else self.raw

    def json(self) -> Any:
        return json.loads(self.body)

    def text(self) -> str:
        """Of a stream: all its parts."""
        events = [line[6:] for line in self.body.split(b"\n\n") if line.startswith(b"data: {")]
        return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])

    @property
    def is_complete(self) -> bool:
        """Of a stream: whether it came to its end."""
        return self.body.rstrip().endswith(b"data: [DONE]")


def request_bytes(port: int, path: str, body: Any = None) -> bytes:
    """A request as it is sent."""
    content = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    kind = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{kind}\r\n".encode() + content


async def ask(port: int, path: str, body: Any = None, *, stop_after: int | None = None) -> Answer:
    """One request on a connection of its own. stop_after: events after which the client goes away."""
    began = time.monotonic()
    answer = Answer(0, 0.0, 0.0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        answer.seconds = time.monotonic() - began
        return answer
    try:
        writer.write(request_bytes(port, path, body))
        await writer.drain()
        answer.headers = await reader.readuntil(b"\r\n\r\n")
        answer.status = int(answer.headers.split()[1])
        raw = bytearray()
        while part := await reader.read(65536):
            answer.first = answer.first or time.monotonic() - began
            raw += part
            if stop_after is not None and raw.count(b"data: ") >= stop_after:
                break
        answer.raw = bytes(raw)
        answer.num_events = raw.count(b"data: ")
    except (OSError, asyncio.IncompleteReadError):
        answer.status = 0
    finally:
        writer.close()
    answer.seconds = time.monotonic() - began
    return answer


def _unchunk(raw: bytes) -> bytes:
    parts, place = [], 0
    while (end := raw.find(b"\r\n", place)) > place and (size := int(raw[place:end], 16)):
        parts.append(raw[end + 2 : end + 2 + size])
        place = end + 2 + size + 2
    return b"".join(parts)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@contextlib.contextmanager
def watched_health(port: int, pause: float = 0.1) -> Iterator[list[float]]:
    """How long a health check takes, again and again, asked by a process that does nothing else; a failure is infinite."""
    found: list[float] = []
    command = [sys.executable, __file__, str(port), str(pause)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield found
        finally:
            found += json.loads(process.communicate()[0])


def _watch(port: int, pause: float) -> list[float]:
    found = []
    while not select.select([sys.stdin], [], [], pause)[0]:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", "/healthz")
            is_good = connection.getresponse().status == 200
        except OSError:
            is_good = False
        connection.close()
        found.append(time.monotonic() - began if is_good else 1e9)
    return found


if __name__ == "__main__":
    print(json.dumps(_watch(int(sys.argv[1]), float(sys.argv[2]))))
