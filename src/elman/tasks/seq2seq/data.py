"""Pairs as ids: a vocabulary for each side, or one for both, learned from the training rows.

Each side is one stream of ids, every row's tokens followed by EOS_ID, as in any corpus; the two have equally many rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.seq2seq.config import PairsConfig
from elman.text.corpus import Corpus, corpus_of, id_type, learn_tokenizer, line_blocks
from elman.text.gathering import line_sizes
from elman.text.readers import SKIP_HINT
from elman.text.rows import RowBatches, begins_of, lengths_of, padded, select_rows, split_by_hash
from elman.text.tables import Pairs
from elman.text.units.guess import SAMPLE_BYTES, guess_units
from elman.text.units.tokenizer import Tokenizer, reserved_pattern
from elman.text.units.vocabulary import BOS, EOS, EOS_ID, UNK

Side = Literal["source", "target"]

MAX_LENGTH = 1000  # tokens allowed on either side, unless data.max_length allows more


@dataclass(frozen=True, eq=False)
class PairCorpus:
    """Rows of pairs as ids."""

    source: Corpus
    target: Corpus

    @property
    def num_rows(self) -> int:
        return self.source.num_lines

    @property
    def fingerprint(self) -> str:
        """Equal for equal rows."""
        both = f"{self.source.fingerprint} {self.target.fingerprint}"
        return hashlib.blake2b(both.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class LearnedPairs:
    """The vocabularies, and the rows they were learned from and held out."""

    source: Tokenizer
    target: Tokenizer
    train: PairCorpus
    heldout: PairCorpus | None
    heldout_pairs: Pairs | None  # the same as texts
    notes: tuple[str, ...]


def learn_vocabularies(
    pairs: Pairs,
    data: PairsConfig,
    *,
    heldout: bool,
    source_words: Tokenizer | None = None,
) -> LearnedPairs:
    """The vocabularies of both sides (of the sources, a given one), and the rows as ids, some held out if asked for.

    Rows with the same source are held out together, wherever they stand.
    """
    notes = pairs.notes()
    training, rest = split_pairs(pairs, data.heldout) if heldout else (pairs, None)
    if rest is not None:
        notes.append(f"{len(rest):,} of {len(pairs):,} pairs are held out")
    elif heldout:
        notes.append("nothing is held out: there is only one source (--valid FILE gives pairs to validate on)")
    units = (
        _choose_units("source", training.sources, data, notes),
        _choose_units("target", training.targets, data, notes),
    )
    source, target = _learn_both(without_reserved(training, units, data), units, data)
    source = source_words or source
    train, more = encode_pairs(training, source, target, data, is_training=True)
    notes += more
    if train.num_rows == 0:
        raise DataError(
            "no pair is left to train on", code="empty-data", hint="every source is longer than data.max_length"
        )
    notes += _describe("source", source, train.source) + _describe("target", target, train.target)
    held = None
    if rest is not None:
        held, more = encode_pairs(rest, source, target, data, is_training=False)
        notes += more
    return LearnedPairs(source, target, train, held, rest, tuple(notes))


def encode_pairs(
    pairs: Pairs, source: Tokenizer, target: Tokenizer, data: PairsConfig, *, is_training: bool
) -> tuple[PairCorpus, list[str]]:
    """Rows as ids, without those that are too long where such are dropped; and what is to be said about them."""
    allowed = max(MAX_LENGTH, data.max_length or 0)
    source_limit = (data.max_length or MAX_LENGTH) if is_training else allowed
    action = data.too_long or ("drop" if is_training and data.max_length else "refuse")
    before = pairs.num_dropped
    pairs = without_reserved(pairs, (source.units, target.units), data)
    notes = [f"{pairs.num_dropped - before:,} pairs with reserved symbols were dropped"] * (pairs.num_dropped > before)
    sides = [_encode(pairs.sources, source), _encode(pairs.targets, target)]
    limits = (source_limit, allowed)
    is_long = [lengths_of(side.ids) - 1 > limit for side, limit in zip(sides, limits, strict=True)]
    rows = np.flatnonzero(is_long[0] | is_long[1])
    if len(rows) == 0:
        return PairCorpus(*sides), notes
    if action == "refuse":
        row = int(rows[0])
        side: Side = "source" if is_long[0][row] else "target"
        corpus, limit = (sides[0], limits[0]) if side == "source" else (sides[1], limits[1])
        raise DataError(
            f"{pairs.place(row)} has a {side} of {int(lengths_of(corpus.ids)[row]) - 1:,} tokens, more than {limit:,}",
            code="line-too-long",
            hint="data.too_long=truncate cuts such pairs, =drop leaves them out; data.max_length allows longer ones",
        )
    if action == "truncate":
        cut = PairCorpus(*(_truncated(side, limit) for side, limit in zip(sides, limits, strict=True)))
        return cut, [*notes, f"{len(rows):,} pairs are cut: longer than {source_limit:,} tokens"]
    keep = ~(is_long[0] | is_long[1])
    kept = PairCorpus(*(_filtered(side, keep) for side in sides))
    return kept, [*notes, f"{len(rows):,} pairs are left out: longer than {source_limit:,} tokens"]


def without_reserved(pairs: Pairs, units: tuple[str, str], data: PairsConfig) -> Pairs:
    """The rows without symbols that are no text; where there are some, an error unless bad rows are dropped."""
    bad: set[int] = set()
    for kind, lines in zip(units, (pairs.sources, pairs.targets), strict=True):
        pattern = reserved_pattern(kind, None)
        found = [(row, pattern.search(line.encode())) for row, line in enumerate(lines) if "s>" in line and pattern]
        for row, match in found:
            if match is None:
                continue
            if not data.skip_bad:
                raise DataError(
                    f"{pairs.place(row)} contains {match[1].decode()}, which is reserved",
                    code="reserved-symbol",
                    hint=f"every text ends in {EOS} by itself and {BOS} is never scored: take them out, or {SKIP_HINT}",
                )
            bad.add(row)
    if not bad:
        return pairs
    kept = pairs.select([row for row in range(len(pairs)) if row not in bad])
    return replace(kept, num_dropped=pairs.num_dropped + len(bad))


def _learn_both(pairs: Pairs, units: tuple[str, str], data: PairsConfig) -> tuple[Tokenizer, Tokenizer]:
    source_units, target_units = units
    settings = {"min_count": data.min_count, "max_words": data.max_words}
    if data.shared:
        if source_units != target_units:
            raise DataError(
                f"a shared vocabulary needs the same units: {source_units} suit the sources, {target_units} the targets",
                code="bad-value",
                hint="--units chooses for both",
            )
        both = learn_tokenizer([pairs.sources, pairs.targets], source_units, **settings)
        return both, both
    return (
        learn_tokenizer([pairs.sources], source_units, **settings),
        learn_tokenizer([pairs.targets], target_units, **settings),
    )


def _choose_units(side: Side, lines: Sequence[str], data: PairsConfig, notes: list[str]) -> str:
    units = data.units_of(side)
    if units != "auto":
        return units
    guess = guess_units(next(line_blocks(lines))[:SAMPLE_BYTES])
    notes.append(f"{side} units: {guess.units}, because {guess.why} (data.{side}_units chooses others)")
    return guess.units


def split_pairs(pairs: Pairs, share: float) -> tuple[Pairs, Pairs | None]:
    """Rows to train on and to hold out, those with one source together."""
    kept, held = split_by_hash(pairs.sources, share)
    return pairs.select(kept), pairs.select(held) if held else None


def _encode(lines: Sequence[str], tokenizer: Tokenizer) -> Corpus:
    kind = id_type(tokenizer.vocab_size)
    ids, sizes = [np.zeros(0, dtype=kind)], [np.zeros(0, dtype=np.int64)]
    for block in line_blocks(lines):
        ids.append(tokenizer.encode_lines(block).astype(kind))
        sizes.append(line_sizes(block))
    return corpus_of(np.concatenate(ids), np.concatenate(sizes))


def _truncated(corpus: Corpus, limit: int) -> Corpus:
    lengths = lengths_of(corpus.ids)
    place = np.arange(len(corpus.ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return corpus_of(corpus.ids[(place < limit) | (corpus.ids == EOS_ID)], corpus.line_bytes)


def _filtered(corpus: Corpus, keep: Array) -> Corpus:
    return corpus_of(select_rows(corpus.ids, keep), corpus.line_bytes[keep])


def _describe(side: Side, tokenizer: Tokenizer, corpus: Corpus) -> list[str]:
    if not corpus.unknown_tokens:
        return []
    share = corpus.unknown_tokens / (len(corpus.ids) - corpus.num_lines)
    return [f"{share:.2%} of the {side} words are {UNK}: the vocabulary has {tokenizer.vocab_size - 2:,} words"]


@dataclass(frozen=True)
class PairBatch:
    """B rows to predict: targets (B, T) given sources (B, S). Every row of either ends in EOS_ID; so does padding."""

    sources: Array
    source_lengths: Array
    targets: Array
    target_lengths: Array
    scale: float = 1.0

    @property
    def num_tokens(self) -> int:
        return int(self.target_lengths.sum())


class PairBatches(RowBatches[PairBatch]):
    """Batches of pairs."""

    def __init__(self, source_ids: Array, target_ids: Array, *, tokens: int, seed: int = 0) -> None:
        self._sources, self._source_begins = source_ids, begins_of(source_ids)
        self._targets, self._target_begins = target_ids, begins_of(target_ids)
        if len(self._target_begins) < 2:
            raise DataError("there is nothing to train on: there are no pairs", code="empty-data")
        super().__init__(np.diff(self._source_begins), np.diff(self._target_begins), tokens=tokens, seed=seed)

    def rows(self, rows: Array) -> PairBatch:
        """The given rows as a batch."""
        sources, source_lengths = padded(self._sources, self._source_begins, rows)
        targets, target_lengths = padded(self._targets, self._target_begins, rows)
        return PairBatch(sources, source_lengths, targets, target_lengths)
