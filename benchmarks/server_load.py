"""What benchmarks/server.py measures over the wire: load, overload, slow clients, clients that go away, the end of a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import server_clients as clients
from server_clients import ask, percentile, report, served, start, watched_health, wish

import elman


def load(work: Path, full: bool) -> None:
    """64 clients stream at once."""
    for name in ("kn", "lstm"):
        with served([work / name]) as server:
            asyncio.run(_load(name, server.port, 64, 400 if full else 64))


async def _load(name: str, port: int, num_clients: int, tokens: int) -> None:
    await ask(port, "/v1/completions", wish(0, 4))
    alone = await ask(port, "/v1/completions", wish(1, tokens, stream=True))
    began = time.monotonic()
    answers = await asyncio.gather(
        *(ask(port, "/v1/completions", wish(seed, tokens, stream=True)) for seed in range(num_clients))
    )
    seconds = time.monotonic() - began
    num_complete = sum(answer.status == 200 and answer.is_complete for answer in answers)
    rate, single = num_clients * tokens / seconds, tokens / alone.seconds
    report(f"load_{name}_complete", f"{num_complete}/{num_clients}", f"{num_clients}", num_complete == num_clients)
    times = [answer.seconds for answer in answers]
    first = [answer.first for answer in answers]
    figure = f"{rate:.0f} tokens/s, {rate / single:.1f}x one stream"
    times_told = f"p50 {percentile(times, 0.5):.2f} s, p99 {percentile(times, 0.99):.2f} s, first {percentile(first, 0.99):.2f} s"
    report(f"load_{name}_throughput", f"{figure}; {times_told}", "> 1x", rate > single)


def overload(work: Path, full: bool) -> None:
    """Four times as many clients as there is room for."""
    with served([work / "lstm"], "--streams", "8", "--queue", "4") as server:
        asyncio.run(_overload(server, 60 if full else 10))


async def _overload(server: clients.Process, seconds: float) -> None:
    port, rng = server.port, random.Random(0)
    await asyncio.gather(*(ask(port, "/v1/completions", wish(seed, 40)) for seed in range(8)))

    async def client(number: int, answers: list[clients.Answer], until: float) -> None:
        while time.monotonic() < until:
            answer = await ask(port, "/v1/completions", wish(number, rng.randint(20, 60)))
            answers.append(answer)
            if answer.status == 429:
                await asyncio.sleep(1.0)  # as Retry-After says

    async def crowd(size: int, lasting: float) -> list[clients.Answer]:
        answers: list[clients.Answer] = []
        until = time.monotonic() + lasting
        await asyncio.gather(*(client(number, answers, until) for number in range(size)))
        return answers

    unloaded = percentile([one.seconds for one in await crowd(8, min(5.0, seconds))], 0.99)
    before = server.rss()
    answers = await crowd(64, seconds)
    growth = server.rss() - before
    began = time.monotonic()
    while (await ask(port, "/v1/completions", wish(1, 1))).status != 200:
        await asyncio.sleep(0.05)
    recovery = time.monotonic() - began
    counts = Counter(answer.status for answer in answers)
    refused = [answer for answer in answers if answer.status == 429]
    others = {status: count for status, count in counts.items() if status not in (200, 429)}
    told = all(b"retry-after" in answer.headers.lower() for answer in refused)
    worst = percentile([answer.seconds for answer in refused], 0.99)
    admitted = percentile([answer.seconds for answer in answers if answer.status == 200], 0.99)
    report(
        "16_overload_refused_p99",
        f"{worst * 1000:.0f} ms of {len(refused)}",
        "< 100 ms, Retry-After",
        worst < 0.1 and told,
    )
    report("16_overload_other_statuses", json.dumps(others), "none", not others)
    report("16_overload_admitted_p99", f"{admitted / unloaded:.2f}x unloaded", "<= 2x", admitted <= 2 * unloaded)
    report("16_overload_rss_growth", f"{growth / 1e6:.1f} MB", "< 50 MB", growth < 50e6)
    report("16_overload_recovery", f"{recovery:.2f} s", "<= 2 s", recovery <= 2)


def held(work: Path, full: bool) -> None:
    """Very many streams at once."""
    number, seconds = 500, 60 if full else 15
    with served([work / "kn"], "--streams", "512", "--queue", "64") as server:
        asyncio.run(_held(server, work, number, seconds))


async def _held(server: clients.Process, work: Path, number: int, seconds: int) -> None:
    port = server.port
    await ask(port, "/v1/completions", wish(0, 4))
    before = server.rss()
    probe = await asyncio.gather(*(ask(port, "/v1/completions", wish(seed, 30, stream=True)) for seed in range(number)))
    rate = 30 / max(answer.seconds for answer in probe)
    tokens = max(30, min(4000, int(rate * seconds)))
    over = asyncio.Event()
    peak = asyncio.create_task(_peak(server, over))
    began = time.monotonic()
    with watched_health(port) as health:
        answers = await asyncio.gather(*(_later(port, seed, tokens, seed / 100) for seed in range(number)))
    lasted = time.monotonic() - began
    over.set()
    model = elman.load(work / "kn")
    expected = [model.generate("The value of", tokens=tokens, seed=seed) for seed in range(min(50, number))]
    is_right = [answer.text() == text for answer, text in zip(answers, expected, strict=False)]
    complete = sum(answer.status == 200 and answer.is_complete for answer in answers)
    report("17_held_complete", f"{complete}/{number} in {lasted:.0f} s", f"{number}", complete == number)
    report("17_held_in_order", f"{sum(is_right)}/{len(is_right)} as elman generate writes", "all", all(is_right))
    p99 = percentile(health, 0.99)
    report("17_held_health_p99", f"{p99 * 1000:.0f} ms", "< 250 ms", p99 < 0.25)
    growth = await peak - before
    report("17_held_rss", f"{growth / 1e6:.0f} MB", "< 300 MB", growth < 300e6)


async def _later(port: int, seed: int, tokens: int, wait: float) -> clients.Answer:
    """A stream that begins after a while: people do not all come in the same instant."""
    await asyncio.sleep(wait)
    return await ask(port, "/v1/completions", wish(seed, tokens, stream=True))


async def _peak(server: clients.Process, until: asyncio.Event) -> int:
    most = 0
    while not until.is_set():
        most = max(most, server.rss())
        await asyncio.sleep(0.2)
    return most


# --------------------------------------------------------------------------------------------------------- slow clients


def slow(work: Path, full: bool) -> None:
    """Clients that say nothing, or little, or do not read."""
    with served([work / "kn"]) as server:
        asyncio.run(_slow(server))


async def _slow(server: clients.Process) -> None:
    port, descriptors = server.port, server.process.num_fds()
    header = f"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
    body = header + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    kinds = [("idle", 500, b"", b""), ("header", 500, header, b"X-a: b\r\n"), ("body", 100, body, b" ")]
    with watched_health(port, 0.05) as health:
        tasks = [
            (name, asyncio.create_task(_until_closed(port, begin, drip)))
            for name, count, begin, drip in kinds
            for _ in range(count)
        ]
        stream = clients.request_bytes(port, "/v1/completions", wish(1, 4000, stream=True, logprobs=20))
        readers = [await _silent_reader(port, stream) for _ in range(100)]
        began = time.monotonic()
        times: dict[str, list[float]] = {}
        for name, task in tasks:
            times.setdefault(name, []).append(await task)
        while server.process.num_fds() > descriptors + 4 and time.monotonic() - began < 90:
            await asyncio.sleep(0.2)
        seconds = time.monotonic() - began
    p99 = percentile(health, 0.99)
    for name, found in times.items():
        report(f"18_slow_{name}", f"{len(found)} closed in {max(found):.1f} s", "<= 10 s (+1)", max(found) <= 11)
    report("18_slow_reader", f"{len(readers)} closed in {seconds:.1f} s", "<= 30 s (+3)", seconds <= 33)
    report("18_slow_good_client_p99", f"{p99 * 1000:.0f} ms", "< 300 ms", p99 < 0.3)


async def _until_closed(port: int, begin: bytes, drip: bytes) -> float:
    """Seconds until the server closes a connection on which something drips."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        writer.write(begin)
        while time.monotonic() - began < 60:
            try:
                if not await asyncio.wait_for(reader.read(1000), 0.5):
                    break
            except TimeoutError:
                writer.write(drip)
    writer.close()
    return time.monotonic() - began


async def _silent_reader(port: int, request: bytes) -> socket.socket:
    """A client that asks for much and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", port))
    await loop.sock_sendall(connection, request)
    return connection


# ---------------------------------------------------------------------------------------------------------------- leaks


def disconnects(work: Path, full: bool) -> None:
    """Clients that go away in the middle of a stream."""
    with served([work / "lstm"]) as server:
        asyncio.run(_disconnects(server.port, 1_000))


async def _disconnects(port: int, number: int) -> None:
    rng = random.Random(1)
    for first in range(0, number, 25):
        await asyncio.gather(
            *(
                ask(port, "/v1/completions", wish(seed, 4000, stream=True), stop_after=rng.randint(1, 40))
                for seed in range(first, min(first + 25, number))
            )
        )
    began = time.monotonic()
    while (left := await _gauge(port, "elman_streams")) and time.monotonic() - began < 5:
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - began
    admitted = await _gauge(port, "elman_admitted_requests")
    report(
        "20_disconnects_stop", f"{number} gone, none left after {seconds * 1000:.0f} ms", "<= 250 ms", seconds <= 0.25
    )
    report("20_disconnects_leaked", f"{left:.0f} streams, {admitted:.0f} slots", "0", left == 0 and admitted == 0)


async def _gauge(port: int, name: str) -> float:
    text = (await ask(port, "/metrics")).body.decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def soak(work: Path, full: bool) -> None:
    """Very many requests, one after the other."""
    with served([work / "kn"]) as server:
        asyncio.run(_soak(server, 10_000))


async def _soak(server: clients.Process, number: int) -> None:
    port = server.port
    bodies = [
        ("/v1/completions", wish(1, 8)),
        ("/v1/completions", wish(1, 8, stream=True)),
        ("/v1/next", {"text": "The value of"}),
        ("/v1/score", {"text": "The value of a name"}),
        ("/v1/sessions", {"text": "The value"}),
        ("/v1/completions", {"prompt": 5}),
        ("/healthz", None),
    ]

    async def client(begin: int, end: int) -> None:
        for turn in range(begin, end):
            await ask(port, *bodies[turn % len(bodies)])

    warm = 500
    await asyncio.gather(*(client(0, warm // 8) for _ in range(8)))
    before, fds = server.rss(), server.process.num_fds()
    began = time.monotonic()
    await asyncio.gather(*(client(0, number // 8) for _ in range(8)))
    seconds = time.monotonic() - began
    await asyncio.sleep(0.5)
    slope = (server.rss() - before) / 1e6 / (number / 1000)
    report(
        "20_soak_rss_slope", f"{slope:.2f} MB per 1,000 of {number} at {number / seconds:.0f}/s", "< 1 MB", slope < 1
    )
    after = server.process.num_fds()
    report("20_soak_descriptors", f"{fds} -> {after}", "constant", abs(after - fds) <= 8)


def shutdown(work: Path, full: bool) -> None:
    """SIGTERM at random moments, with streams under way."""
    rng, number = random.Random(2), 50

    def terminate(wait: float) -> tuple[int, float]:
        return asyncio.run(_terminate(start([work / "kn"]), wait))

    with ThreadPoolExecutor(4) as pool:  # a server that starts keeps a processor busy, one that drains does not
        codes = list(pool.map(terminate, [rng.random() * 2 for _ in range(number)]))
    good, slowest = sum(code == 0 for code, _ in codes), max(seconds for _, seconds in codes)
    report("21_shutdown_exit_0", f"{good}/{number}", "all", good == number)
    report("21_shutdown_drained", f"{slowest:.1f} s at most", "<= 10 s", slowest <= 10)


async def _terminate(server: clients.Process, wait: float) -> tuple[int, float]:
    streams = [
        asyncio.create_task(ask(server.port, "/v1/completions", wish(seed, 2000, stream=True))) for seed in range(8)
    ]
    await asyncio.sleep(wait)
    began = time.monotonic()
    code = await asyncio.to_thread(server.stop)
    seconds = time.monotonic() - began
    await asyncio.gather(*streams)
    return code, seconds
