"""A function of lines, run over a corpus on many machines; what it needs is shipped to each executor once."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elman.core.errors import DataError, WriteError
from elman.spark.lines import fault_in, open_lines, path_of
from elman.spark.workers import BadLineError, Batches, Reading, fault_of, raw_blocks
from elman.text.readers import LineBlock, Reader
from elman.text.settings import DataConfig

SCHEMA = (
    "block int, chunk int, value string, lines long, tokens long, unknown long, empty long, "
    "fault_line long, fault string, hint string, code string"
)


@dataclass(frozen=True)
class WrittenLines:
    """The results of some lines, a line for each but without the last newline, and their numbers."""

    text: str
    tokens: int
    unknown: int
    empty: int  # lines that are no text


Writer = Callable[[Reader, LineBlock], WrittenLines]


@dataclass(frozen=True)
class Totals:
    """Of a whole corpus."""

    lines: int
    tokens: int
    unknown: int
    empty: int


def map_lines(
    spark: Any,
    model: Path,
    source: str,
    output: str,
    *,
    data: DataConfig,
    units: str,
    make_writer: Callable[[str], Writer],
) -> Totals:
    """Write what a model says of each line of a text into a folder of parts, in the order of the lines.

    make_writer: makes the function of lines, on an executor, from the directory of the model there.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    _require_vacant(spark, output)
    lines = open_lines(spark, [source])
    job = _Job(lines.reading(data, units), make_writer, _ship(spark, model))
    # computed once: to be looked at for bad lines, to be sorted, to be written
    scored = lines.frame.mapInArrow(job, SCHEMA).persist(StorageLevel.DISK_ONLY)
    try:
        numbers = ("lines", "tokens", "unknown", "empty")
        rows = scored.groupBy("block").agg(*(fn.sum(name).alias(name) for name in numbers)).collect()
        _refuse_faults(scored, {row.block: row.lines for row in rows}, lines.places)
        parts = int(spark.conf.get("spark.sql.shuffle.partitions"))
        ordered = scored.repartitionByRange(parts, "block", "chunk").sortWithinPartitions("block", "chunk")
        ordered.select("value").write.text(path_of(output))
    finally:
        scored.unpersist()
    return Totals(*(sum(row[name] for row in rows) for name in numbers))


def _require_vacant(spark: Any, output: str) -> None:
    """Refuse a place that is taken before any work is done."""
    path = spark._jvm.org.apache.hadoop.fs.Path(path_of(output))
    if path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):
        raise WriteError(f"{output} is there already", code="out-exists", hint="choose another name, or remove it")


def _ship(spark: Any, model: Path) -> str:
    """Send the model to every executor, where it is unpacked once. -> its name there"""
    folder = Path(tempfile.mkdtemp(prefix="elman-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # an executor that comes late asks for it again
    with zipfile.ZipFile(folder / "model.zip", "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(model.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(model))
    spark.sparkContext.addArchive(f"{folder / 'model.zip'}#{folder.name}")
    return folder.name


def _refuse_faults(scored: Any, num_lines: dict[int, int], places: tuple[tuple[str, int], ...]) -> None:
    faults = scored.where("fault != ''").orderBy("block", "chunk").limit(1).collect()
    if faults:
        row = faults[0]
        path, start = places[row.block]
        before = sum(num_lines[block] for block, (other, _) in enumerate(places[: row.block]) if other == path)
        raise fault_in(path, before, row, begins_file=start == 0)


_writers: dict[str, Writer] = {}  # of this process of an executor, which is kept from task to task


@dataclass(frozen=True)
class _Job:
    """What runs on an executor."""

    reading: Reading
    make_writer: Callable[[str], Writer]
    archive: str  # the model, as it is called on executors

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import SparkFiles

        directory = SparkFiles.get(self.archive)
        if directory not in _writers:
            _writers[directory] = self.make_writer(directory)
        yield from self.run(batches, _writers[directory])

    def run(self, batches: Batches, write: Writer) -> Batches:
        """A row for the lines of each batch; the first bad line of a block ends what is written of it."""
        import pyarrow as pa

        reader = self.reading.reader(keep_empty=True)
        chunks: dict[int, int] = {}
        bad: set[int] = set()
        for block, lines in raw_blocks(batches, self.reading):
            chunk = chunks[block] = chunks.get(block, -1) + 1
            written, fault = WrittenLines("", 0, 0, 0), (0, "", "", "")
            if block not in bad:
                try:
                    written = write(reader, lines)
                except (BadLineError, DataError) as error:
                    bad.add(block)
                    fault = fault_of(error)
            row = (block, chunk, written.text, lines.num_read, written.tokens, written.unknown, written.empty, *fault)
            names, kinds = zip(*(column.split() for column in SCHEMA.split(", ")), strict=True)
            types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
            columns = [pa.array([value], types[kind]) for value, kind in zip(row, kinds, strict=True)]
            yield pa.record_batch(columns, names=list(names))
