"""Rows 16 to 26: what `elman serve` survives, by benchmarks/server.py; and code in files, which is never run (row 24)."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elman
from elman.core.errors import ElmanError
from reliability.row import Allowance, Count, Figure
from reliability.runner import ROOT

# The tests of whatever loads and serves; of a release all that are not slow.
AUDITED = (
    "tests/test_store.py",
    "tests/test_hostile_models.py",
    "tests/serve/test_completions.py",
    "tests/serve/test_own.py",
)
LINES = ["the cat sat on the mat .", "the dog sat on the log ."] * 20


def served(*names: str, grows: bool = False) -> Callable[[Allowance], Figure]:
    """A row that consists of these properties of benchmarks/server.py. grows: a short run has fewer cases than asked for."""

    def measure(allowance: Allowance) -> Figure:
        work = Path(tempfile.gettempdir()) / f"elman-reliability-server-{os.getuid()}"  # the models of all rows
        command = [
            sys.executable,
            "benchmarks/server.py",
            *names,
            "--work",
            str(work),
            *(["--full"] * allowance.is_full),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 3]
        if not found:
            return Figure(f"no measurement: {done.stderr[-200:]}", False)
        told = [f"{re.sub(r'^[0-9]+_', '', name)}: {figure}" for name, figure, _, _ in found]
        failures = tuple(f"{name}: {figure}, to hit: {target}" for name, figure, target, how in found if how != "pass")
        return Figure("; ".join(told), not failures, failures, grows and not allowance.is_full)

    return measure


def no_code(allowance: Allowance) -> Figure:
    """Names that are no paths; thirty pickles that would run something; tests under an audit hook."""
    names = served("paths")(allowance)
    pickles = _pickles(allowance.folder)
    audit = _audited(("tests", "-m", "not slow", "-n", "2") if allowance.is_full else AUDITED)
    figures = (names, pickles, audit)
    return Figure(
        "; ".join(figure.text for figure in figures),
        all(figure.is_passed for figure in figures),
        tuple(failure for figure in figures for failure in figure.failures),
    )


class _Harm:
    """What a pickle of it does to whoever loads it."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._mark),))


def _pickles(folder: Path) -> Figure:
    """In place of every file of a model, and of every kind of data, by every protocol: refused, and nothing was run."""
    mark, model = folder / "harmed", folder / "model"
    settings = {"model.hidden": 4, "train.steps": 1}
    elman.train("lm", elman.texts(LINES), out=model, model="rnn", units="space", settings=settings, threads=1)
    count = Count()
    for protocol in range(6):
        data = pickle.dumps(_Harm(mark), protocol=protocol)
        places: dict[str, Callable[[Path], object]] = {
            name: lambda path: elman.load(path.parent, verify=False)
            for name in ("config.json", "model.safetensors", "tokenizer.json", "manifest.json")
        }
        places["model.arpa"] = elman.import_arpa
        for name, read in places.items():
            path = model / name
            before = path.read_bytes() if path.exists() else None
            path.write_bytes(data)
            try:
                read(path)
                failure: str | None = f"{name}, protocol {protocol}: it was read"
            except ElmanError:
                failure = None
            except Exception as error:
                failure = f"{name}, protocol {protocol}: {type(error).__name__}: {error}"
            finally:
                path.unlink() if before is None else path.write_bytes(before)
            count.add(f"{name}, protocol {protocol}: its code was run" if mark.exists() else failure)
    return count.figure(" pickles refused", least=30)


def _audited(tests: tuple[str, ...]) -> Figure:
    command = [sys.executable, "-m", "pytest", "-p", "tests.audit", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    breaches = re.findall(r"elman did what it never should: .*", done.stdout)
    passed, failed = (re.search(rf"(\d+) {word}", done.stdout) for word in ("passed", "failed"))
    counts = f"{passed[1] if passed else 0} tests under the audit hook: {len(breaches)} breaches"
    if failed:
        counts += f", {failed[1]} failed"
    return Figure(counts, done.returncode == 0 and not breaches, tuple(breaches[:3]))
