"""The lines of a corpus as a DataFrame, in an order: files by name, blocks of a file by place, lines as they lie.

Spark reads files in blocks, in parallel and in no order. A first look at each block (`workers.survey`) says how many lines it
has, so that each line has one number in the whole text, as it would on one machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from elman.core.errors import DataError, MissingError, UsageError
from elman.spark.workers import SURVEY_SCHEMA, TEXT_SCHEMA, Part, Reading, give_text, shipped, survey
from elman.text.opening import MemorySource, name_without_compression
from elman.text.readers import STDIN, Sources
from elman.text.settings import DataConfig
from elman.text.units.forms import Form
from elman.text.units.guess import SAMPLE_BYTES, guess_units

PARQUET_COLUMN = "text"
REFUSED = (".jsonl", ".ndjson", ".csv", ".json")
UNITS = ("space", "word", "char")  # that are learned symbol by symbol


@dataclass(frozen=True)
class Lines:
    """(block, value): lines, each ended by a newline, and where each block is from."""

    frame: Any
    places: tuple[tuple[str, int], ...]  # of each block: its file, and the byte it begins at

    def reading(self, data: DataConfig, units: str) -> Reading:
        """How they are read."""
        firsts = frozenset(i for i, (_, start) in enumerate(self.places) if start == 0)
        return Reading(data, units, firsts)


def open_lines(spark: Any, sources: Sources) -> Lines:
    """The lines of files, directories and whatever else Spark reads by a name."""
    from pyspark.sql import functions as fn

    frames = [_open_one(spark, _pattern(source), number) for number, source in enumerate(sources)]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    keys = ("source", "path", "start")
    found = [tuple(row) for row in frame.select(*keys).distinct().collect()]
    if not found:
        raise DataError("the input is empty", code="empty-data", hint="it needs at least one line of text")
    found.sort(key=lambda key: (key[0], PurePosixPath(unquote(key[1])), key[2]))
    numbers = spark.createDataFrame(
        [(*key, number) for number, key in enumerate(found)], "source int, path string, start long, block int"
    )
    frame = frame.join(fn.broadcast(numbers), list(keys)).select("block", "value")
    return Lines(frame, tuple((_shown(path), start) for _, path, start in found))


def _open_one(spark: Any, uri: str, number: int) -> Any:
    from pyspark.sql import functions as fn

    files = spark.read.option("recursiveFileLookup", "true").text(uri).inputFiles()
    if not files:
        raise MissingError(f"there are no files in {uri}", hint="a name that begins with _ or . is passed over")
    plain = {name_without_compression(name) for name in files}
    if any(name.endswith(REFUSED) for name in plain):
        raise UsageError(
            f"the engine spark reads lines of text and Parquet, and {_shown(files[0])} is neither",
            code="does-not-apply",
            hint="count.engine=local reads it; or write its texts to lines, or to Parquet with a column text",
        )
    place = (fn.col("_metadata.file_path").alias("path"), fn.col("_metadata.file_block_start").alias("start"))
    if any(name.endswith(".parquet") for name in plain):
        table = spark.read.option("recursiveFileLookup", "true").parquet(uri)
        if PARQUET_COLUMN not in table.columns:
            raise DataError(
                f"{uri} has no column {PARQUET_COLUMN}",
                code="unknown-column",
                hint=f"its columns: {', '.join(table.columns)}",
            )
        value = fn.coalesce(fn.col(PARQUET_COLUMN), fn.lit(""))  # a text of several lines is several lines
        frame = table.select(*place, fn.explode(fn.split(value, "\n")).alias("value"))
    else:
        frame = (
            spark.read.option("recursiveFileLookup", "true").option("lineSep", "\n").text(uri).select(*place, "value")
        )
    ended = fn.concat(fn.col("value").cast("binary"), fn.lit(b"\n"))
    return frame.select(fn.lit(number).alias("source"), "path", "start", ended.alias("value"))


def path_of(source: Any) -> str:
    """A name as Spark takes it: a path of this machine is said to be one."""
    if isinstance(source, MemorySource) or str(source) == STDIN:
        raise UsageError(
            f"the engine spark reads files, not {'stdin' if str(source) == STDIN else 'texts out of Python'}",
            code="does-not-apply",
            hint="give the name of a file or folder",
        )
    name = str(source)
    if urlsplit(name).scheme and "://" in name:
        return name
    if ":/" in name and not Path(name).exists():  # hdfs:///x, of which a Path has taken slashes away
        scheme, _, rest = name.partition(":/")
        has_host = scheme not in ("hdfs", "file") or set(":.") & set(rest.partition("/")[0])
        return f"{scheme}://{rest}" if has_host else f"{scheme}:///{rest}"
    return f"file://{Path(name).absolute()}"


def _pattern(source: Any) -> str:
    """A name to read: Spark takes `*` and the like for patterns, unless there is a file of that very name."""
    name = path_of(source)
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", name) if Path(str(source)).exists() else name


def _shown(uri: str) -> str:
    """A place as a user knows it."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def choose_units(lines: Lines, data: DataConfig, notes: list[str]) -> str:
    """The units asked for, or those that suit the beginning of the text."""
    units = data.units
    if units == "auto" and data.separator is not None:
        units = "space"
    if units == "auto":
        guess = guess_units(_sample(lines))
        notes.append(f"units: {guess.units}, because {guess.why} (--units chooses others)")
        units = guess.units
    if units not in UNITS:
        raise UsageError(
            f"the engine spark does not count {units} units",
            code="does-not-apply",
            hint=f"it counts {', '.join(UNITS)}",
        )
    return units


def _sample(lines: Lines) -> bytes:
    sample, size = [], 0
    for row in lines.frame.where("block = 0").toLocalIterator():
        sample.append(bytes(row.value))
        size += len(sample[-1])
        if size >= SAMPLE_BYTES:
            break
    return b"".join(sample)[:SAMPLE_BYTES]


@dataclass(frozen=True)
class Surveyed:
    """A text whose lines have numbers."""

    lines: Lines
    reading: Reading
    first_lines: Mapping[int, int]  # of each block, in the whole text
    num_lines: int
    num_bytes: int
    last_text: int  # the last line that is not blank; 0 if there is none
    num_dropped: int
    form: Form | None
    heads: Mapping[int, tuple[str | None, ...]]  # the first tokens of each block, None for the end of a line

    def part(self, begin: int, end: int) -> Part:
        """Some of its lines."""
        return Part(self.reading, self.first_lines, begin, end)

    def texts(self, begin: int, end: int) -> Iterator[bytes]:
        """Some of its lines, in order, brought here."""
        blocks = [block for block, first in self.first_lines.items() if first < end]
        begun = [block for block in blocks if self.first_lines[block] <= begin]
        frame = self.lines.frame.where(f"block >= {begun[-1] if begun else 0} and block <= {blocks[-1]}")
        rows = frame.mapInArrow(shipped(give_text, part=self.part(begin, end)), TEXT_SCHEMA)
        for row in rows.orderBy("line").toLocalIterator():
            yield bytes(row.data)


def survey_lines(lines: Lines, data: DataConfig, units: str, *, head_tokens: int) -> Surveyed:
    """Count the lines of each block, and refuse a text with a bad one."""
    reading = lines.reading(data, units)
    rows = lines.frame.mapInArrow(shipped(survey, reading=reading, head_tokens=head_tokens), SURVEY_SCHEMA).collect()
    found = {row.block: row for row in rows}
    if len(found) != len(rows) or len(found) != len(lines.places):
        raise DataError(
            "the input changed while it was read", code="data-changed", hint="count again when nobody writes there"
        )
    first_lines, read, num_lines, last_text = {}, dict[str, int](), 0, 0
    for block in range(len(lines.places)):
        row, (path, start) = found[block], lines.places[block]
        if row.fault:
            raise fault_in(path, read.get(path, 0), row, begins_file=start == 0)
        read[path] = read.get(path, 0) + row.raw_lines
        first_lines[block] = num_lines
        last_text = num_lines + row.last_text if row.last_text >= 0 else last_text
        num_lines += row.lines
    if not num_lines:
        raise DataError("the input is empty", code="empty-data", hint="it needs at least one line of text")
    forms = set[Form]({"NFC", "NFD"}).intersection(*(row.forms.split() for row in rows))
    return Surveyed(
        lines,
        reading,
        first_lines,
        num_lines,
        sum(row.bytes for row in rows),
        last_text,
        sum(row.dropped for row in rows),
        next(iter(forms)) if len(forms) == 1 else None,
        {block: tuple(row.head) for block, row in found.items()},
    )


def fault_in(path: str, lines_before: int, row: Any, *, begins_file: bool) -> DataError:
    """The error of a bad line in a block, by its number in the file; or of the file as a whole."""
    if not row.fault_line:
        return DataError(row.fault.replace("the text", path, 1), code=row.code, hint=row.hint or None)
    number = row.fault_line if begins_file else lines_before + row.fault_line - 1
    return DataError(f"line {number} of {path} {row.fault}", code=row.code, hint=row.hint or None)
