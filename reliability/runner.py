"""Measures rows, each in a process of its own that cannot take the others with it, and keeps their results as JSON."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from reliability.processes import NUM_LANES
from reliability.row import Allowance, Figure, NotMeasurableError, Row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "reliability.json"
MEMORY = Path("/dev/shm")  # a file system in memory, if there is one: a kill leaves there what it leaves on a disk
RESULT_MARK = "result: "
GRACE_SECONDS = 300  # a row that takes longer than its share and this does not end
PACKAGES = ("numpy", "torch", "safetensors", "tokenizers")


@dataclass(frozen=True)
class Result:
    """What a row showed when it was last measured. is_passed is None where it could not be measured."""

    figure: str
    is_passed: bool | None
    failures: tuple[str, ...]
    seconds: float
    date: str
    is_full: bool
    seed: int
    versions: dict[str, str]
    is_short: bool = False

    @property
    def verdict(self) -> str:
        """In a word; `short` where nothing failed, but fewer cases were tried than asked for."""
        if self.is_passed and self.is_short:
            return "short"
        return {True: "pass", False: "fail", None: "not measured"}[self.is_passed]


def measure_here(row: Row, *, is_full: bool, seed: int, seconds: float | None) -> None:
    """Measure one row in this process and print what was found as JSON."""
    share = (row.full_seconds if is_full else row.seconds) if seconds is None else seconds
    folder = Path(tempfile.mkdtemp(prefix=f"elman-reliability-{row.number}-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        figure: dict[str, object] = asdict(row.measure(Allowance(share, folder, seed, is_full)))
    except NotMeasurableError as error:
        figure = asdict(Figure(f"not measured: {error}", False)) | {"is_passed": None}
    except Exception as error:
        figure = asdict(Figure(f"{type(error).__name__}: {error}"[:300], False, (traceback.format_exc()[-2000:],)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(RESULT_MARK + json.dumps(figure), flush=True)


def measure(row: Row, *, is_full: bool, seed: int, seconds: float | None = None) -> Result:
    """Measure one row in a process of its own."""
    share = (row.full_seconds if is_full else row.seconds) if seconds is None else seconds
    command = [sys.executable, "-m", "reliability", "--measure", str(row.number), "--seed", str(seed)]
    command += ["--full"] * is_full + ([] if seconds is None else ["--seconds", str(seconds)])
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1", **os.environ},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=1.5 * share + GRACE_SECONDS,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT_MARK)]
        found = json.loads(lines[-1].removeprefix(RESULT_MARK)) if lines else None
        trouble = f"the measurement ended with {done.returncode}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        found, trouble = None, f"did not end within {1.5 * share + GRACE_SECONDS:.0f} s"
    found = found or {"text": trouble, "is_passed": False, "failures": ()}
    return Result(
        figure=found["text"],
        is_passed=found["is_passed"],
        failures=tuple(found["failures"]),
        seconds=round(time.monotonic() - began, 1),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        is_full=is_full,
        seed=seed,
        versions=_versions(),
        is_short=found.get("is_short", False),
    )


def run_rows(
    rows: Sequence[Row],
    *,
    is_full: bool,
    seed: int,
    seconds: float | None = None,
    place: Path = RESULTS,
    until: float = math.inf,
) -> bool:
    """Measure rows, print a line for each, and write the results down. -> whether none failed

    Results of other rows stay. until: the moment (monotonic) from which on no row is begun, those left are not measured.
    """
    results = {number: one for number, one in read_results(place).items() if number not in {row.number for row in rows}}
    write_results(results, place)
    is_good = True

    def measure_in_time(row: Row) -> tuple[Row, Result | None]:
        is_late = time.monotonic() >= until
        return row, None if is_late else measure(row, is_full=is_full, seed=seed, seconds=seconds)

    for row, result in _in_pairs(measure_in_time, rows):
        if result is None:
            print(f"{_label(row)}\tnot reached\t{row.target}\tnot measured", flush=True)
            continue
        print(f"{_label(row)}\t{result.figure}\t{row.target}\t{result.verdict}", flush=True)
        for failure in result.failures:
            print(f"  {failure}", file=sys.stderr, flush=True)
        is_good &= result.is_passed is not False
        results[row.number] = result
        write_results(results, place)
    return is_good


def _in_pairs(
    measure: Callable[[Row], tuple[Row, Result | None]], rows: Sequence[Row]
) -> Iterator[tuple[Row, Result | None]]:
    """First those that may be measured side by side, two at a time, then the others alone."""
    with ThreadPoolExecutor(NUM_LANES) as pool:
        yield from pool.map(measure, [row for row in rows if not row.is_alone])
    yield from map(measure, [row for row in rows if row.is_alone])


def _label(row: Row) -> str:
    return f"{row.number}_{row.name.replace(' ', '_')}"


def read_results(place: Path = RESULTS) -> dict[int, Result]:
    """What was measured last, by the number of the row."""
    if not place.exists():
        return {}
    content = json.loads(place.read_text())
    return {int(number): Result(**{**one, "failures": tuple(one["failures"])}) for number, one in content.items()}


def write_results(results: dict[int, Result], place: Path = RESULTS) -> None:
    """Keep what was measured."""
    content = {str(number): asdict(result) for number, result in sorted(results.items())}
    place.write_text(json.dumps(content, indent=1) + "\n")


def _versions() -> dict[str, str]:
    from elman import __version__

    found = {"elman": __version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in PACKAGES}
