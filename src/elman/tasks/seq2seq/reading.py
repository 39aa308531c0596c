"""Pairs of a source and a target, from tables, aligned files, JSONL and SCAN. Knows nothing of symbols.

Several rows with one source are several references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from elman.core.errors import DataError
from elman.tasks.seq2seq.config import PairsConfig
from elman.text.aligned import read_aligned
from elman.text.column_names import SOURCES, TARGETS
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Sources
from elman.text.tables import (
    Format,
    Pairs,
    Row,
    Sides,
    SourceLine,
    checked,
    choose_parser,
    read_rows,
    read_sources,
)

_SCAN = re.compile(r"IN: (.*) OUT: (.*)")
_RECORD_HINT = 'a record looks like {"source": "...", "target": "..."}'


def read_pairs(sources: Sources, data: PairsConfig, *, targets: Sources | None = None) -> Pairs:
    """All pairs of some files; with `targets`, line by line of the two."""
    found = Pairs()
    if targets is not None:
        if data.source:
            raise DataError(
                "data.source picks columns of a table, not lines of two files",
                code="does-not-apply",
                hint="leave it out",
            )
        read_aligned(sources, targets, data, found)
    else:
        read_rows(sources, data, partial(_choose_format, data, True), found, header=data.header)
    if not len(found):
        raise DataError(
            "there are no pairs in the input", code="empty-data", hint="it needs at least one source and its target"
        )
    return found


def read_only_sources(sources: Sources, data: PairsConfig) -> Iterator[list[SourceLine]]:
    """The sources of some files, read as `read_pairs` reads them; targets may be there or not."""
    return read_sources(sources, data, partial(_choose_format, data, False), header=data.header)


def _choose_format(data: PairsConfig, needs_target: bool, lines: LineBlock, texts: Sequence[str]) -> Format:
    """How the lines of a file are to be read, by its first ones; refuses a file that is for another task."""
    sides = Sides(
        data.source,
        data.target,
        data.spelled,
        usual=(1, 2),
        source_names=SOURCES,
        target_names=TARGETS,
        hint=_RECORD_HINT,
        needs_target=needs_target,
    )
    if data.source:
        return choose_parser(lines, texts, sides)
    if not lines.has_records and any(text.startswith("IN: ") for text in texts):
        return Format(partial(_parse_scan, needs_target), False)
    if lines.kind == "csv" or not needs_target:
        return choose_parser(lines, texts, sides)
    guess = guess_task(texts[:SAMPLE_LINES], is_jsonl=lines.has_records)
    is_known = lines.has_records and guess.task in ("lm", "qa") and "unknown" in guess.like
    if guess.task != "seq2seq" and not is_known:
        columns = "" if lines.has_records else "; data.source=1 data.target=2 picks columns of a table"
        raise DataError(
            f"{lines.source} is not pairs of source and target: it looks like {guess.like}",
            code="wrong-format",
            hint=f"elman train {guess.task} is for such files{columns}",
        )
    return choose_parser(lines, texts, sides)


def _parse_scan(needs_target: bool, text: str) -> Row | Fault:
    found = _SCAN.fullmatch(text)
    if found:
        return checked(found[1], found[2])
    if not needs_target:
        return checked(text.removeprefix("IN: "), "", needs_target=False)
    return Fault("is not of the form IN: ... OUT: ...", SKIP_HINT)
