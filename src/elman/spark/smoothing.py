"""Probabilities and back-off weights out of counts, as columns: the formulas of `counts/`, entry by entry, in the same order.

Sums are of whole numbers; what is divided, multiplied and added then is what the local engine divides, multiplies and adds, in
64-bit floats, and a probability is rounded to 32 bits where it rounds. So both engines have the same tables, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.counts.interpolation import Share, unigram_probs
from elman.counts.kneser_ney import discounting, kneser_ney_discounts
from elman.counts.smoothing import NUM_BUCKETS, absolute_discounts, jelinek_mercer, witten_bell
from elman.spark.counting import Levels
from elman.spark.estimate import Estimate
from elman.spark.packing import LAST, Packing

Discounts = Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Sharing:
    """How the mass of a history is split between the words seen after it and the shorter history; see `Share`."""

    local: Share  # of order 1, whose table is here
    sums: Callable[
        [Any, Any], dict[str, Any]
    ]  # of a count and of whether it is pruned: what is added up for each history
    share: Callable[[int, Any], tuple[Any, Any]]  # of an order and a count: u; and gamma, of what was added up


@dataclass(frozen=True)
class Tables:
    """A model as tables: of order 1 here, of each order above it a DataFrame of the n-grams that are kept."""

    packing: Packing
    order: int
    reset_lines: bool
    unigrams: Array  # p of each word, 0 of the start symbol; or counts
    first_histories: Any  # words that are histories: w, gamma, children; None for order 1
    frames: tuple[
        Any, ...
    ]  # key, the value p (or n), and but for the highest order gamma (not with counts) and children
    sizes: tuple[int, ...]  # n-grams of each order
    value: str = "p"  # or n, where they are counts

    def num_bytes(self) -> int:
        """What they take in a model directory: word, value, back-off weight, and where the next order begins."""
        return sum(size * (14 if order < self.order else 8) for order, size in enumerate(self.sizes, start=1))


def smoothed_tables(levels: Levels, estimate: Estimate, sharing: Sharing) -> Tables:
    """The probabilities and back-off weights of all orders."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    packing = levels.packing
    unigrams = unigram_probs(adjusted_unigrams(levels, estimate), sharing.local)
    if levels.order == 1:
        return Tables(packing, 1, levels.reset_lines, unigrams, None, (), (len(unigrams),))
    lower = _unigram_frame(levels.frame(2).sparkSession, unigrams)
    frames, sizes = [], [len(unigrams)]
    for k in range(2, levels.order + 1):
        rows, histories = _shared(levels, k, estimate, sharing)
        if k == 2:
            first_histories = histories
        else:
            frames.append(_with_histories(lower, histories, packing, k - 1))
        lower = _interpolated(rows, lower, packing, k).persist(StorageLevel.DISK_ONLY)
        sizes.append(lower.where("is_kept").count())
    kept = [frame.where(fn.col("is_kept")) for frame in (*frames, lower)]
    return Tables(packing, levels.order, levels.reset_lines, unigrams, first_histories, tuple(kept), tuple(sizes))


def count_tables(levels: Levels) -> Tables:
    """The counts themselves, for models that are not smoothed beforehand."""
    from pyspark.sql import functions as fn

    packing, first_histories = levels.packing, None
    frames: list[Any] = []
    sizes = [len(levels.unigrams)]
    for k in range(2, levels.order + 1):
        seen = levels.frame(k).where(fn.col(LAST) != packing.pad).select(*packing.key(k), "n")
        histories = seen.groupBy(*packing.history(k)).agg(fn.count("*").alias("children"))
        histories = histories.select(*packing.history_as_ngram(k), "children")
        if k == 2:
            first_histories = histories
        else:
            frames[-1] = frames[-1].join(histories, packing.key(k - 1), "left").fillna({"children": 0})
        frames.append(seen)
        sizes.append(seen.count())
    return Tables(
        packing, levels.order, levels.reset_lines, levels.unigrams, first_histories, tuple(frames), tuple(sizes), "n"
    )


def _shared(levels: Levels, order: int, estimate: Estimate, sharing: Sharing) -> tuple[Any, Any]:
    """The n-grams of an order with u and gamma, and their histories as n-grams of the order below with gamma and children."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    packing, history = levels.packing, levels.packing.history(order)
    is_kept = fn.col("n") > estimate.threshold(order)
    seen = levels.frame(order).where(fn.col(LAST) != packing.pad)
    seen = seen.select(*packing.key(order), adjusted(levels, order, estimate).alias("a"), is_kept.alias("is_kept"))
    sums = sharing.sums(fn.col("a"), ~fn.col("is_kept"))
    sums["children"] = fn.sum(fn.col("is_kept").cast("long"))
    u, gamma = sharing.share(order, fn.col("a"))
    # a window sorts once what lies in one partition already; a join would hold two sorts and a hash table at once
    same_history = Window.partitionBy(*history)
    rows = seen.select("*", *(sum_.over(same_history).alias(name) for name, sum_ in sums.items()))
    rows = rows.select(*packing.key(order), "is_kept", gamma.alias("gamma"), u.alias("u"))
    by_history = seen.groupBy(*history).agg(*(sum_.alias(name) for name, sum_ in sums.items()))
    return rows, by_history.select(*packing.history_as_ngram(order), gamma.alias("gamma"), "children")


def _interpolated(rows: Any, lower: Any, packing: Packing, order: int) -> Any:
    """p(w | h) = u + gamma(h) p(w | h without its first word)"""
    from pyspark.sql import functions as fn

    shorter = [f"s{i}" for i in range(len(packing.key(order - 1)))]
    found = lower.select(
        *(fn.col(name).alias(new) for name, new in zip(packing.key(order - 1), shorter, strict=True)),
        fn.col("p").cast("double").alias("lower"),
    )
    suffixes = [column.alias(name) for column, name in zip(packing.suffix(order), shorter, strict=True)]
    joined = rows.select("*", *suffixes).join(found, shorter)
    p = (fn.col("u") + fn.col("gamma") * fn.col("lower")).cast("float")
    return joined.select(*packing.key(order), p.alias("p"), "is_kept")


def _with_histories(rows: Any, histories: Any, packing: Packing, order: int) -> Any:
    """n-grams with the weight of what is behind them as histories; 1 for those that are none."""
    joined = rows.join(histories, packing.key(order), "left")
    return joined.fillna({"gamma": 1.0, "children": 0}).select(*packing.key(order), "p", "is_kept", "gamma", "children")


def _unigram_frame(spark: Any, probs: Array) -> Any:
    import pyarrow as pa

    table = pa.table({LAST: pa.array(np.arange(len(probs), dtype=np.int32)), "p": pa.array(probs)})
    return spark.createDataFrame(table)


# --------------------------------------------------------------------------------------------------- adjusted counts


def adjusted(levels: Levels, order: int, estimate: Estimate) -> Any:
    """The counts that are smoothed: of Kneser-Ney's lower orders how many different words came before."""
    from pyspark.sql import functions as fn

    if not estimate.continues or order == levels.order:
        return fn.col("n")
    # the first n-gram of a stream has nothing before it, but was seen
    different = fn.greatest(fn.col("c"), fn.lit(1).cast("long"))
    if not levels.reset_lines:
        return different
    return fn.when(levels.packing.word(0) == levels.packing.bos, fn.col("n")).otherwise(different)


def adjusted_unigrams(levels: Levels, estimate: Estimate) -> Array:
    """The same of order 1."""
    if not estimate.continues or levels.order == 1:
        return levels.unigrams
    found = np.maximum(levels.continuations, levels.unigrams > 0)
    found[levels.packing.bos] = levels.unigrams[levels.packing.bos]
    return found


def count_of_counts(levels: Levels, estimate: Estimate) -> list[Array]:
    """For each order: how many n-grams have a count of 0, 1, 2, 3, 4, and more than 4."""
    from pyspark.sql import functions as fn

    tallies = [np.bincount(np.minimum(adjusted_unigrams(levels, estimate), 5), minlength=6)]
    for k in range(2, levels.order + 1):
        seen = levels.frame(k).where(fn.col(LAST) != levels.packing.pad)
        few = fn.least(adjusted(levels, k, estimate), fn.lit(5).cast("long")).alias("few")
        tally = np.zeros(6, np.int64)
        for row in seen.groupBy(few).count().collect():
            tally[row.few] = row["count"]
        tallies.append(tally)
    return tallies


# ------------------------------------------------------------------------------------------------------------ sharing


def choose_sharing(levels: Levels, estimate: Estimate, weights: Array | None, report: Callable[[str], None]) -> Sharing:
    """The smoothing asked for. weights: of `interpolated`, tuned before"""
    match estimate.method:
        case "kn" | "mkn":
            tallies = count_of_counts(levels, estimate)
            return discount(kneser_ney_discounts(tallies, modified=estimate.method == "mkn", report=report))
        case "absolute":
            return discount(absolute_discounts(count_of_counts(levels, estimate), report))
        case "witten-bell":
            return _witten_bell()
        case _:
            assert weights is not None
            return _jelinek_mercer(weights)


def _sum(column: Any) -> Any:
    from pyspark.sql import functions as fn

    return fn.sum(column.cast("long"))


def discount(discounts: Discounts) -> Sharing:
    """`counts.kneser_ney.discounting`."""
    from pyspark.sql import functions as fn

    def sums(count: Any, is_pruned: Any) -> dict[str, Any]:
        which = {1: count == 1, 2: count == 2, 3: count >= 3}
        found = {"total": fn.sum(count), "pruned": fn.sum(fn.when(is_pruned, count).otherwise(0))}
        found |= {f"n{i}": _sum(test) for i, test in which.items()}
        return found | {f"m{i}": _sum(test & is_pruned) for i, test in which.items()}

    def discounted(name: str, level: tuple[float, float, float]) -> Any:
        one, two, three = (fn.col(f"{name}{i}") * fn.lit(float(d)) for i, d in enumerate(level, start=1))
        return one + two + three

    def share(order: int, count: Any) -> tuple[Any, Any]:
        level = discounts[order - 1]
        own = fn.when(count >= 3, fn.lit(float(level[2]))).when(count == 2, fn.lit(float(level[1])))
        own = own.otherwise(fn.lit(float(level[0])))
        left = discounted("n", level) + (fn.col("pruned").cast("double") - discounted("m", level))
        return (count.cast("double") - own) / fn.col("total"), left / fn.col("total")

    return Sharing(discounting(discounts), sums, share)


def _witten_bell() -> Sharing:
    from pyspark.sql import functions as fn

    def sums(count: Any, is_pruned: Any) -> dict[str, Any]:
        return {
            "total": fn.sum(count),
            "types": fn.count("*"),
            "pruned": fn.sum(fn.when(is_pruned, count).otherwise(0)),
        }

    def share(order: int, count: Any) -> tuple[Any, Any]:
        both = fn.col("total") + fn.col("types")
        return count / both, (fn.col("types") + fn.col("pruned")) / both

    return Sharing(witten_bell, sums, share)


def _jelinek_mercer(weights: Array) -> Sharing:
    from pyspark.sql import functions as fn

    def sums(count: Any, is_pruned: Any) -> dict[str, Any]:
        return {"total": fn.sum(count), "pruned": fn.sum(fn.when(is_pruned, count).otherwise(0))}

    def share(order: int, count: Any) -> tuple[Any, Any]:
        weight = fn.lit(float(weights[order - 1, 0]))
        for bucket in range(1, NUM_BUCKETS):  # for counts twice as high as the one before
            weight = fn.when(fn.col("total") >= 1 << bucket, fn.lit(float(weights[order - 1, bucket]))).otherwise(
                weight
            )
        gamma = (fn.lit(1.0) - weight) + weight * fn.col("pruned") / fn.col("total")
        return weight * count / fn.col("total"), gamma

    return Sharing(jelinek_mercer(weights), sums, share)
