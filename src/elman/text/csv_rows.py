"""CSV as spreadsheets and data frames write it: quotes, line breaks in cells, a first row of names."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator
from typing import IO

from elman.core.errors import DataError
from elman.text.column_names import is_column_name

DELIMITERS = ",;\t|"
SAMPLE_LINES = 50  # lines from which the delimiter is guessed
MAX_CELL = 1 << 28  # characters of a cell, at most
_BREAK = re.compile(r"\s*[\r\n]\s*")
_NAME = re.compile(r"[^\W\d][\w .\-/()]{0,40}")


def one_line(text: str) -> str:
    """A cell of a table or a value of a record as one line: line breaks become spaces, all else stays as it is."""
    return _BREAK.sub(" ", text) if "\n" in text or "\r" in text else text


def csv_as_lines(file: IO[bytes], name: str, *, header: bool | None) -> tuple[Iterator[bytes], bool]:
    """The rows of a CSV file, a line each, and whether its columns have names.

    With names a line is a JSON object; without, the cells with tabs between them. Line breaks in cells become spaces,
    and so do tabs where they part the cells.
    header: whether the first row has the names; by its look if not given.
    """
    csv.field_size_limit(MAX_CELL)
    lines = (line.decode(errors="surrogateescape") for line in file)
    start = list(itertools.islice(lines, SAMPLE_LINES))
    start[:1] = [line.removeprefix("\ufeff") for line in start[:1]]
    rows = csv.reader(itertools.chain(start, lines), delimiter=_find_delimiter("".join(start)), strict=False)
    guarded = _guarded(rows, name)
    first = next(guarded, None)
    if first is None:
        return iter(()), False
    if looks_like_names(first) if header is None else header:
        names = [cell.strip() for cell in first]
        return (_as_record(names, row) for row in guarded), True
    kept = [] if header else [first]
    return (_as_cells(row) for row in itertools.chain(kept, guarded)), False


def _find_delimiter(sample: str) -> str:
    try:
        return csv.Sniffer().sniff(sample, delimiters=DELIMITERS).delimiter
    except csv.Error:
        return ","


def looks_like_names(cells: list[str]) -> bool:
    """Whether a first row names the columns: short different names, of which at least one is a usual one."""
    names = [cell.strip() for cell in cells]
    are_names = all(_NAME.fullmatch(name) and len(name.split()) <= 4 for name in names)
    return are_names and len(set(names)) == len(names) and any(is_column_name(name) for name in names)


def begins_like_csv(start: bytes) -> bool:
    """Whether the first line of a pipe names the columns of a CSV file; prose has a space behind its commas."""
    first = start.partition(b"\n")[0].decode(errors="replace").removeprefix("\ufeff").strip()
    cells = next(csv.reader([first], delimiter=";" if ";" in first else ","), [])
    return len(cells) > 1 and cells == [cell.strip() for cell in cells] and looks_like_names(cells)


def _guarded(rows: Iterator[list[str]], name: str) -> Iterator[list[str]]:
    try:
        yield from (row for row in rows if row)
    except csv.Error as error:
        raise DataError(
            f"{name} is not CSV: {error}", code="wrong-format", hint="a quote that is never closed?"
        ) from None


def _as_record(names: list[str], row: list[str]) -> bytes:
    cells = {name: one_line(cell) for name, cell in itertools.zip_longest(names, row[: len(names)], fillvalue="")}
    return json.dumps(cells, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"


def _as_cells(row: list[str]) -> bytes:
    return "\t".join(one_line(cell).replace("\t", " ") for cell in row).encode(errors="surrogateescape") + b"\n"
