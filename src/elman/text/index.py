"""An index of a text as ids, which finds any stretch of tokens in it: a suffix array, its places by what follows there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.tensors import tensor_buffers
from elman.text.units.vocabulary import EOS_ID, UNK_ID

FILE = "index.safetensors"
WIDTH = 4  # bytes of an id
_DAMAGED = "copy or train it again"
UNMATCHED = 2**32 - 1  # stands for an unknown word: it is nowhere


@dataclass(frozen=True)
class Match:
    """A stretch of tokens that stands in the indexed text too."""

    begin: int  # in the text that was asked about
    end: int
    line: int  # of the indexed text where it is first, from 1
    times: int  # it is there


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The ids of a text, and its places sorted by the ids that begin there."""

    ids: Array
    places: Array  # int32, or int64 for a text of billions

    @classmethod
    def build(cls, ids: Array) -> TextIndex:
        """By prefix doubling (Manber & Myers 1990): sorted by 1, 2, 4, … tokens until no two places are alike."""
        num_tokens = len(ids)
        rank = np.unique(ids, return_inverse=True)[1].astype(np.int64)
        order = np.argsort(rank, kind="stable")
        reach = 1
        while num_tokens and len(order) > int(rank.max()) + 1:
            behind = np.zeros(num_tokens, dtype=np.int64)  # 0 behind the end: shorter is less
            behind[:-reach] = rank[reach:] + 1
            key = rank * (num_tokens + 1) + behind
            order = np.argsort(key, kind="stable")
            ordered = key[order]
            rank[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
            reach *= 2
        kind = np.int32 if num_tokens < 2**31 else np.int64
        return cls(np.asarray(ids), order.astype(kind))

    def longest(self, query: Array) -> Array:
        """For each place of a query, how many tokens from there on stand in the text; unknown words do nowhere. -> (T,)"""
        text, asked = self._content, _as_bytes(query)
        found = np.zeros(len(query), dtype=np.int64)
        for begin in range(len(query)):
            wanted = asked[WIDTH * begin :]
            near = self._first_like(wanted)
            for place in self.places[max(0, near - 1) : near + 1].tolist():
                there = text[WIDTH * place : WIDTH * place + len(wanted)]
                found[begin] = max(found[begin], _common(wanted, there))
        return found

    def matches(self, longest: Array, query: Array, *, least: int) -> Iterator[Match]:
        """Stretches of at least so many tokens that stand in the text, from left to right, the longest at each place."""
        asked = _as_bytes(query)
        begin = 0
        while begin < len(query):
            length = int(longest[begin])
            if length < least:
                begin += 1
                continue
            wanted = asked[WIDTH * begin : WIDTH * (begin + length)]
            some = self.places[self._first_like(wanted) : self._first_like(wanted, behind=True)]
            line = int(np.count_nonzero(self.ids[: int(some.min())] == EOS_ID)) + 1
            yield Match(begin, begin + length, line, len(some))
            begin += length

    def files(self) -> dict[str, bytes]:
        """What to store, by file name."""
        return {FILE: b"".join(tensor_buffers({"ids": self.ids, "places": self.places}))}

    @classmethod
    def from_files(cls, read: Callable[[str], bytes]) -> TextIndex:
        """The index that was stored. `read` gives the content of a file by its name."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(read(FILE))
            ids, places = tensors["ids"], tensors["places"]
        except (SafetensorError, KeyError) as error:
            raise DataError(f"{FILE} of the model is damaged: {error}", code="damaged-model", hint=_DAMAGED) from None
        if ids.ndim != 1 or not np.array_equal(np.sort(places), np.arange(len(ids))):  # after --no-verify
            raise DataError(
                f"{FILE} of the model is damaged: it does not list every place of its text",
                code="damaged-model",
                hint=_DAMAGED,
            )
        return cls(ids, places)

    def _first_like(self, wanted: bytes, *, behind: bool = False) -> int:
        """The first place, in their order, that is not less than some ids; or the first behind those that begin with them."""
        text, size = self._content, len(wanted)
        search = bisect_right if behind else bisect_left
        return search(self.places, wanted, key=lambda place: text[WIDTH * int(place) : WIDTH * int(place) + size])

    @cached_property
    def _content(self) -> bytes:
        """Bytes compare as ids do: the highest byte comes first."""
        return self.ids.astype(">u4").tobytes()


def copied_shares(longest: Array, *, orders: int) -> list[dict[str, float | int]]:
    """The share of n-grams that stand in an indexed text, for n from 1 up to `orders` or the length of the query."""
    found: list[dict[str, float | int]] = []
    for order in range(1, min(orders, len(longest)) + 1):
        is_copied = longest[: len(longest) - order + 1] >= order
        found.append({"order": order, "ngrams": len(is_copied), "share": float(is_copied.mean())})
    return found


def _as_bytes(query: Array) -> bytes:
    query = np.asarray(query, dtype=np.int64)
    return np.where(query == UNK_ID, UNMATCHED, query).astype(">u4").tobytes()


def _common(first: bytes, second: bytes) -> int:
    """How many ids two stretches begin with alike."""
    size = min(len(first), len(second))
    differ = np.frombuffer(first[:size], dtype=">u4") != np.frombuffer(second[:size], dtype=">u4")
    return int(differ.argmax()) if differ.any() else size // WIDTH
