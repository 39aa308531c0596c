"""Perplexity of a text: a `Tally` of counts, the numbers computed from it, and a signature of what they depend on.

Every token and one end-of-sequence per line is scored, the start symbol never. Nats are -log p. `B` rows, `T` columns of
a batch, `N` tokens, `L` lines. Knows models only by the protocol of `elman.lm`, and text only as blocks of ids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from elman import __version__
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.prefetch import prefetch
from elman.lm.protocol import FreeModel, LineModel, S, refuse_nan
from elman.text.units.vocabulary import EOS_ID

LN2 = math.log(2)
CHUNK_TOKENS = 1 << 18  # scored in one call: enough for count models to vectorise; nets cut smaller pieces inside
JOINED_TOKENS = 1 << 21
SIMILAR = 0.85  # lines of one batch are at least so long, in parts of its longest: little padding, few batches
REPORT_TOKENS = 200  # scored between two reports of progress, where a scorer is slow
UNIT_TOKENS = 1_000  # of a stream are drawn together by the bootstrap, since neighbours are alike
MIN_UNITS = 5  # fewer say nothing about how a number would vary
MAX_UNITS = 2_000  # more cost time and change nothing: neighbours are drawn together
MAX_UNKNOWN_SHARE = 0.2  # of the words; beyond it a perplexity is mostly that of <unk>
Scorer = Callable[[Array], Array]  # the ids of a block -> the nats of its tokens; blocks come in order


class IdBlock(Protocol):
    """A piece of text as ids, whole lines, each ending in EOS_ID."""

    @property
    def ids(self) -> Array: ...
    @property
    def num_lines(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def unknown_tokens(self) -> int: ...


@dataclass(frozen=True)
class Tally:
    """Counts of an evaluation; the tallies of parts add up to the tally of the whole."""

    nats: float = 0.0  # sum of -log p over the tokens that are possible
    tokens: int = 0
    bytes: int = 0  # bytes of the text in its file
    unknown_tokens: int = 0  # scored as <unk>
    impossible_tokens: int = 0  # tokens of probability zero
    lines: int = 0
    spelling_nats: float = 0.0  # of the unknown tokens' spelling, given that they are unknown

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            nats=self.nats + other.nats,
            tokens=self.tokens + other.tokens,
            bytes=self.bytes + other.bytes,
            unknown_tokens=self.unknown_tokens + other.unknown_tokens,
            impossible_tokens=self.impossible_tokens + other.impossible_tokens,
            lines=self.lines + other.lines,
            spelling_nats=self.spelling_nats + other.spelling_nats,
        )

    @property
    def nats_per_token(self) -> float | None:
        """Mean -log p; None if it is infinite, or nothing was scored."""
        return self.nats / self.tokens if self.tokens and not self.impossible_tokens else None

    @property
    def perplexity(self) -> float | None:
        """exp(nats per token): the number of equally likely tokens that would be as hard to predict."""
        return None if self.nats_per_token is None else _exp(self.nats_per_token)

    @property
    def bits_per_byte(self) -> float | None:
        """Bits to write a byte of the text, unknown words spelled: it compares across units and vocabularies."""
        return self._bits_per_byte(self.nats + self.spelling_nats)

    @property
    def bits_per_byte_without_spelling(self) -> float | None:
        """The same with `<unk>` in place of unknown words: it falls where words are thrown away."""
        return self._bits_per_byte(self.nats)

    def _bits_per_byte(self, nats: float) -> float | None:
        return nats / (LN2 * self.bytes) if self.bytes and not self.impossible_tokens else None


@dataclass(frozen=True)
class Evaluation:
    """A tally, its perplexity's confidence interval (95 %; None for too short a text), the signature of the numbers."""

    tally: Tally
    interval: tuple[float, float] | None
    signature: str

    def with_spelling(self, nats: float) -> Evaluation:
        """The same, with what the spelling of the unknown words costs."""
        return replace(self, tally=replace(self.tally, spelling_nats=nats))

    def as_json(self) -> dict[str, Any]:
        """The numbers as `evaluate --json` prints them; null if infinite or unknown."""
        low, high = self.interval or (None, None)
        numbers = {
            "perplexity": self.tally.perplexity,
            "perplexity_low": low,
            "perplexity_high": high,
            "nats_per_token": self.tally.nats_per_token,
            "bits_per_byte": self.tally.bits_per_byte,
        }
        if self.tally.spelling_nats:
            numbers["bits_per_byte_without_spelling"] = self.tally.bits_per_byte_without_spelling
        return {
            **{key: value if value is not None and math.isfinite(value) else None for key, value in numbers.items()},
            "tokens": self.tally.tokens,
            "unknown_tokens": self.tally.unknown_tokens,
            "impossible_tokens": self.tally.impossible_tokens,
            "lines": self.tally.lines,
            "signature": self.signature,
        }


def warnings(tokens: int, *, lines: int, unknown: int, spells_unknown: bool) -> list[str]:
    """What makes numbers of so many tokens mean less than they seem to, in sentences."""
    found = []
    words = tokens - lines
    if unknown > MAX_UNKNOWN_SHARE * words:
        remedy = (
            " (compare bits_per_byte, which counts their spelling)"
            if spells_unknown
            else ", nor does bits_per_byte, which leaves out how they are spelled"
        )
        found.append(
            f"{unknown / words:.0%} of the words are unknown to the model: its perplexity says little of this text{remedy}"
        )
    if lines > words:
        found.append(f"{lines / tokens:.0%} of the scored tokens are line ends: the perplexity is mostly theirs")
    return found


def signature(
    *, units: str, vocab_size: int, tokenizer_fingerprint: str, reset_lines: bool, spells_unknown: bool = False
) -> str:
    """All that moves a number besides model and text, in one line: equal signatures, comparable numbers."""
    parts = {
        "units": units,
        "vocab": vocab_size,
        "tok": tokenizer_fingerprint[:12],
        "read": "lines" if reset_lines else "stream",
        "eos": "scored",
        "unk": "spelled" if spells_unknown else "counted",
        "version": __version__,
    }
    return "|".join(f"{key}:{value}" for key, value in parts.items())


def evaluate(
    lm: FreeModel[S],
    blocks: Iterable[IdBlock],
    *,
    reset_lines: bool,
    signature: str,
    rng: np.random.Generator | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> Evaluation:
    """Score a text: as one stream with the state carried on, or each line alone. Without an rng there is no interval."""
    scorer = lines_scorer(lm, chunk_tokens) if reset_lines else stream_scorer(lm, chunk_tokens)
    return evaluate_by(scorer, blocks, reset_lines=reset_lines, signature=signature, rng=rng)


def evaluate_by(
    scorer: Scorer,
    blocks: Iterable[IdBlock],
    *,
    reset_lines: bool,
    signature: str,
    rng: np.random.Generator | None = None,
) -> Evaluation:
    """The numbers of a text, given a function that scores its tokens. Without an rng there is no interval.

    Memory use: a few blocks, and two numbers per line (or 1,000 tokens of a stream) for the interval.
    """
    tally = Tally()
    unit_nats: list[Array] = []
    unit_tokens: list[Array] = []
    with closing(prefetch(_joined(blocks))) as ready:
        for block, nats_N, starts in _scored(scorer, ready, reset_lines=reset_lines):
            tally += _tally(block, nats_N)
            unit_nats.append(np.add.reduceat(nats_N, starts, dtype=np.float64))
            unit_tokens.append(np.diff(starts, append=len(nats_N)))
    if tally.tokens == 0:
        raise DataError("nothing to score: the text is empty", code="empty-data")
    interval = None
    if rng is not None and tally.impossible_tokens == 0:
        interval = bootstrap(np.concatenate(unit_nats), np.concatenate(unit_tokens), rng=rng)
    return Evaluation(tally, interval, signature)


def reporting(scorer: Scorer, num_tokens: int, report_share: Callable[[float], None]) -> Scorer:
    """The same scorer, which says after each piece how much of a text of so many tokens is done. A block may be cut anywhere."""
    num_done = 0

    def score(ids: Array) -> Array:
        nonlocal num_done
        pieces = []
        for first in range(0, len(ids), REPORT_TOKENS):
            pieces.append(scorer(ids[first : first + REPORT_TOKENS]))
            num_done += len(pieces[-1])
            report_share(num_done / num_tokens)
        return np.concatenate(pieces) if pieces else scorer(ids)

    return score


@dataclass(frozen=True)
class _Joined:
    """Several blocks as one."""

    ids: Array
    num_lines: int
    num_bytes: int
    unknown_tokens: int


def _joined(blocks: Iterable[IdBlock]) -> Iterator[IdBlock]:
    """Blocks joined until there are enough lines of every length to fill batches."""
    pending: list[IdBlock] = []
    for block in itertools.chain(blocks, [None]):
        if block is not None:
            pending.append(block)
        if pending and (block is None or sum(len(one.ids) for one in pending) >= JOINED_TOKENS):
            yield _Joined(
                np.concatenate([one.ids for one in pending]),
                sum(one.num_lines for one in pending),
                sum(one.num_bytes for one in pending),
                sum(one.unknown_tokens for one in pending),
            )
            pending = []


def _scored(scorer: Scorer, blocks: Iterable[IdBlock], *, reset_lines: bool) -> Iterator[tuple[IdBlock, Array, Array]]:
    """Each block, the nats of its tokens, and where its bootstrap units begin."""
    for block in blocks:
        ids = np.asarray(block.ids, dtype=np.int64)
        if len(ids) == 0:
            continue
        num_units = max(1, round(len(ids) / UNIT_TOKENS))
        starts = line_starts(ids) if reset_lines else np.arange(num_units) * len(ids) // num_units
        yield block, scorer(ids), starts


def lines_scorer(lm: FreeModel[S], chunk_tokens: int = CHUNK_TOKENS) -> Scorer:
    """A scorer that reads each line alone from the start."""
    return lambda ids: _line_nats(lm, ids, line_starts(ids), chunk_tokens)


def stream_scorer(lm: FreeModel[S], chunk_tokens: int = CHUNK_TOKENS) -> Scorer:
    """A scorer that reads all blocks as one stream, the state carried from block to block."""
    state = lm.start(1)

    def score(ids: Array) -> Array:
        nonlocal state
        log_probs, state = _score_in_chunks(lm, ids[None], np.array([len(ids)]), state, chunk_tokens)
        return np.asarray(-log_probs[0])

    return score


def line_starts(ids: Array) -> Array:
    """Where lines begin. -> (L,)"""
    ends = np.flatnonzero(ids == EOS_ID) + 1
    return np.concatenate([[0], ends[ends < len(ids)]])


def _tally(block: IdBlock, nats_N: Array) -> Tally:
    nats = float(refuse_nan(nats_N).sum(dtype=np.float64))
    impossible_tokens = 0
    if math.isinf(nats):
        is_possible = np.isfinite(nats_N)
        impossible_tokens = int((~is_possible).sum())
        nats = float(nats_N[is_possible].sum(dtype=np.float64))
    return Tally(nats, len(nats_N), block.num_bytes, block.unknown_tokens, impossible_tokens, block.num_lines)


def bootstrap(
    nats: Array, tokens: Array, *, rng: np.random.Generator, resamples: int = 1_000, level: float = 0.95
) -> tuple[float, float] | None:
    """The confidence interval of a perplexity, by the percentile bootstrap: units drawn again, with replacement.

    How well this text tells the model's perplexity on the kind of text it is a part of. It is not the range in which
    another text's would lie, which is wider, and says nothing of other kinds of text or of training again.
    nats and tokens of each unit, (U,). None where there are too few units to say.
    """
    if len(nats) < MIN_UNITS:
        return None
    merged = -(-len(nats) // MAX_UNITS)  # neighbouring units per unit
    starts = np.arange(0, len(nats), merged)
    nats, tokens = np.add.reduceat(nats, starts), np.add.reduceat(tokens, starts)
    means = np.empty(resamples)
    for i in range(resamples):
        drawn = rng.integers(0, len(nats), len(nats))
        means[i] = nats[drawn].sum() / tokens[drawn].sum()
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return _exp(float(low)), _exp(float(high))


@dataclass(frozen=True)
class LineScores:
    """Scores of lines, each read alone, as columns; nats are infinite if a token is impossible."""

    nats: Array  # (L,)
    tokens: Array  # (L,)
    token_nats: Array  # (N,) of the tokens of all lines, concatenated

    @property
    def perplexities(self) -> Array:
        """exp(nats / tokens) of each line; 1 for a line without tokens. -> (L,)"""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.nats / np.maximum(self.tokens, 1)))

    def per_token(self) -> list[Array]:
        """The nats of each line's tokens."""
        return np.split(self.token_nats, np.cumsum(self.tokens))[:-1]


def score_lines(lm: FreeModel[S], lines: Sequence[Array], *, chunk_tokens: int = CHUNK_TOKENS) -> LineScores:
    """Score the ids of each line from the start; the end-of-sequence must be among them."""
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *lines]).astype(np.int64, copy=False)
    return score_joined(lm, ids, np.array([len(line) for line in lines], dtype=np.int64), chunk_tokens=chunk_tokens)


def score_joined(lm: FreeModel[S], ids_N: Array, lengths_L: Array, *, chunk_tokens: int = CHUNK_TOKENS) -> LineScores:
    """The same for lines that are one array, given their lengths."""
    starts_L = np.cumsum(lengths_L) - lengths_L
    nats_N = refuse_nan(_line_nats(lm, ids_N, starts_L[lengths_L > 0], chunk_tokens))
    # By line number: reduceat has no 0 for an empty line, and differences of a running total lose digits.
    line_N = np.repeat(np.arange(len(lengths_L)), lengths_L)
    return LineScores(np.bincount(line_N, weights=nats_N, minlength=len(lengths_L)), lengths_L, nats_N)


def _line_nats(lm: FreeModel[S], ids_N: Array, starts_L: Array, chunk_tokens: int) -> Array:
    """-log p of every token, each line read from the start; no line is empty. -> (N,)"""
    if isinstance(lm, LineModel):
        return np.asarray(-lm.score_lines(ids_N, starts_L))
    return _nats_by_length(lm, ids_N, starts_L, chunk_tokens)


def _nats_by_length(lm: FreeModel[S], ids_N: Array, starts_L: Array, chunk_tokens: int) -> Array:
    """The same, lines of similar length in a batch. -> (N,)"""
    nats_N = np.empty(len(ids_N), dtype=np.float32)
    lengths_L = np.diff(starts_L, append=len(ids_N))
    order = np.argsort(-lengths_L, kind="stable")
    falling = -lengths_L[order]
    first = 0
    while first < len(order):
        width = int(-falling[first])
        similar = int(np.searchsorted(falling, -SIMILAR * width, side="right"))
        last = min(similar, first + max(1, chunk_tokens // width))
        rows = order[first:last]
        place_BT = starts_L[rows, None] + np.arange(width)
        inside_BT = np.arange(width) < lengths_L[rows, None]
        tokens_BT = np.where(inside_BT, ids_N[np.minimum(place_BT, len(ids_N) - 1)], 0)
        log_probs_BT, _ = _score_in_chunks(lm, tokens_BT, lengths_L[rows], lm.start(len(rows)), chunk_tokens)
        nats_N[place_BT[inside_BT]] = -log_probs_BT[inside_BT]
        first = last
    return nats_N


def _score_in_chunks(
    lm: FreeModel[S], tokens_BT: Array, lengths_B: Array, state: S, chunk_tokens: int
) -> tuple[Array, S]:
    """`lm.score`, at most chunk_tokens columns at a time, the state carried from one to the next."""
    pieces = []
    for first in range(0, tokens_BT.shape[1], chunk_tokens):
        piece = tokens_BT[:, first : first + chunk_tokens]
        log_probs, state = lm.score(piece, np.clip(lengths_B - first, 0, piece.shape[1]), state)
        pieces.append(log_probs)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1), state


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 709 else math.inf
