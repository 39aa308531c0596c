"""N-gram features of a maximum-entropy model, collected from a text and found by the hash of their history. Numpy only.

A history of 1, 2, ... words is identified by a 62-bit hash, computed word by word from the last word back, in the same
way for the training text and for prediction. The n-grams of one history are stored together.
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

MIN_COUNT = 2  # n-grams seen once are dropped: with them a net memorises the text after three epochs (docs/log.md)
BYTES_PER_NGRAM = 60  # memory in training: weight, gradient, optimiser, average, and copies to roll back to
# Two polynomial hashes of 31 bits each, one for each half of a key
_PRIMES = ((1 << 31) - 1, (1 << 31) - 19)
_FACTORS = ((1_103_515_245, 1_566_083_941), (1_812_433_253, 1_295_421_511))

T = TypeVar("T", Array, "Tensor")  # of int64
Key = tuple[T, T]


class HeadSymbols(NamedTuple):
    """Words as symbols of an output head: one symbol each or, in an adaptive softmax, two for a word in a cluster.

    The symbols of one softmax are contiguous: those from edges[q] to edges[q + 1] are the columns of part q.
    """

    first: Array  # (V,) the symbol in part 0: the word, or its cluster
    second: Array  # (V,) the symbol in the cluster's part; -1 for words outside clusters
    edges: Array  # (Q + 1,)


class NgramTable(NamedTuple):
    """N-grams by history: those of history h in part q are columns[offsets[h, q] : offsets[h, q + 1]], ascending."""

    keys: Array  # (H,) int64, ascending
    offsets: Array  # (H, Q + 1) int64
    columns: Array  # (F,) int32


def mix(key: Key[T], words: T) -> Key[T]:
    """The hash of a history extended by the `words` before it. No product exceeds 63 bits."""
    high, low = (
        (part * factor + (words + 1) * other) % prime
        for part, prime, (factor, other) in zip(key, _PRIMES, _FACTORS, strict=True)
    )
    return high, low


def join(key: Key[T]) -> T:
    """Both halves of the hash as one number."""
    return key[0] * (1 << 31) + key[1]


def collect_ngrams(
    ids: Array, *, order: int, symbols: HeadSymbols, reset_lines: bool, max_ngrams: int | None = None
) -> NgramTable:
    """The n-grams of 2 .. `order` words that occur at least twice, or the `max_ngrams` most frequent of them.

    Before the text or, with `reset_lines`, before a line the history is filled with end-of-line tokens, as in the models.
    """
    if max_ngrams is not None:
        _check_memory(max_ngrams, f"model.maxent_size={max_ngrams}")
    ids = np.asarray(ids).astype(np.int64)
    starts = _line_starts(ids) if reset_lines else np.zeros(len(ids), dtype=np.int64)
    places = np.arange(len(ids))  # positions whose n-gram may still occur twice
    key = (np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64))
    num_symbols = int(symbols.edges[-1])
    collected: list[tuple[Array, Array, Array]] = []
    for back in range(1, order):
        before = places - back
        key = mix(key, np.where(before < starts[places], EOS_ID, ids[np.maximum(before, 0)]))
        keys, histories = np.unique(join(key), return_inverse=True)
        codes = histories * num_symbols
        firsts, which, counts = np.unique(codes + symbols.first[ids[places]], return_inverse=True, return_counts=True)
        collected.append((keys[firsts // num_symbols], firsts % num_symbols, counts))
        seconds = symbols.second[ids[places]]
        pairs, pair_counts = np.unique((codes + seconds)[seconds >= 0], return_counts=True)
        collected.append((keys[pairs // num_symbols], pairs % num_symbols, pair_counts))
        is_frequent = (counts >= MIN_COUNT)[which]  # a longer n-gram is no more frequent than its suffix
        places, key = places[is_frequent], (key[0][is_frequent], key[1][is_frequent])
    return _table([_frequent(*part) for part in collected], symbols.edges, max_ngrams)


def _frequent(keys: Array, symbols: Array, counts: Array) -> tuple[Array, Array, Array]:
    is_frequent = counts >= MIN_COUNT
    return keys[is_frequent], symbols[is_frequent], counts[is_frequent]


def _table(collected: list[tuple[Array, Array, Array]], edges: Array, max_ngrams: int | None) -> NgramTable:
    keys, symbols, counts = (np.concatenate(parts) for parts in zip(*collected, strict=True))
    if max_ngrams is not None and len(keys) > max_ngrams:
        chosen = np.argsort(-counts, kind="stable")[:max_ngrams]
        keys, symbols = keys[chosen], symbols[chosen]
    _check_memory(len(keys), f"a table of {len(keys):,} n-gram features")
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
    """Refuse a table that does not fit into memory."""
    needed, free = ngrams * BYTES_PER_NGRAM, free_memory()
    if free is not None and needed > free:
        raise UsageError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory in training; {free / 1e9:,.1f} GB are free",
            code="too-little-memory",
            hint="set a smaller model.maxent_size (only the most frequent n-grams) or a smaller model.maxent",
        )


def _line_starts(ids: Array) -> Array:
    """The position at which each token's line begins."""
    is_start = np.concatenate([[True], ids[:-1] == EOS_ID])[: len(ids)]
    return np.asarray(np.maximum.accumulate(np.where(is_start, np.arange(len(ids)), 0)))
