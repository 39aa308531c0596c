"""Rows of two sides, a source and a target, from tables and records. Knows nothing of symbols.

A row with a missing side is an error, or dropped and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from elman.core.errors import DataError
from elman.text.column_names import find_name, is_column_name
from elman.text.columns import join_columns
from elman.text.csv_rows import one_line
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources
from elman.text.records import parser_says
from elman.text.settings import ReadingConfig

_SURROGATES = re.compile("[\ud800-\udfff]")

Row = tuple[str, str]
Parse = Callable[[str], Row | Fault]


class Format(NamedTuple):
    """How the lines of a file are to be read, and whether its first row names the columns (None: by its look)."""

    parse: Parse
    header: bool | None = None
    note: str | None = None  # what the user should know about it


Choose = Callable[[LineBlock, Sequence[str]], Format]


@dataclass(frozen=True)
class Sides:
    """Which columns of a table, or keys of a record, are the source and the target of a row."""

    source: tuple[int | str, ...] = ()  # as chosen by the user; () for the usual ones
    target: tuple[int | str, ...] = ()
    spelled: tuple[int | str, ...] = ()
    usual: tuple[int, int] = (1, 2)  # columns of a table of two, where none are chosen
    source_names: Sequence[str] = ()  # usual keys of records
    target_names: Sequence[str] = ()
    hint: str = ""  # what a record looks like
    has_labels: bool = False  # a target of a record may be a number, or a list of labels
    needs_target: bool = True  # False: only sources are read, and targets may be missing


@dataclass
class Pairs:
    """Rows of a source and a target, and where each stands."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    num_dropped: int = 0
    _places: list[tuple[str, int]] = field(default_factory=list)  # the file and line of each row
    headers: list[str] = field(default_factory=list)  # first rows of files that were left out, and where they stood
    formats: list[str] = field(default_factory=list)  # what the user should know about how files were read

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Pairs:
        """Held-out rows of which it is no longer known where they stood."""
        found = cls()
        for number, (source, target) in enumerate(rows, start=1):
            found.add((source, target), "the held-out rows", number)
        return found

    def add(self, row: Row, source: str, number: int) -> None:
        """One more row, found in that line of that file."""
        self.sources.append(row[0])
        self.targets.append(row[1])
        self._places.append((source, number))

    def place(self, row: int) -> str:
        """`line 12 of pairs.tsv`"""
        name, number = self._places[row]
        return f"line {number} of {name}"

    def select(self, rows: Sequence[int]) -> Pairs:
        """Some of the rows, in order."""
        columns = (self.sources, self.targets, self._places)
        sources, targets, places = ([column[row] for row in rows] for column in columns)
        return Pairs(sources, targets, self.num_dropped, places, self.headers, self.formats)  # type: ignore[arg-type]

    def left_out(self) -> dict[str, int]:
        """How many lines are not among the rows, by the keys of `evaluate`."""
        counts = {"dropped_lines": self.num_dropped, "header_lines": len(self.headers)}
        return {name: count for name, count in counts.items() if count}

    def notes(self) -> list[str]:
        """What was left out, in sentences."""
        said = [f"{header} names the columns, and is left out (data.header=false keeps it)" for header in self.headers]
        return self.formats + said + [f"{self.num_dropped:,} bad lines were dropped"] * bool(self.num_dropped)

    def by_source(self) -> tuple[list[str], list[list[str]]]:
        """Every source once, in order of first appearance, and all its different targets."""
        references: dict[str, dict[str, None]] = {}
        for source, target in zip(self.sources, self.targets, strict=True):
            references.setdefault(source, {})[target] = None
        return list(references), [list(targets) for targets in references.values()]


def read_rows(sources: Sources, data: ReadingConfig, choose: Choose, found: Pairs, *, header: bool | None) -> None:
    """Add all rows of some files; `choose` says, by a file's first lines, how its lines are to be read.

    header: whether a file's first row names its columns; by its look if not given.
    """
    reader = Reader(sources, data, keep_records=True, header=header)
    for line in _each_row(reader, choose, header):
        if line.is_header:
            found.headers.append(f"{line.place}, {line.text.strip()!r},")
        elif isinstance(line.row, Fault):
            reader.drop(line.block, line.place_in_block, line.row)
        elif line.row is not None:
            found.add(line.row, line.block.source, line.block.number(line.place_in_block))
        if line.note is not None:
            found.formats.append(line.note)
    found.num_dropped = reader.num_dropped


class SourceLine(NamedTuple):
    """The source on one line of a file; None where the line is not understood and such are passed over."""

    text: str | None
    place: str


def read_sources(
    sources: Sources, data: ReadingConfig, choose: Choose, *, header: bool | None
) -> Iterator[list[SourceLine]]:
    """The sources on every line of some files but headers, as many at a time as were there to read; blank lines too."""
    reader = Reader(sources, data, keep_records=True, header=header, keep_lines=True)
    found: list[SourceLine] = []
    block: LineBlock | None = None
    for line in _each_row(reader, choose, header):
        if block is not line.block and found:
            yield found
            found = []
        block = line.block
        if line.is_header:
            continue
        if isinstance(line.row, Fault):
            reader.drop(line.block, line.place_in_block, line.row)  # an error, unless such lines are passed over
            found.append(SourceLine(None, line.place))
        else:
            found.append(SourceLine("" if line.row is None else line.row[0], line.place))
    if found:
        yield found


class _ReadLine(NamedTuple):
    """A line of a file, and the row on it: None for a blank line."""

    block: LineBlock
    place_in_block: int
    text: str
    row: Row | Fault | None
    is_header: bool
    note: str | None = None  # about the file, with its first line

    @property
    def place(self) -> str:
        return f"line {self.block.number(self.place_in_block)} of {self.block.source}"


def _each_row(reader: Reader, choose: Choose, header: bool | None) -> Iterator[_ReadLine]:
    name: str | None = None
    chosen: Format | None = None
    for block in reader.blocks():
        texts = block.data.decode().removesuffix("\n").split("\n")
        if name != block.source:
            name, chosen = block.source, None
        for index, text in enumerate(texts):
            if not text.strip():
                yield _ReadLine(block, index, text, None, is_header=False)
                continue
            is_first, note = chosen is None, None
            if chosen is None:
                chosen = choose(block, texts)
                note = chosen.note
            row = chosen.parse(text)
            if not isinstance(row, Fault):
                row = in_form(row, reader, block.source)
            names = header if chosen.header is None else chosen.header
            is_header = is_first and not block.has_records and (names_columns(row) if names is None else names)
            yield _ReadLine(block, index, text, row, is_header, note)


def in_form(row: Row, reader: Reader, source: str) -> Row:
    """Both sides as they are to be read."""
    return reader.read_text(row[0], source).strip(" "), reader.read_text(row[1], source).strip(" ")


def names_columns(row: Row | Fault) -> bool:
    """Whether both sides of a row are names that columns have, and so nothing that anyone says."""
    if isinstance(row, Fault):
        return False
    return row[0] != row[1] and all(is_column_name(side) for side in row)


def choose_parser(block: LineBlock, texts: Sequence[str], sides: Sides) -> Format:
    """For a file of records, or of a table."""
    first = next(text for text in texts if text.strip())
    if block.has_records:
        return _record_parser(block, first, sides)
    return _table_parser(block, first, sides)


def _table_parser(block: LineBlock, first: str, sides: Sides) -> Format:
    """Rows of as many columns as the first one; without a choice of columns there must be two, source and target.

    Where only sources are read, a row may also hold nothing but its source columns.
    """
    names = [name.strip() for name in first.split("\t")]
    by_name = [column for column in (*sides.source, *sides.target) if isinstance(column, str)]
    if by_name and not sides.needs_target and not set(by_name) & set(names):
        # no header, only sources: their columns as the model reads them
        sides = replace(sides, source=tuple(range(1, len(sides.source) + 1)), target=(1,), spelled=_renumbered(sides))
    is_chosen = bool(sides.source)
    source, target = (
        _numbers(chosen, names, block.source)
        for chosen in (sides.source or sides.usual[:1], sides.target or sides.usual[1:])
    )
    spelled = _numbers(sides.spelled, names, block.source)
    has_names = any(isinstance(column, str) for column in (*sides.source, *sides.target))
    expected = len(names) if is_chosen else 2
    needed = max(*source, *target)

    def parse(text: str) -> Row | Fault:
        columns = text.split("\t")
        if not sides.needs_target and len(columns) == len(source) != expected:
            return checked(join_columns(columns, source, spelled), "", needs_target=False)
        if not sides.needs_target and len(columns) == len(source) and needed > len(columns):
            return checked(join_columns(columns, source, spelled), "", needs_target=False)
        if len(columns) != expected or needed > len(columns):
            many = f"{len(columns)} column{'s' if len(columns) > 1 else ''}"
            hint = f"look for a stray tab; {SKIP_HINT}"
            if not is_chosen and len(columns) > 2:
                hint = f"data.source=1,3 data.target=2 picks columns; {SKIP_HINT}"
            wanted_columns = max(expected, needed) if sides.needs_target else len(source)
            return Fault(f"has {many}, expected {wanted_columns}", hint)
        read, wanted = ([columns[column - 1] for column in side] for side in (source, target))
        return checked(join_columns(read, source, spelled), " ".join(wanted), needs_target=sides.needs_target)

    return Format(parse, True if has_names else None)


def _renumbered(sides: Sides) -> tuple[int, ...]:
    return tuple(sides.source.index(column) + 1 for column in sides.spelled)


def _numbers(columns: Sequence[int | str], names: Sequence[str], file: str) -> tuple[int, ...]:
    """The numbers of columns, from 1; those given by name are looked up in the first row."""
    found = []
    for column in columns:
        if isinstance(column, int):
            found.append(column)
            continue
        if column not in names:
            raise DataError(
                f"{file} has no column {column!r}: its first row is {', '.join(map(repr, names[:10]))}",
                code="unknown-column",
                hint="data.source and data.target take names of the first row, or numbers from 1",
            )
        found.append(names.index(column) + 1)
    return tuple(found)


def _record_parser(block: LineBlock, first: str, sides: Sides) -> Format:
    """Values of JSON objects by their keys: those chosen, or the usual ones that the first object has."""
    record = _load(first)
    keys = [] if isinstance(record, Fault) else list(record)
    if any(isinstance(column, int) for column in (*sides.source, *sides.target)) and block.kind == "records":
        raise DataError(
            f"{block.source} is JSONL, whose columns have no numbers",
            code="unknown-column",
            hint=f"use its keys: {', '.join(keys[:10])}",
        )
    source, target = (
        tuple(keys[column - 1] if isinstance(column, int) and column <= len(keys) else str(column) for column in side)
        for side in (sides.source, sides.target)
    )
    note = None
    if not source and keys:
        found = (
            find_name(keys, sides.source_names),
            find_name([key for key in keys if key != find_name(keys, sides.source_names)], sides.target_names),
        )
        source, target = tuple((name,) if name is not None else () for name in found)
        if not source or (sides.needs_target and not target):
            missing = sides.source_names[0] if not source else sides.target_names[0]
            raise DataError(
                f"line 1 of {block.source} has no `{missing}`: its keys are {', '.join(keys[:10])}",
                code="unknown-column",
                hint=f"{sides.hint}; data.source=KEY data.target=KEY says which they are",
            )
        if (source[0], *target) != (sides.source_names[0], *sides.target_names[: len(target)]):
            chosen = f"{source[0]!r}" + (f" and {target[0]!r}" if target else "")
            note = f"of {block.source} the columns {chosen} are read (data.source and data.target choose others)"

    hint = sides.hint
    if sides.source and keys:  # the usual keys were not asked for
        hint = f"the first record has {', '.join(keys[:10])}"

    def parse(text: str) -> Row | Fault:
        record = _load(text)
        if isinstance(record, Fault):
            return record
        read = [_value(record, key, hint) for key in source]
        wanted = [_value(record, key, hint, is_label=sides.has_labels) for key in target]
        for value in read if not sides.needs_target else (*read, *wanted):
            if isinstance(value, Fault):
                return value
        texts = [value for value in read if isinstance(value, str)]
        joined = " ".join(value for value in wanted if isinstance(value, str))
        return checked(
            join_columns(texts, sides.source or source, sides.spelled), joined, needs_target=sides.needs_target
        )

    return Format(parse, False, note)


def _load(text: str) -> dict[str, Any] | Fault:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault("is not JSON", f"{parser_says(error)}; {SKIP_HINT}")
    return record if isinstance(record, dict) else Fault("is not a JSON object", SKIP_HINT)


def _value(record: dict[str, Any], key: str, hint: str, *, is_label: bool = False) -> str | Fault:
    """A string of a JSON object; a label may be a number or a list of labels too."""
    value = record.get(key)
    if value is None:
        return Fault(f"has no `{key}`", f"{hint}; {SKIP_HINT}")
    if is_label and isinstance(value, int | float):
        value = str(value)
    if is_label and isinstance(value, list):
        value = ",".join(map(str, value)) or "-"
    if not isinstance(value, str) or _SURROGATES.search(value):
        return Fault(f"has a `{key}` that is not text", f"{hint}; {SKIP_HINT}")
    return one_line(value)


def checked(source: str, target: str, *, needs_target: bool = True) -> Row | Fault:
    """A row, or what is wrong with it."""
    source, target = source.strip(" \t\r"), target.strip(" \t\r")
    for name, side in (("source", source), ("target", target)):
        if not side and needs_target:
            return Fault(f"has an empty {name}", f"both sides must say something; {SKIP_HINT}")
    return source, target
