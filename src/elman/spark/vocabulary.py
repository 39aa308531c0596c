"""The vocabulary of a corpus, by the local engine's rule: the most frequent symbols first, ties by first appearance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elman.core.errors import DataError
from elman.spark.workers import SYMBOLS_SCHEMA, Part, count_symbols, shipped
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, UNK
from elman.text.unknown import SAMPLED_WORDS


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and words like those that it will not know."""

    tokenizer: Tokenizer
    rare_words: list[str]


def learn_vocabulary(frame: Any, part: Part) -> Vocabulary:
    """Count the symbols of some lines, and choose."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    data, units = part.reading.data, part.reading.units
    counted = frame.mapInArrow(shipped(count_symbols, part=part), SYMBOLS_SCHEMA)
    types = counted.groupBy("symbol").agg(fn.sum("n").alias("n"), fn.min("first").alias("first"))
    types = types.persist(StorageLevel.DISK_ONLY)
    try:
        marked = types.where(fn.col("symbol") == UNK).count() > 0 and units != "char"
        words = types.where(fn.col("symbol") != UNK) if marked else types
        everything = marked or units == "char"
        chosen = words if everything else words.where(fn.col("n") >= data.min_count)
        chosen = chosen.orderBy(fn.desc("n"), fn.asc("first"))
        rows = (chosen if everything else chosen.limit(data.max_words)).select("symbol", "n", "first").collect()
        if not types.take(1):
            raise DataError("there is nothing to train on: every line is blank", code="empty-data")
        if not rows:
            what = f"the vocabulary is empty: no word is in the training text {data.min_count} times"
            raise DataError(what, code="empty-data", hint="--set data.min_count=1 keeps every word")
        tokens = [UNK, EOS, *(row.symbol for row in rows)]
        tokenizer = Tokenizer(TokenizerSpec(units, tokens, data.separator, normalize=data.normalize))
        if units == "char" or marked:
            return Vocabulary(tokenizer, [])
        last = rows[-1]
        is_rare = (fn.col("n") < last.n) | ((fn.col("n") == last.n) & (fn.col("first") > last.first))
        rare_words = _sample_rare(types.where(is_rare))
        # where all were chosen: the rarer half of them once each, evenly drawn
        return Vocabulary(tokenizer, rare_words or _evenly(tokens[2:][len(rows) // 2 :]))
    finally:
        types.unpersist()


def _evenly(words: list[str]) -> list[str]:
    size = min(len(words), SAMPLED_WORDS)
    return [words[i * len(words) // size] for i in range(size)]


def _sample_rare(types: Any) -> list[str]:
    """Of words in the order of their first appearance, each as often as it is there, evenly drawn if they are many."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    total = types.agg(fn.sum("n")).first()[0]
    if not total:
        return []
    size = min(total, SAMPLED_WORDS)
    ordered = types.orderBy("first").withColumn("part", fn.spark_partition_id()).persist()
    sums = {row.part: row.n for row in ordered.groupBy("part").agg(fn.sum("n").alias("n")).collect()}
    before, bases = 0, []
    for part in sorted(sums):
        bases.append((part, before))
        before += sums[part]
    base = fn.broadcast(types.sparkSession.createDataFrame(bases, "part int, base long"))
    ends = fn.col("base") + fn.sum("n").over(Window.partitionBy("part").orderBy("first"))

    def draws(place: Any) -> Any:
        """How many of the `size` evenly drawn places, i * total // size, are below a place."""
        return fn.expr(f"({place} * {size} + {total - 1}) div {total}")

    found = (
        ordered.join(base, "part")
        .withColumn("end", ends)
        .withColumn("begin", fn.col("end") - fn.col("n"))
        .withColumn("times", draws("end") - draws("begin"))
        .where("times > 0")
        .orderBy("first")
        .select("symbol", "times")
        .collect()
    )
    ordered.unpersist()
    return [row.symbol for row in found for _ in range(row.times)]
