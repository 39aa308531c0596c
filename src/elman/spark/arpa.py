"""A model too large for one machine, as ARPA: a folder of parts that are one file when they are read one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import WriteError
from elman.counts.arpa import arpa_header, arpa_symbols, log10s_of
from elman.spark.packing import LAST, Packing
from elman.spark.smoothing import Tables
from elman.spark.workers import Batches

DECIMALS = 9  # of logarithms: more than a 32-bit float has


def write_parts(tables: Tables, tokens: Sequence[str], folder: str, *, units: str, overwrite: bool) -> None:
    """Write part-00-00000, part-01-00000 … into a folder, anywhere that Spark writes. The header is written last."""
    from pyspark.sql import functions as fn

    symbols = arpa_symbols(tokens)
    spark = tables.first_histories.sparkSession
    place = _Folder(spark, folder)
    place.prepare(overwrite=overwrite)
    place.write(_name(1, 0), "\n\\1-grams:\n" + _unigram_lines(tables, symbols))
    shared = spark.sparkContext.broadcast(symbols)
    for k, frame in enumerate(tables.frames, start=2):
        place.write(_name(k, 0), f"\n\\{k}-grams:\n")
        columns = [*tables.packing.key(k), "p", *(["gamma"] if k < tables.order else [])]
        lines = (
            frame.orderBy(*tables.packing.key(k))
            .select(*columns)
            .mapInArrow(_formatter(tables.packing, k, shared), "value string")
        )
        place.write_frame(lines.where(fn.length("value") > 0), k)
    place.write(_name(99, 0), "\n\\end\\\n")
    place.write(_name(0, 0), arpa_header(tables.sizes, units))


def _name(order: int, number: int) -> str:
    return f"part-{order:02d}-{number:05d}"


def _formatter(packing: Packing, order: int, shared: Any) -> Any:
    """A function of batches: each as the lines of its n-grams in one row."""

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        symbols = pa.array(shared.value, pa.string())
        for batch in batches:
            columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            words = [*packing.unpack([columns[name] for name in packing.history(order)], order - 1), columns[LAST]]
            gamma = columns.get("gamma")
            text = arpa_lines([symbols.take(pa.array(word)) for word in words], columns["p"], gamma)
            yield pa.record_batch({"value": pa.array([text], pa.string())})

    return run


def arpa_lines(words: Sequence[Any], probs: Array, gamma: Array | None) -> str:
    """The lines of n-grams, the words given as Arrow arrays of text; the last one is not ended."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with np.errstate(divide="ignore"):
        numbers = [np.minimum(log10s_of(np.log(probs, dtype=np.float32)), 0.0)]
        numbers += [] if gamma is None else [log10s_of(np.log(gamma, dtype=np.float32))]
    written = [pc.cast(pa.array(np.round(column, DECIMALS)), pa.string()) for column in numbers]
    ngrams = words[0] if len(words) == 1 else pc.binary_join_element_wise(*words, " ")
    lines = pc.binary_join_element_wise(written[0], ngrams, *written[1:], "\t")
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    joined: str = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py()
    return joined


def _unigram_lines(tables: Tables, symbols: Sequence[str]) -> str:
    import pyarrow as pa

    gamma = np.ones(tables.packing.pad)
    for row in tables.first_histories.toLocalIterator():
        gamma[row[LAST]] = row.gamma
    probs = tables.unigrams.copy()
    probs[tables.packing.bos] = 1  # as in KenLM's files, so that scoring <s> adds nothing
    return arpa_lines([pa.array(symbols, pa.string())], probs, gamma if tables.order > 1 else None) + "\n"


class _Folder:
    """A folder of any file system that Spark knows."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._hadoop = spark._jvm.org.apache.hadoop.fs
        self._folder = folder.rstrip("/")
        self._files = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._folder}/{name}" if name else self._folder)

    def prepare(self, *, overwrite: bool) -> None:
        """Make it, without parts of another model."""
        self._files.mkdirs(self._path(""))
        for status in self._files.listStatus(self._path("")):
            name = status.getPath().getName()
            if name.startswith(("part-", "_new-")):
                if not overwrite and name.startswith("part-"):
                    raise WriteError(
                        f"there are parts of a model in {self._folder}", code="out-exists", hint="remove them first"
                    )
                self._files.delete(status.getPath(), True)

    def write(self, name: str, text: str) -> None:
        """A small file, whole or not at all."""
        stream = self._files.create(self._path(f"_new-{name}"), True)
        stream.write(text.encode())
        stream.close()
        self._files.rename(self._path(f"_new-{name}"), self._path(name))

    def write_frame(self, lines: Any, order: int) -> None:
        """The parts of an order, in order."""
        new = f"_new-{order:02d}"
        lines.write.mode("overwrite").text(f"{self._folder}/{new}")
        names = sorted(status.getPath().getName() for status in self._files.listStatus(self._path(new)))
        for number, name in enumerate((name for name in names if name.startswith("part-")), start=1):
            self._files.rename(self._path(f"{new}/{name}"), self._path(_name(order, number)))
        self._files.delete(self._path(new), True)
