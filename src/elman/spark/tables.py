"""From sorted columns that come in, a piece at a time, to the tries of `counts/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import ElmanError
from elman.counts.counting import Counts, smallest_type
from elman.counts.ngram import NgramModel
from elman.counts.smoothing import CountModel
from elman.counts.trie import Trie
from elman.spark.packing import LAST
from elman.spark.smoothing import Tables
from elman.spark.workers import Batches
from elman.text.spool import Spool

TYPES = {LAST: np.int32, "p": np.float32, "gamma": np.float64, "children": np.int64, "n": np.int64}


def collect_model(tables: Tables) -> NgramModel:
    """The back-off model of these tables, brought here."""
    trie, values, gammas = _collect(tables)
    log_probs, backoffs = [_log(level) for level in values], [_log(level) for level in gammas]
    return NgramModel(trie, log_probs, backoffs, reset_lines=tables.reset_lines)


def collect_counts(tables: Tables, *, alpha: float) -> CountModel:
    """The model of counts, brought here."""
    trie, values, _ = _collect(tables)
    kind = np.uint32 if max((int(level.max(initial=0)) for level in values), default=0) < 1 << 32 else np.int64
    counts = (values[0], *(level.astype(kind) for level in values[1:]))
    return CountModel(Counts(trie, counts), alpha=alpha, reset_lines=tables.reset_lines)


def _log(values: Array) -> Array:
    """As the local engine takes logarithms: in 32 bits."""
    with np.errstate(divide="ignore"):
        return np.log(values, dtype=np.float32)


def _collect(tables: Tables) -> tuple[Trie, list[Array], list[Array]]:
    """The trie, the value of each n-gram, and gamma of each n-gram that may be a history."""
    packing = tables.packing
    word_type = smallest_type(packing.pad)
    words, values = [np.arange(packing.pad, dtype=word_type)], [tables.unigrams]
    starts, gammas = [], []
    if tables.first_histories is not None:
        gamma, children = np.ones(packing.pad), np.zeros(packing.pad, np.int64)
        for row in tables.first_histories.toLocalIterator():
            children[row[LAST]] = row.children
            if tables.value == "p":
                gamma[row[LAST]] = row.gamma
        starts.append(_starts(children, tables.sizes[1]))
        gammas.append(gamma)
    for k, frame in enumerate(tables.frames, start=2):
        wanted = [LAST, tables.value]
        if k < tables.order:
            wanted += ["gamma", "children"] if tables.value == "p" else ["children"]
        spools = {name: Spool(TYPES[name], None) for name in wanted}
        for columns in sorted_columns(frame, packing.key(k), wanted):
            for name, column in columns.items():
                spools[name].append(column)
        found = {name: spool.finish() for name, spool in spools.items()}
        if len(found[LAST]) != tables.sizes[k - 1]:
            raise _inconsistent(f"{len(found[LAST]):,} instead of {tables.sizes[k - 1]:,} n-grams of order {k}")
        words.append(found[LAST].astype(word_type))
        values.append(found[tables.value])
        if k < tables.order:
            starts.append(_starts(found["children"], tables.sizes[k]))
            gammas += [found["gamma"]] if tables.value == "p" else []
    return Trie(packing.vocab_size, tuple(words), tuple(starts)), values, gammas


def _starts(children: Array, expected: int) -> Array:
    """Where the children of each n-gram begin; those of all must be all the n-grams of the next order."""
    starts = np.concatenate(([0], np.cumsum(children, dtype=np.int64)))
    if int(starts[-1]) != expected:
        raise _inconsistent(f"histories of {int(starts[-1]):,} n-grams, and there are {expected:,}")
    return starts.astype(np.uint32 if expected < 1 << 32 else np.int64)


def _inconsistent(what: str) -> ElmanError:
    return ElmanError(
        f"Spark's tables do not fit together: {what}",
        code="spark-failed",
        hint="did the input change while it was read? count again",
    )


def sorted_columns(frame: Any, key: list[str], wanted: list[str]) -> Iterator[dict[str, Array]]:
    """Columns of a table in the order of its key, as arrays, a piece at a time."""
    blobs = frame.orderBy(*key).select(*wanted).mapInArrow(_as_blobs, ", ".join(f"{name} binary" for name in wanted))
    for row in blobs.toLocalIterator():
        yield {name: np.frombuffer(row[name], TYPES[name]) for name in wanted}


def _as_blobs(batches: Batches) -> Batches:
    """Each batch as one row of bytes, which come over a thousand times as fast as rows."""
    import pyarrow as pa

    for batch in batches:
        columns = {
            name: pa.array([column.to_numpy(zero_copy_only=False).astype(TYPES[name]).tobytes()], pa.binary())
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        yield pa.record_batch(columns)
