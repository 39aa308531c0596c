"""Rows of two sides, a source and a target, from tables and records. Knows nothing of symbols.

A row with a missing side is an error, or dropped and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from elman.text.columns import join_columns
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources
from elman.text.settings import DataConfig

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
Choose = Callable[[LineBlock, Sequence[str]], Parse]


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
