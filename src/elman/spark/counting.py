"""Counts of all n-grams as DataFrames, one for each order. Integers only, so that no order of adding them matters.

The text is cut into windows of the highest order, which are counted; each lower order is counted from the order above: what an
n-gram occurs as the history of, and (for Kneser-Ney) behind how many different words it occurs. The table of each order is
partitioned by history, so that everything about a history is in one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.spark.lines import Surveyed
from elman.spark.packing import LAST, Packing
from elman.spark.workers import Batches, Windows
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID


@dataclass(frozen=True)
class Levels:
    """Counts of the n-grams of each order.

    frames[k - 2] for order k: its key, n (occurrences), c (different words before it, or 0). Those of order 1 are here: by id,
    the words and then the start symbol.
    """

    packing: Packing
    order: int
    reset_lines: bool
    frames: tuple[Any, ...]
    unigrams: Array  # occurrences
    continuations: Array  # different words before each

    def frame(self, order: int) -> Any:
        """The table of an order from 2 on."""
        return self.frames[order - 2]

    @property
    def num_tokens(self) -> int:
        """Of the text."""
        return int(self.unigrams[: self.packing.vocab_size].sum())

    def fingerprint(self) -> str:
        """Of the n-grams of the highest order and their counts, in whatever order they come."""
        from pyspark.sql import functions as fn

        if not self.frames:
            return f"ngrams-{hashlib.blake2b(self.unigrams.tobytes(), digest_size=8).hexdigest()}"
        hashed = fn.xxhash64(*self.packing.key(self.order), "n")
        found = self.frame(self.order).agg(fn.bit_xor(hashed)).first()[0] or 0
        return f"ngrams-{found % (1 << 64):016x}"


def count_levels(
    text: Surveyed, num_lines: int, tokenizer: Tokenizer, *, order: int, reset_lines: bool, continuations: bool
) -> Levels:
    """Count the n-grams of the first lines of a text."""
    packing = Packing(tokenizer.vocab_size)
    blocks = [block for block, first in text.first_lines.items() if first < num_lines]
    windows = Windows(
        part=text.part(0, num_lines),
        packing=packing,
        order=order,
        reset_lines=reset_lines,
        first_block=_first_with_text(text, blocks),
        following={} if reset_lines else _following(text, blocks, num_lines, tokenizer, order),
    )
    frame = _count_windows(text, windows, tokenizer)
    frames = []
    for k in range(order, 1, -1):
        frame = _stored(frame)
        frames.append(frame)
        frame = _level_below(frame, packing, k, continuations=continuations)
    unigrams, before = _collect_unigrams(frame, packing, reset_lines=reset_lines)
    return Levels(packing, order, reset_lines, tuple(reversed(frames)), unigrams, before)


def _stored(frame: Any) -> Any:
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)  # memory is for sorting


def _first_with_text(text: Surveyed, blocks: Sequence[int]) -> int:
    """The block with the first line."""
    ends = {block: text.first_lines.get(block + 1, text.num_lines) for block in blocks}
    return next(block for block in blocks if ends[block] > text.first_lines[block])


def _following(
    text: Surveyed, blocks: Sequence[int], num_lines: int, tokenizer: Tokenizer, order: int
) -> dict[int, tuple[int, ...]]:
    """The ids that come behind each block, up to order - 1, and none from behind the first `num_lines` lines."""
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    following: dict[int, tuple[int, ...]] = {}
    behind: tuple[int, ...] = ()
    for block in reversed(blocks):
        following[block] = behind
        head: list[int] = []
        lines_left = num_lines - text.first_lines[block]
        for symbol in text.heads[block]:
            if lines_left == 0:
                break
            head.append(EOS_ID if symbol is None else ids.get(symbol, 0))
            lines_left -= symbol is None
        behind = (*head, *behind)[: order - 1]
    return following


def _count_windows(text: Surveyed, windows: Windows, tokenizer: Tokenizer) -> Any:
    """How often each window of the highest order occurs."""
    from pyspark.sql import functions as fn

    frame = text.lines.frame
    shipped = frame.sparkSession.sparkContext.broadcast(tokenizer._spec)

    def cut(batches: Batches) -> Batches:
        return windows(batches, Tokenizer(shipped.value))

    cuts = frame.mapInArrow(cut, windows.schema())
    key, history = windows.packing.key(windows.order), windows.packing.history(windows.order)
    cuts = _by_history(cuts, history)
    return cuts.groupBy(*key).agg(fn.count("*").alias("n"), fn.lit(0).cast("long").alias("c"))


def _by_history(frame: Any, history: Sequence[str]) -> Any:
    """Rows of one history in one partition."""
    number = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    return frame.repartition(number, *history) if history else frame


def _level_below(frame: Any, packing: Packing, order: int, *, continuations: bool) -> Any:
    """The counts of the order below. A history's rows are in one partition, so their sum costs no shuffle."""
    from pyspark.sql import functions as fn

    zero, one = fn.lit(0).cast("long"), fn.lit(1).cast("long")
    lower = frame.groupBy(*packing.history(order)).agg(fn.sum("n").alias("n"))
    lower = lower.select(*packing.history_as_ngram(order), "n", zero.alias("c"))
    if continuations:
        seen = frame.where(fn.col(LAST) != packing.pad)
        lower = lower.union(seen.select(*packing.suffix(order), zero.alias("n"), one.alias("c")))
    lower = _by_history(lower, packing.history(order - 1))
    return lower.groupBy(*packing.key(order - 1)).agg(fn.sum("n").alias("n"), fn.sum("c").alias("c"))


def _collect_unigrams(frame: Any, packing: Packing, *, reset_lines: bool) -> tuple[Array, Array]:
    """Occurrences and continuations of each word; the start symbol is never predicted, nor the end that begins a stream."""
    counts = np.zeros((2, packing.vocab_size + 2), np.int64)
    for row in frame.collect():
        counts[:, row[LAST]] = row.n, row.c
    if reset_lines:
        counts[0, packing.bos] = 0
    else:
        counts[0, EOS_ID] -= 1
    return counts[0, : packing.pad], counts[1, : packing.pad]
