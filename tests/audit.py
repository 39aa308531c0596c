"""A pytest plugin, `pytest -p tests.audit`: a test fails if elman unpickles, calls another machine or starts a program.

Only what is done by elman's own code counts: test runners unpickle and start processes, too.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import elman

PACKAGE = str(Path(elman.__file__).parent)
LOOPBACK = ("127.", "::1", "localhost")
WATCHED = ("pickle.find_class", "socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
# These start programs because they were asked to: the browser of `elman studio`, the program that draws in its own time,
# the Java of count.engine=spark. None of them loads or serves a model.
STARTERS = ("pictures.py", "cli/studio.py", "spark/session.py")

_events: list[str] = []


def find_breach(event: str, arguments: tuple[Any, ...], files: list[str]) -> str | None:
    """What an audit event of code in these files means; None if it is allowed, or none of elman's business."""
    if event not in WATCHED:
        return None
    if event == "socket.connect" and _is_local(arguments[1]):
        return None
    ours = [file.removeprefix(PACKAGE + "/") for file in files if file.startswith(PACKAGE + "/")]
    if not ours or (event not in ("pickle.find_class", "socket.connect") and ours[0] in STARTERS):
        return None
    if event == "pickle.find_class" and ours[0].startswith("spark/") and any("/pyspark/" in file for file in files):
        return None  # rows that PySpark has from the Java it started itself: no file of anybody
    return f"{event} {arguments!r} in {ours[0]}"[:300]


def _is_local(address: Any) -> bool:
    return not isinstance(address, tuple) or str(address[0]).startswith(LOOPBACK)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in WATCHED:
        return
    files, frame = [], sys._getframe(1)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    if (breach := find_breach(event, arguments, files)) is not None:
        _events.append(breach)


def pytest_configure(config: pytest.Config) -> None:
    """From now on, for good: an audit hook cannot be taken away."""
    sys.addaudithook(_hook)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What fixtures do counts for the test that asked for them first."""
    _events.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A test fails for what it, or its fixtures, made elman do."""
    yield
    if _events:
        pytest.fail("elman did what it never should: " + "; ".join(_events))
