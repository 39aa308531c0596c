"""What `elman serve` survives: one line `name figure target pass|fail` for each property. Short by default, whole with --full.

    python benchmarks/server.py [NAME…] [--full] [--work DIR]

The server is a process of its own on loopback; the clients are in this one. Properties: load overload held slow limits
disconnects soak shutdown browser key paths contract startup.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import server_load
import server_rules
from server_clients import is_failed, report

import elman


def make_models(folder: Path) -> None:
    """A count model and an LSTM of some 10 MB on the language reference that comes with Python."""
    from pydoc_data.topics import topics

    text = elman.texts(line for topic in topics.values() for line in topic.splitlines() if line.strip())
    shared: dict[str, Any] = {"units": "word", "valid": "none", "reset_lines": False}
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two of these may begin at a time
        if not (folder / "kn").exists():
            elman.train("lm", text, model="mkn", out=folder / "kn", **shared)
        if not (folder / "lstm").exists():
            settings = {"model.hidden": 256, "model.layers": 1}
            elman.train(
                "lm", text, model="lstm", out=folder / "lstm", epochs=0.05, settings=settings, threads=1, **shared
            )


PROPERTIES: dict[str, Callable[[Path, bool], None]] = {
    one.__name__: one
    for one in (
        server_load.load,
        server_load.overload,
        server_load.held,
        server_load.slow,
        server_rules.limits,
        server_load.disconnects,
        server_load.soak,
        server_load.shutdown,
        server_rules.browser,
        server_rules.key,
        server_rules.paths,
        server_rules.contract,
        server_rules.startup,
    )
}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*PROPERTIES, []])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    try:
        make_models(work)
        for name in arguments.names or PROPERTIES:
            try:
                PROPERTIES[name](work, arguments.full)
            except Exception as error:
                report(name, f"{type(error).__name__}: {error}", "a measurement", False)
    finally:
        if arguments.work is None:
            shutil.rmtree(work)
    return int(is_failed())


if __name__ == "__main__":
    raise SystemExit(main())
