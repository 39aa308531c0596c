"""Pairs of a source and a target, from tables, aligned files, JSONL and SCAN. Knows nothing of symbols.

A pair with a missing side is an error, or dropped and counted. Several rows with one source are several references.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from elman.core.errors import DataError
from elman.text.columns import join_columns
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, Lines, Reader, Sources, is_jsonl
from elman.text.settings import DataConfig, PairsConfig

_SCAN = re.compile(r"IN: (.*) OUT: (.*)")
_RECORD_HINT = 'a record looks like {"source": "...", "target": "..."}'
_SURROGATES = re.compile("[\ud800-\udfff]")

_COLUMN_NAME = re.compile(
    "text|sentence[12]?|phrase|review|document|content|title|headline|tweet|message|comment|utterance|"
    "labels?|class|category|topic|sentiment|polarity|stars|score|rating|intent|emotion|"
    "source|src|input|target|tgt|trg|output|question|query|answer|translation|summary|"
    "word|lemma|form|features|pronunciation|en|de|fr|es",
    re.IGNORECASE,
)

Row = tuple[str, str]
Parse = Callable[[str], Row | Fault]
Choose = Callable[[Lines, Sequence[str]], Parse]


@dataclass
class Pairs:
    """Rows of a source and a target, and where each stands."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    num_dropped: int = 0
    _places: list[tuple[str, int]] = field(default_factory=list)  # the file and line of each row
    headers: list[str] = field(default_factory=list)  # first rows of files that were left out, and where they stood

    def __len__(self) -> int:
        return len(self.sources)

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
        return Pairs(sources, targets, self.num_dropped, places, self.headers)  # type: ignore[arg-type]

    def left_out(self) -> dict[str, int]:
        """How many lines are not among the rows, by the keys of `evaluate`."""
        counts = {"dropped_lines": self.num_dropped, "header_lines": len(self.headers)}
        return {name: count for name, count in counts.items() if count}

    def notes(self) -> list[str]:
        """What was left out, in sentences."""
        said = [f"{header} names the columns, and is left out (data.header=false keeps it)" for header in self.headers]
        return said + [f"{self.num_dropped:,} bad lines were dropped"] * bool(self.num_dropped)

    def by_source(self) -> tuple[list[str], list[list[str]]]:
        """Every source once, in order of first appearance, and all its different targets."""
        references: dict[str, dict[str, None]] = {}
        for source, target in zip(self.sources, self.targets, strict=True):
            references.setdefault(source, {})[target] = None
        return list(references), [list(targets) for targets in references.values()]


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


def read_rows(sources: Sources, data: DataConfig, choose: Choose, found: Pairs, *, header: bool | None) -> None:
    """Add all rows of some files; `choose` says, by a file's first lines, how its lines are to be read.

    header: whether a file's first row names its columns; by its look if not given.
    """
    reader = Reader(sources, data, keep_records=True)
    name, parse = None, None
    for lines in reader.blocks():
        texts = lines.data.decode().removesuffix("\n").split("\n")
        if not any(text.strip() for text in texts):
            continue
        is_first = parse is None or name != lines.source
        if parse is None or is_first:
            name, parse = lines.source, choose(lines, texts)
        for index, text in enumerate(texts):
            if not text.strip():
                continue
            row = parse(text)
            if is_first and (names_columns(row) if header is None else header):
                found.headers.append(f"line {lines.number(index)} of {lines.source}, {text.strip()!r},")
            elif isinstance(row, Fault):
                reader.drop(lines, index, row)
            else:
                found.add(row, lines.source, lines.number(index))
            is_first = False
    found.num_dropped = reader.num_dropped


def names_columns(row: Row | Fault) -> bool:
    """Whether both sides of a row are names that columns have, and so nothing that anyone says."""
    if isinstance(row, Fault):
        return False
    return row[0] != row[1] and all(_COLUMN_NAME.fullmatch(side) for side in row)


def _choose_format(lines: Lines, texts: Sequence[str], data: PairsConfig) -> Parse:
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


def table_parser(
    texts: Sequence[str],
    source: tuple[int, ...],
    target: tuple[int, ...],
    *,
    usual: tuple[int, int],
    spelled: tuple[int, ...] = (),
) -> Parse:
    """Rows of as many columns as the first one; without a choice of columns there must be two, source and target."""
    is_chosen = bool(source)
    first = next(text for text in texts if text.strip())
    expected = first.count("\t") + 1 if is_chosen else 2
    source, target = source or usual[:1], target or usual[1:]
    needed = max(*source, *target)

    def parse(text: str) -> Row | Fault:
        columns = text.split("\t")
        if len(columns) != expected or needed > len(columns):
            many = f"{len(columns)} column{'s' if len(columns) > 1 else ''}"
            hint = f"look for a stray tab; {SKIP_HINT}"
            if not is_chosen and len(columns) > 2:
                hint = f"data.source=1,3 data.target=2 picks columns; {SKIP_HINT}"
            return Fault(f"has {many}, expected {max(expected, needed)}", hint)
        read, wanted = ([columns[column - 1] for column in side] for side in (source, target))
        return checked(join_columns(read, source, spelled), " ".join(wanted))

    return parse


def _parse_scan(text: str) -> Row | Fault:
    found = _SCAN.fullmatch(text)
    if not found:
        return Fault("is not of the form IN: ... OUT: ...", SKIP_HINT)
    return checked(found[1], found[2])


def _parse_record(text: str) -> Row | Fault:
    return parse_record(text, ("source", "target"), _RECORD_HINT)


def parse_record(text: str, names: tuple[str, str], hint: str) -> Row | Fault:
    """Two strings of a JSON object; a `label` may be a number or a list of labels too."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault("is not JSON", f"the parser says: {error}; {SKIP_HINT}")
    if not isinstance(record, dict):
        return Fault("is not a JSON object", f"{hint}; {SKIP_HINT}")
    sides = []
    for name in names:
        side = record.get(name)
        if side is None:
            return Fault(f"has no `{name}`", f"{hint}; {SKIP_HINT}")
        if isinstance(side, int | float) and name == "label":
            side = str(side)
        if isinstance(side, list) and name == "label":
            side = ",".join(map(str, side)) or "-"
        if not isinstance(side, str) or _SURROGATES.search(side) or "\n" in side:
            return Fault(f"has a `{name}` that is not one line of text", f"{hint}; {SKIP_HINT}")
        sides.append(side)
    return checked(sides[0], sides[1])


def checked(source: str, target: str) -> Row | Fault:
    """A row, or what is wrong with it."""
    source, target = source.strip(" \t\r"), target.strip(" \t\r")
    for name, side in (("source", source), ("target", target)):
        if not side:
            return Fault(f"has an empty {name}", f"both sides must say something; {SKIP_HINT}")
    return source, target


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


def _each_line(reader: Reader) -> Iterator[tuple[Lines, int, bytes]]:
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
