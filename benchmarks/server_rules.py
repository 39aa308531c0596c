"""What benchmarks/server.py has of rules: by the tests that show them, and by the memory that breaking them takes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import server_clients as clients
from server_clients import ask, report, served, start, wish

ROOT = Path(__file__).parents[1]


def tests(name: str, target: str, *places: str, **environment: str) -> None:
    """A property that tests show: how many of them pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *places]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    summary = next((line for line in reversed(done.stdout.splitlines()) if "passed" in line or "failed" in line), "")
    dots = sum(line.split(" ")[0].count(".") for line in done.stdout.splitlines() if "%]" in line)
    report(name, summary.strip("= ") or f"{dots} tests", target, done.returncode == 0)


def limits(work: Path, full: bool) -> None:
    """Bad requests by a table, and by a machine that makes them from the schema."""
    tests("19_limits_table", "100 % 400 in the envelope", "tests/serve/test_limits.py")
    tests(
        "19_limits_wire",
        "413, 431",
        "tests/serve/test_protocol.py",
        "tests/serve/test_guard.py",
        "-k",
        "limit or header",
    )
    cases = "500" if full else "20"
    tests(
        "19_limits_schemathesis",
        f"{cases} cases an operation, none undocumented",
        "tests/serve/test_schema.py",
        ELMAN_CASES=cases,
    )
    with served([work / "kn"]) as server:
        asyncio.run(_bad_requests(server))


async def _bad_requests(server: clients.Process) -> None:
    """The memory that each request of the table takes; the first of all load what answers need."""
    sys.path.insert(0, str(ROOT))
    from tests.serve.test_limits import table

    statuses, growths = set(), []
    for path, body in [("/v1/next", {"text": "The", "k": 0})] * 50 + table():
        before = server.rss()
        statuses.add((await ask(server.port, path, body)).status)
        growths.append(server.rss() - before)
    figure = (
        f"{max(growths[50:]) / 1e6:.2f} MB at most, {sum(growths[50:]) / 1e6:.1f} MB by {len(growths) - 50} of them"
    )
    is_refused = not any(status == 0 or status >= 500 for status in statuses)  # some are right for a larger vocabulary
    report("19_limits_memory", figure, "<= 4 MB a request, no 5xx", max(growths[50:]) <= 4 << 20 and is_refused)


def browser(work: Path, full: bool) -> None:
    """Hosts, origins, kinds of bodies and headers of answers."""
    tests("22_browser", "all", "tests/serve/test_guard.py", "-k", "host or elsewhere or own or json or answer")


def key(work: Path, full: bool) -> None:
    """Every route needs the key."""
    tests("23_key", "all", "tests/serve/test_guard.py", "tests/cli/test_serve.py", "-k", "key")


def paths(work: Path, full: bool) -> None:
    """Names that would be paths, under an audit of what is opened."""
    tests("24_paths", "0 opens, connects, processes", "tests/serve/test_audit.py", "-k", "name", ELMAN_NAMES="2000")
    tests("24_pickles", "refused, nothing unpickled", "tests/serve/test_audit.py", "-k", "pickle")
    tests("24_hostile_models", "refused, in little memory", "tests/test_hostile_models.py")


def contract(work: Path, full: bool) -> None:
    """The numbers of evaluate, by the OpenAI client and by lm-evaluation-harness; streams as answers."""
    tests("25_contract", "1e-6 counts, 1e-4 nets, every family", "tests/serve/test_contract.py")
    with served([work / "kn"]) as server:
        asyncio.run(_same_text(server.port, 1_000))


async def _same_text(port: int, number: int) -> None:
    same = 0
    for first in range(0, number, 10):
        seeds = range(first, min(first + 10, number))
        whole = await asyncio.gather(*(ask(port, "/v1/completions", wish(seed, 30)) for seed in seeds))
        parts = await asyncio.gather(*(ask(port, "/v1/completions", wish(seed, 30, stream=True)) for seed in seeds))
        same += sum(a.json()["choices"][0]["text"] == b.text() for a, b in zip(whole, parts, strict=True))
    report("25_streamed_text", f"{same}/{number} seeds", "all", same == number)


def startup(work: Path, full: bool) -> None:
    """How long it takes to be there."""
    times = []
    for _ in range(7):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "elman", "--help"], capture_output=True, check=True)
        times.append(time.monotonic() - began)
    report("26_startup_help", f"{min(times) * 1000:.0f} ms", "< 300 ms", min(times) < 0.3)
    size = sum(path.stat().st_size for path in (work / "lstm").rglob("*") if path.is_file()) / 1e6
    ready = []
    for _ in range(3):
        server = start([work / "lstm"])
        ready.append(server.seconds_to_ready)
        server.stop()
    report("26_startup_serve", f"{min(ready):.1f} s with {size:.0f} MB", "< 4 s", min(ready) < 4)
