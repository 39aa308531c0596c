"""What is tuned on held-out text: the few counts that are needed for it come here, the rest stay where they are."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array
from elman.counts.counting import Counts
from elman.counts.smoothing import CountModel
from elman.counts.trie import Trie
from elman.spark.counting import Levels
from elman.spark.packing import LAST
from elman.text.units.vocabulary import EOS_ID


def counts_for(levels: Levels, ids: Array) -> CountModel:
    """A model that scores this text as the one of all counts would: its own n-grams, and the totals of its histories."""
    packing, order = levels.packing, levels.order
    text = _with_starts(ids, packing.bos, reset_lines=levels.reset_lines)
    rows: dict[tuple[int, ...], int] = {(word,): word for word in range(packing.pad)}
    words, starts = [np.arange(packing.pad)], []
    counts = [levels.unigrams]
    totals: list[Array] = []
    for k in range(2, order + 1):
        wanted = _ngrams(text, k, packing.bos if levels.reset_lines else None)
        found, sums = _look_up(levels, wanted, k)
        level_totals = np.zeros(len(rows), np.int64)
        for history, total in sums.items():
            level_totals[rows[history]] = total
        totals.append(level_totals)
        keys = sorted(found)
        parents = np.array([rows[key[:-1]] for key in keys], np.int64)
        starts.append(np.searchsorted(parents, np.arange(len(rows) + 1)).astype(np.uint32))
        rows = {key: row for row, key in enumerate(keys)}
        words.append(np.array([key[-1] for key in keys], np.uint32))
        counts.append(np.array([found[key] for key in keys], np.int64))
    trie = Trie(packing.vocab_size, tuple(words), tuple(starts))
    return CountModel(Counts(trie, tuple(counts)), alpha=1.0, reset_lines=levels.reset_lines, totals=totals)


def _with_starts(ids: Array, bos: int, *, reset_lines: bool) -> Array:
    """The text after a start symbol; of lines read alone, each after one."""
    ids = np.asarray(ids, np.int64)
    if not reset_lines:
        return np.concatenate(([EOS_ID], ids))
    ends = np.flatnonzero(ids == EOS_ID) + 1
    return np.insert(ids, np.concatenate(([0], ends[ends < len(ids)])), bos)


def _ngrams(text: Array, order: int, bos: int | None) -> Array:
    """The different n-grams of a text that do not cross the start of a line. -> (n, order)"""
    size = max(0, len(text) - order + 1)
    windows = np.stack([text[k : k + size] for k in range(order)], axis=1)
    if bos is not None:
        windows = windows[(windows[:, 1:] != bos).all(axis=1)]
    return np.unique(windows, axis=0)


def _look_up(
    levels: Levels, wanted: Array, order: int
) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]]:
    """The counts of those n-grams that occur, and how often each of their histories was one."""
    import pyarrow as pa
    from pyspark.sql import functions as fn

    packing, frame = levels.packing, levels.frame(order)
    key, history = packing.key(order), packing.history(order)
    columns = packing.pack([wanted[:, i] for i in range(order)])
    table = pa.table([pa.array(column) for column in columns], names=key)
    asked = frame.sparkSession.createDataFrame(table)
    seen = frame.where(fn.col(LAST) != packing.pad)
    by_key = {
        tuple(row): ngram
        for row, ngram in zip(
            zip(*(c.tolist() for c in columns), strict=True), map(tuple, wanted.tolist()), strict=True
        )
    }
    found = seen.join(fn.broadcast(asked), key).select(*key, "n").collect()
    sums = (
        seen.join(fn.broadcast(asked.select(*history).distinct()), history).groupBy(*history).agg(fn.sum("n")).collect()
    )
    of_history = {row[:-1]: ngram[:-1] for row, ngram in by_key.items()}
    return (
        {by_key[tuple(row)[:-1]]: row.n for row in found},
        {of_history[tuple(row)[:-1]]: tuple(row)[-1] for row in sums},
    )
