"""Which n-grams a text has, by the hash of their history: the features of a maximum-entropy model. Numpy only.

A history of 1, 2, ... words is known by one 62-bit key, into which both the text that is counted and the words that are
read later are mixed, one word at a time and the last word first. What followed a history stands together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.memory import free_memory
from elman.text.units.vocabulary import EOS_ID

if TYPE_CHECKING:
    from torch import Tensor

LEAST_COUNT = 2  # of n-grams: with those seen once a net has the text by heart after three passes (docs/log.md)
BYTES = 60  # of memory in training for one n-gram: weight, gradient, optimiser, average, and copies to go back to
_PRIMES = ((1 << 31) - 1, (1 << 31) - 19)
_FACTORS = ((1_103_515_245, 1_566_083_941), (1_812_433_253, 1_295_421_511))

T = TypeVar("T", Array, "Tensor")  # of int64
Key = tuple[T, T]


class HeadSymbols(NamedTuple):
    """How a head writes words: each as one symbol or, where it is reached through a cluster, as two.

    Symbols of one softmax stand together: those from edges[q] to edges[q + 1] are the columns of part q.
    """

    first: Array  # (V,) in part 0: the word, or its cluster
    second: Array  # (V,) in the cluster's part; -1 for words that need none
    edges: Array  # (Q + 1,)


class NgramTable(NamedTuple):
    """N-grams by history: what followed history h in part q is columns[offsets[h, q] : offsets[h, q + 1]], rising."""

    keys: Array  # (H,) int64, rising
    offsets: Array  # (H, Q + 1) int64
    columns: Array  # (F,) int32


def mix(key: Key[T], words: T) -> Key[T]:
    """The key of a history that is one word longer; `words` are the ones before it. No product exceeds 63 bits."""
    high, low = (
        (part * factor + (words + 1) * other) % prime
        for part, prime, (factor, other) in zip(key, _PRIMES, _FACTORS, strict=True)
    )
    return high, low


def join(key: Key[T]) -> T:
    """Both halves as one number."""
    return (key[0] << 31) | key[1]


def collect_ngrams(
    ids: Array, *, order: int, symbols: HeadSymbols, reset_lines: bool, most: int | None = None
) -> NgramTable:
    """The n-grams of 2 .. `order` words that occur at least twice, or the `most` frequent of them.

    What comes before the text or, with `reset_lines`, before a line is taken for ends of lines, as in the models.
    """
    if most is not None:
        _check_memory(most, f"model.maxent_size={most}")
    ids = np.asarray(ids).astype(np.int64)
    starts = _line_starts(ids) if reset_lines else np.zeros(len(ids), dtype=np.int64)
    places = np.arange(len(ids))  # of the last words of n-grams that may still be seen twice
    key = (np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64))
    num_symbols = int(symbols.edges[-1])
    found: list[tuple[Array, Array, Array]] = []
    for back in range(1, order):
        before = places - back
        key = mix(key, np.where(before < starts[places], EOS_ID, ids[np.maximum(before, 0)]))
        keys, histories = np.unique(join(key), return_inverse=True)
        codes = histories * num_symbols
        firsts, which, counts = np.unique(codes + symbols.first[ids[places]], return_inverse=True, return_counts=True)
        found.append((keys[firsts // num_symbols], firsts % num_symbols, counts))
        seconds = symbols.second[ids[places]]
        pairs, times = np.unique((codes + seconds)[seconds >= 0], return_counts=True)
        found.append((keys[pairs // num_symbols], pairs % num_symbols, times))
        stays = (counts >= LEAST_COUNT)[which]  # a longer n-gram is no more frequent than its end
        places, key = places[stays], (key[0][stays], key[1][stays])
    return _table([_frequent(*part) for part in found], symbols.edges, most)


def _frequent(keys: Array, symbols: Array, counts: Array) -> tuple[Array, Array, Array]:
    kept = counts >= LEAST_COUNT
    return keys[kept], symbols[kept], counts[kept]


def _table(found: list[tuple[Array, Array, Array]], edges: Array, most: int | None) -> NgramTable:
    keys, symbols, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if most is not None and len(keys) > most:
        chosen = np.argsort(-counts, kind="stable")[:most]
        keys, symbols = keys[chosen], symbols[chosen]
    _check_memory(len(keys), f"{len(keys):,} n-gram features")
    order = np.lexsort((symbols, keys))
    keys, symbols = keys[order], symbols[order]
    parts = np.searchsorted(edges, symbols, side="right") - 1
    histories, which = np.unique(keys, return_inverse=True)
    num_parts = len(edges) - 1
    sizes = np.bincount(which * num_parts + parts, minlength=len(histories) * num_parts)
    ends = np.cumsum(sizes, dtype=np.int64).reshape(len(histories), num_parts)
    begins = np.concatenate([[0], ends[:-1, -1]])[: len(histories)]
    offsets = np.concatenate([begins[:, None], ends], axis=1)
    return NgramTable(histories, offsets, (symbols - edges[parts]).astype(np.int32))


def _check_memory(ngrams: int, what: str) -> None:
    """Refuse a table that training could not hold."""
    needed, free = ngrams * BYTES, free_memory()
    if free is not None and needed > free:
        raise UsageError(
            f"{what} would take {needed / 1e9:,.1f} GB of memory in training, and {free / 1e9:,.1f} GB are free",
            hint="a smaller model.maxent_size keeps only the most frequent n-grams; or a smaller model.maxent",
        )


def _line_starts(ids: Array) -> Array:
    """Where each token's line begins."""
    is_start = np.concatenate([[True], ids[:-1] == EOS_ID])[: len(ids)]
    return np.asarray(np.maximum.accumulate(np.where(is_start, np.arange(len(ids)), 0)))
