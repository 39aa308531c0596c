"""docs/reliability.md, made from the results: a row that was not measured says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reliability.row import Row
from reliability.runner import RESULTS, ROOT, Result, read_results
from reliability.table import ROWS

PLACE = ROOT / "docs" / "reliability.md"

HEAD = """\
# Reliability

<!-- made by `python -m reliability` from docs/reliability.json -->

What elman survives, each property as a figure that was measured. `make reliability` measures all rows within 15 minutes
on two cores; `make reliability-full` is a release's run and takes up to 75 minutes; `python -m reliability --rows 1,8`
measures some. A row does as many cases as fit into its time and says how many those were,
`short` where they are fewer than asked for; what is drawn at random depends on `--seed` alone. A run of all rows begins
afresh: a row that it does not reach is not measured.
Inputs that once broke something are in `tests/data/regressions`, and the tests run them all.

| # | property | figure to hit | measured | | when, and for how long |
|---|---|---|---|---|---|
"""
TAIL = """
Rows 8 and 14 need Linux; row 8 mounts small file systems and needs root. The rows from 16 on are about `elman serve`
([Serving models](serve.md)); their targets are milliseconds, so they want a machine that does nothing else.

Row 2 by another's hand: ckpt-chaos 0.1.8 (on PyPI, no dependency of elman) killed `elman train` of an LSTM, a seq2seq and a
tagger at seven of some 120 file events each and compared the weights after `elman resume` with those of the undisturbed
run: PASS 21 of 21, and three controls (2026-11-17, `ckpt-chaos run --max-points 14 --resume-cmd … --result-file
{out}/model.safetensors -- elman train … --out {out}`).

`pytest -p tests.audit` runs any tests with an audit hook: a test fails if our code unpickles anything, connects to
anything but this machine, or starts a program where a model is loaded or served.

How it is done is in the [overview](overview.md): one atomic writer with a manifest (`core/files.py`), checkpoints that
are whole or not there (`training/checkpoint.py`), a run that is on disk before its first step (`tasks/run_folder.py`),
and readers that name file, line and byte.
"""


def render(results: Mapping[int, Result], rows: Sequence[Row] = ROWS) -> str:
    """The whole page."""
    lines = [_line(row, results.get(row.number)) for row in rows]
    versions = sorted({_told(result.versions) for result in results.values()})
    measured = f"\nMeasured with {'; '.join(versions)}.\n" if versions else ""
    return HEAD + "".join(lines) + measured + TAIL


def write_page(results_place: Path = RESULTS, place: Path = PLACE) -> None:
    """Make the page from the results that are kept."""
    place.write_text(render(read_results(results_place)))


def _line(row: Row, result: Result | None) -> str:
    if result is None:
        return f"| {row.number} | {row.name} | {_cell(row.target)} | not measured | | |\n"
    when = f"{result.date[:10]}, {result.seconds:.0f} s{', full' if result.is_full else ''}"
    verdict = "" if result.is_passed is None else result.verdict
    return f"| {row.number} | {row.name} | {_cell(row.target)} | {_cell(result.figure)} | {verdict} | {when} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _told(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
