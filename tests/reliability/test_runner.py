"""The suite of reliability runs, keeps its results, and its page is made from them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from reliability import page
from reliability.__main__ import FULL_SECONDS, SHORT_SECONDS
from reliability.processes import NUM_LANES
from reliability.row import Allowance, Count, Figure, NotMeasurableError, Row
from reliability.runner import RESULT_MARK, ROOT, Result, measure_here, read_results, run_rows, write_results
from reliability.table import ROWS


def test_one_row_is_measured_printed_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "results.json"
    command = [sys.executable, "-m", "reliability", "--rows", "9", "--seed", "3", "--results", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    name, figure, target, verdict = done.stdout.strip().split("\t")
    assert (name, verdict) == ("9_Nth_I/O_fault", "pass") and "faults" in figure and "old" in target
    result = read_results(place)[9]
    assert (result.figure, result.seed, result.is_full) == (figure, 3, False) and result.versions["elman"]


def test_the_page_is_made_from_the_results_and_says_what_was_not_measured() -> None:
    assert page.render(read_results()) == page.PLACE.read_text()
    result = Result("3/4", False, (), 1.0, "2026-01-01T00:00:00+00:00", True, 0, {"elman": "1"})
    shown = page.render({ROWS[0].number: result})
    assert "| 3/4 | fail | 2026-01-01, 1 s, full |" in shown
    assert shown.count("| not measured | | |") == len(ROWS) - 1


def test_a_row_that_fails_or_cannot_be_measured_says_so(capsys: object, tmp_path: Path) -> None:
    def broken(allowance: Allowance) -> Figure:
        raise ValueError("oh")

    def impossible(allowance: Allowance) -> Figure:
        raise NotMeasurableError("no root")

    for function, wanted in ((broken, '"is_passed": false'), (impossible, '"is_passed": null')):
        measure_here(Row(1, "n", "t", function, 1, 1), is_full=False, seed=0, seconds=None)
        printed = capsys.readouterr().out  # type: ignore[attr-defined]
        assert printed.startswith(RESULT_MARK) and wanted in printed


def test_as_many_cases_are_done_as_fit_and_at_least_one(tmp_path: Path) -> None:
    assert list(Allowance(0.0, tmp_path).until_spent(range(5))) == [0]
    assert list(Allowance(60.0, tmp_path).until_spent(range(5))) == [0, 1, 2, 3, 4]
    count = Count()
    count.add(None)
    count.add("it broke")
    assert count.figure() == Figure("1/2", False, ("it broke",))
    assert not count.figure().is_short and count.figure(least=3).is_short


def test_rows_are_in_order_and_a_short_run_fits_into_fifteen_minutes() -> None:
    numbers = [row.number for row in ROWS]
    assert numbers == sorted(set(numbers))
    for share, limit in ((lambda row: row.seconds, SHORT_SECONDS), (lambda row: row.full_seconds, FULL_SECONDS)):
        assert sum(share(row) if row.is_alone else share(row) / NUM_LANES for row in ROWS) <= limit


def test_a_row_that_was_not_reached_is_not_measured_whatever_was_found_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was out of time kept the figures of an earlier one for the rows that it did not reach."""
    place = tmp_path / "results.json"
    old = Result("3/4", True, (), 1.0, "2026-01-01T00:00:00+00:00", True, 0, {"elman": "1"})
    write_results({1: old, 2: old, 3: old}, place)
    assert run_rows(ROWS[:2], is_full=False, seed=0, place=place, until=time.monotonic())
    assert capsys.readouterr().out.count("not measured") == 2
    assert read_results(place) == {3: old}
    shown = page.render(read_results(place))
    assert shown.count("| not measured | | |") == len(ROWS) - 1 and "| 3/4 | pass |" in shown
