"""Pairs of a source and a target, from tables, aligned files, JSONL and SCAN. Knows nothing of symbols.

Several rows with one source are several references.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from elman.core.errors import DataError
from elman.tasks.seq2seq.config import PairsConfig
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources, is_jsonl
from elman.text.settings import DataConfig
from elman.text.tables import Pairs, Parse, Row, checked, parse_record, read_rows, table_parser

_SCAN = re.compile(r"IN: (.*) OUT: (.*)")
_RECORD_HINT = 'a record looks like {"source": "...", "target": "..."}'


def read_pairs(sources: Sources, data: PairsConfig, *, targets: Sources | None = None) -> Pairs:
    """All pairs of some files; with `targets`, line by line of the two."""
    found = Pairs()
    if targets is not None:
        _read_aligned(sources, targets, data, found)
    else:
        read_rows(
            sources, _reading(data), lambda lines, texts: _choose_format(lines, texts, data), found, header=data.header
        )
    if not len(found):
        raise DataError("there are no pairs in the input", hint="it needs at least one source and its target")
    return found


def _reading(data: PairsConfig) -> DataConfig:
    return DataConfig.model_validate({"errors": data.errors, "skip_bad": data.skip_bad})


def _choose_format(lines: LineBlock, texts: Sequence[str], data: PairsConfig) -> Parse:
    """How the lines of a file are to be read, by its first ones; refuses a file that is for another task."""
    has_records = is_jsonl(lines.source)
    if data.source and has_records:
        raise DataError(f"{lines.source} is JSONL, which has no columns", hint="leave out data.source and data.target")
    if not data.source:
        look = guess_task(texts[:SAMPLE_LINES], is_jsonl=has_records)
        if look.task != "seq2seq":
            columns = "" if has_records else "; data.source=1 data.target=2 picks columns of a table"
            raise DataError(
                f"{lines.source} is not pairs of source and target: it looks like {look.like}",
                hint=f"elman train {look.task} is for such files{columns}",
            )
        if has_records:
            return _parse_record
        if any(text.startswith("IN: ") for text in texts):
            return _parse_scan
    return table_parser(texts, data.source, data.target, usual=(1, 2), spelled=data.spelled)


def _parse_scan(text: str) -> Row | Fault:
    found = _SCAN.fullmatch(text)
    if not found:
        return Fault("is not of the form IN: ... OUT: ...", SKIP_HINT)
    return checked(found[1], found[2])


def _parse_record(text: str) -> Row | Fault:
    return parse_record(text, ("source", "target"), _RECORD_HINT)


def _read_aligned(sources: Sources, targets: Sources, data: PairsConfig, found: Pairs) -> None:
    """Line by line of two texts. Bad lines are seen here: dropped by a reader, they would move all that follow."""
    if data.source:
        raise DataError("data.source picks columns of a table, not lines of two files", hint="leave it out")
    readers = [Reader(side, _reading(data), any_bytes=True, keep_records=True) for side in (sources, targets)]
    rows = itertools.zip_longest(*(_each_line(reader) for reader in readers))
    for number, (source, target) in enumerate(rows, start=1):
        if source is None or target is None:
            counts = [number - 1, number - 1]
            longer = 1 if source is None else 0
            counts[longer] += 1 + sum(1 for _ in rows)
            raise DataError(
                f"the sources have {counts[0]:,} lines and the targets {counts[1]:,}",
                hint="line n of the one is the translation of line n of the other",
            )
        (lines, index, text), (_, _, other) = source, target
        if not text.strip() and not other.strip():
            continue
        row = _decoded(text, other, data)
        if isinstance(row, Fault):
            readers[0].drop(lines, index, row)
        else:
            found.add(row, lines.source, lines.number(index))
    found.num_dropped = readers[0].num_dropped


def _each_line(reader: Reader) -> Iterator[tuple[LineBlock, int, bytes]]:
    for lines in reader.blocks():
        for index, text in enumerate(lines.split()):
            yield lines, index, text


def _decoded(source: bytes, target: bytes, data: PairsConfig) -> Row | Fault:
    texts = []
    for name, side in (("source", source), ("target", target)):
        try:
            texts.append(side.decode(errors=data.errors))
        except UnicodeDecodeError as error:
            hint = f"--set data.errors=replace puts U+FFFD there, {SKIP_HINT}"
            return Fault(f"has a {name} that is not UTF-8 at byte {error.start + 1}", hint)
        if b"\0" in side:
            return Fault(f"has a NUL in its {name}", f"is this a text? {SKIP_HINT}")
    return checked(texts[0], texts[1])
