"""`python -m reliability`: measure rows, print a line for each, make the page. Exit code 1 if one failed."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from reliability import page, runner
from reliability.table import ROWS

SHORT_SECONDS, FULL_SECONDS = 15 * 60, 75 * 60  # of all rows; none is begun afterwards


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("--full", action="store_true", help="as long as a release needs")
    parser.add_argument("--rows", default="", help="numbers of rows, like 1,8,12; all if not given")
    parser.add_argument("--seed", type=int, default=0, help="of whatever is drawn at random")
    parser.add_argument("--seconds", type=float, help="for each row, instead of its own share")
    parser.add_argument("--results", type=Path, default=runner.RESULTS, help="the JSON file of results")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)  # one row, in this process
    given = parser.parse_args()
    by_number = {row.number: row for row in ROWS}
    wanted = {int(number) for number in given.rows.split(",") if number}
    if unknown := wanted - by_number.keys():
        parser.error(f"there is no row {', '.join(map(str, sorted(unknown)))}")
    if given.measure is not None:
        runner.measure_here(by_number[given.measure], is_full=given.full, seed=given.seed, seconds=given.seconds)
        return 0
    rows = [row for row in ROWS if not wanted or row.number in wanted]
    until = math.inf if wanted else time.monotonic() + (FULL_SECONDS if given.full else SHORT_SECONDS)
    try:
        is_good = runner.run_rows(
            rows, is_full=given.full, seed=given.seed, seconds=given.seconds, place=given.results, until=until
        )
    finally:
        if given.results == runner.RESULTS:
            page.write_page()
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
