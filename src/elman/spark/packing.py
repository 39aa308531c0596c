"""N-grams as columns of 64-bit integers: the words before the last packed from the left, and the last one by itself.

So n-grams sort as the tries of `counts/` do, a history is the columns without the last word, and cutting off the first or the
last word is arithmetic on whole columns. The same arithmetic is here for numpy and for Spark's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array

LONG_BITS = 63  # of a non-negative 64-bit integer
LAST = "w"  # the column of the last word


@dataclass(frozen=True)
class Packing:
    """How ids of a vocabulary are packed. Word i of a history stands in long i // per_long, the first one highest."""

    vocab_size: int

    @property
    def bos(self) -> int:
        """The start symbol."""
        return self.vocab_size

    @property
    def pad(self) -> int:
        """Behind the end of a text or line."""
        return self.vocab_size + 1

    @property
    def bits(self) -> int:
        """Of a word."""
        return self.pad.bit_length()

    @property
    def per_long(self) -> int:
        """Words of a long."""
        return LONG_BITS // self.bits

    def num_longs(self, order: int) -> int:
        """Columns of the words before the last, of n-grams of this order."""
        return -(-(order - 1) // self.per_long)

    def history(self, order: int) -> list[str]:
        """The columns of the words before the last."""
        return [f"p{i}" for i in range(self.num_longs(order))]

    def key(self, order: int) -> list[str]:
        """The columns of an n-gram."""
        return [*self.history(order), LAST]

    def _shift(self, word: int) -> int:
        return (self.per_long - 1 - word % self.per_long) * self.bits

    # ---------------------------------------------------------------------------------------------------------- numpy

    def pack(self, words: Sequence[Array]) -> list[Array]:
        """The columns of n-grams given word by word. order arrays (n,) -> key(order) arrays (n,)"""
        longs = [np.zeros(len(words[-1]), np.int64) for _ in range(self.num_longs(len(words)))]
        for i, word in enumerate(words[:-1]):
            longs[i // self.per_long] |= word.astype(np.int64) << self._shift(i)
        return [*longs, words[-1].astype(np.int32)]

    def unpack(self, longs: Sequence[Array], num_words: int) -> list[Array]:
        """The words of packed columns, word by word."""
        mask = (1 << self.bits) - 1
        return [(longs[i // self.per_long] >> self._shift(i)) & mask for i in range(num_words)]

    # -------------------------------------------------------------------------------------------------- Spark's columns

    def word(self, index: int) -> Any:
        """One of the words before the last."""
        from pyspark.sql import functions as fn

        shifted = fn.shiftrightunsigned(fn.col(f"p{index // self.per_long}"), self._shift(index))
        return shifted.bitwiseAND(fn.lit((1 << self.bits) - 1)).cast("int")

    def history_as_ngram(self, order: int) -> list[Any]:
        """The history of n-grams of this order as n-grams of the order below: its columns, by their names."""
        from pyspark.sql import functions as fn

        last = order - 2  # the word that becomes the last one
        longs = []
        for i, name in enumerate(self.history(order - 1)):
            column = fn.col(name)
            if i == last // self.per_long:
                column = column.bitwiseAND(fn.lit(~(((1 << self.bits) - 1) << self._shift(last))))
            longs.append(column.alias(name))
        return [*longs, self.word(last).alias(LAST)]

    def suffix(self, order: int) -> list[Any]:
        """n-grams of this order without their first word: the columns of the order below, by their names."""
        from pyspark.sql import functions as fn

        whole = fn.lit((1 << (self.per_long * self.bits)) - 1)
        longs = []
        for i, name in enumerate(self.history(order - 1)):
            column = fn.shiftleft(fn.col(name), self.bits).bitwiseAND(whole)
            if i + 1 < self.num_longs(order):
                column = column.bitwiseOR(fn.shiftrightunsigned(fn.col(f"p{i + 1}"), self._shift(0)))
            longs.append(column.alias(name))
        return [*longs, fn.col(LAST)]
