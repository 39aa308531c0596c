"""What lines cost, each by itself: a result for every line of a source, whatever is in it. R rows · L lines · N tokens

A row is a line of the source: a line of text, a record of JSONL with its lines, or one that is no text and has no score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from elman.core.arrays import Array
from elman.counts.spelling import SpellingModel
from elman.lm.evaluate import LN2, Scorer, line_starts
from elman.lm.protocol import refuse_nan
from elman.text.gathering import line_sizes
from elman.text.readers import LineBlock
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import UNK_ID


@dataclass(frozen=True)
class Score:
    """What a text costs: -log p of all its tokens, the ends of its lines included."""

    nats: float
    tokens: int
    perplexity: float
    per_token: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    unknown: int = 0  # tokens scored as <unk>
    bits_per_byte: float = 0.0  # of the text, with unknown words spelled where the model knows how words are spelled
    text: str | None = field(default=None, repr=False)  # where it was asked for


@dataclass(frozen=True)
class ScoredRows:
    """The scores of rows, as columns (R,) for where lines are many; iterating gives a `Score` a row, None for no text."""

    nats: Array
    tokens: Array  # 0 where a row is no text
    perplexity: Array
    unknown: Array
    num_bytes: Array
    spelling_nats: Callable[[], Array]  # of the unknown words; to spell them takes as long as to score the rest
    per_token: Sequence[tuple[tuple[str, float], ...]] | None = None  # where it was asked for
    texts: Sequence[str | None] | None = None  # where they were asked for

    @cached_property
    def bits_per_byte(self) -> Array:
        """With unknown words spelled where the model knows how words are spelled."""
        return np.asarray((self.nats + self.spelling_nats()) / (LN2 * np.maximum(self.num_bytes, 1)))

    def __len__(self) -> int:
        return len(self.nats)

    def __iter__(self) -> Iterator[Score | None]:
        numbers = (self.nats, self.tokens, self.perplexity, self.unknown, self.bits_per_byte)
        pairs_R = self.per_token or [()] * len(self)
        texts_R = self.texts or [None] * len(self)
        for nats, tokens, perplexity, unknown, bits, pairs, text in zip(
            *(column.tolist() for column in numbers), pairs_R, texts_R, strict=True
        ):
            yield Score(nats, tokens, perplexity, pairs, unknown, bits, text) if tokens else None


@dataclass(frozen=True)
class LineScorer:
    """Makes scores of tokens' nats, by a tokenizer and what is known of spelling."""

    tokenizer: Tokenizer
    spelling: SpellingModel | None

    def of_block(self, lines: LineBlock, ids: Array, scorer: Scorer, *, per_token: bool, with_text: bool) -> ScoredRows:
        """A score for each line that was read from the source."""
        row_L = np.arange(lines.num_read) if lines.numbers is None else np.array(lines.numbers, np.int64) - lines.first
        nats_N = refuse_nan(scorer(ids.astype(np.int64))) if len(ids) else np.zeros(0)
        rows = self._rows(lines.data, ids, nats_N, row_L, lines.num_read, per_token=per_token)
        if not with_text:
            return rows
        texts: dict[int, str] = {}
        for row, line in zip(row_L.tolist(), lines.split(), strict=True):
            text = line.decode(errors="replace")
            texts[row] = f"{texts[row]}\n{text}" if row in texts else text
        return replace(rows, texts=[texts.get(row) for row in range(len(rows))])

    def of_text(self, lines: bytes, ids: Array, nats_N: Array) -> Score:
        """The score of all lines together, token by token."""
        row_L = np.zeros(len(line_starts(ids)), dtype=np.int64)
        [score] = self._rows(lines, ids, nats_N, row_L, 1, per_token=True)
        assert score is not None
        return score

    def _rows(
        self, data: bytes, ids: Array, nats_N: Array, row_L: Array, num_rows: int, *, per_token: bool
    ) -> ScoredRows:
        """row_L: where each line belongs, never falling."""
        row_N = np.repeat(row_L, np.diff(line_starts(ids), append=len(ids)) if len(ids) else 0)
        # by number, since differences of a running total lose digits
        nats_R = np.bincount(row_N, weights=nats_N, minlength=num_rows)
        tokens_R = np.bincount(row_N, minlength=num_rows)
        row_U = row_N[ids == UNK_ID]
        unknown_R = np.bincount(row_U, minlength=num_rows)
        bytes_R = np.bincount(row_L, weights=line_sizes(data), minlength=num_rows)
        with np.errstate(over="ignore"):
            perplexity_R = np.exp(nats_R / np.maximum(tokens_R, 1))
        pairs_R = self._pairs(ids, nats_N, tokens_R) if per_token else None

        def spelling_nats() -> Array:
            if self.spelling is None or not len(row_U):
                return np.zeros(num_rows)
            nats_U = self.spelling.nats(self.tokenizer.unknown_words(data, ids))
            return np.bincount(row_U, weights=nats_U, minlength=num_rows)

        return ScoredRows(nats_R, tokens_R, perplexity_R, unknown_R, bytes_R, spelling_nats, pairs_R)

    def _pairs(self, ids: Array, nats_N: Array, tokens_R: Array) -> Sequence[tuple[tuple[str, float], ...]]:
        symbols = self.tokenizer.tokens
        pairs = [(symbols[i], nats) for i, nats in zip(ids.tolist(), nats_N.tolist(), strict=True)]
        ends = np.cumsum(tokens_R).tolist()
        return [tuple(pairs[end - size : end]) for end, size in zip(ends, tokens_R.tolist(), strict=True)]
