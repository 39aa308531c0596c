"""Decoding: greedy, sampling and beam search. Knows nothing of models, text or devices.

`B` or `R` rows, `K` beams of a row, `V` vocabulary. A stop token ends a row and is the last token returned. A prompt
is already in the state. Nats are always the model's own -log p, whatever the shaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.protocol import LanguageModel, S, num_rows, refuse_nan, select
from elman.lm.shaping import AS_IS, Shaping, shape, without

Stop = int | Iterable[int]
BLOCK_WORDS = 64  # words per block; top-k search first compares the best word of each block


@dataclass(frozen=True)
class Hypothesis:
    """A continuation, its -log p (stop token included), and whether it reached a stop token."""

    tokens: tuple[int, ...]
    nats: float
    is_finished: bool


def sample(
    lm: LanguageModel[S],
    state: S,
    *,
    shaping: Shaping = AS_IS,
    rng: np.random.Generator,
    stop: Stop = (),
    max_tokens: int | None = None,
) -> Iterator[int]:
    """A lazy iterator over sampled tokens of one row, in constant memory; endless without a limit."""
    if num_rows(state) != 1:
        raise ValueError(f"sample takes a state of one row, not {num_rows(state)}; use sample_rows")
    return _sample(lm, state, shaping, rng, stop_set(stop, lm.vocab_size), max_tokens)


def _sample(
    lm: LanguageModel[S],
    state: S,
    shaping: Shaping,
    rng: np.random.Generator,
    stops: frozenset[int],
    max_tokens: int | None,
) -> Iterator[int]:
    num_tokens = 0
    while max_tokens is None or num_tokens < max_tokens:
        tokens = draw(shape(_predict(lm, state), shaping), rng)
        num_tokens += 1
        yield int(tokens[0])
        if int(tokens[0]) in stops:
            return
        state = lm.advance(tokens, state)


def sample_rows(
    lm: LanguageModel[S],
    state: S,
    *,
    shaping: Shaping = AS_IS,
    rng: np.random.Generator,
    stop: Stop = (),
    max_tokens: int,
) -> list[Hypothesis]:
    """One sampled continuation per row, drawn as a batch; rows that reached a stop token leave it."""
    stops = stop_set(stop, lm.vocab_size)
    chosen: list[list[int]] = [[] for _ in range(num_rows(state))]
    nats = np.zeros(len(chosen))
    active = np.arange(len(chosen))
    for step in range(max_tokens):
        log_probs = _predict(lm, state)
        tokens = draw(shape(log_probs, shaping), rng)
        nats[active] -= log_probs[np.arange(len(active)), tokens]
        for row, token in zip(active.tolist(), tokens.tolist(), strict=True):
            chosen[row].append(token)
        unfinished = np.flatnonzero(~np.isin(tokens, list(stops)))
        if len(unfinished) == 0 or step + 1 == max_tokens:
            break
        if len(unfinished) < len(active):
            active, tokens, state = active[unfinished], tokens[unfinished], select(state, unfinished)
        state = lm.advance(tokens, state)
    return [
        Hypothesis(tuple(row), float(cost), bool(row) and row[-1] in stops)
        for row, cost in zip(chosen, nats, strict=True)
    ]


def draw(log_probs: Array, rng: np.random.Generator) -> Array:
    """A token for each row; never one of probability zero. -> (B,)"""
    return invert(log_probs, rng.random(len(log_probs)))


def invert(log_probs: Array, uniform_B: Array) -> Array:
    """A token for each row, by inverting its cumulative distribution. uniform_B: a number in [0, 1) for each. -> (B,)

    First a block of words is found, then the word in it: a cumulative sum over all words takes four times as long.
    """
    weights_BV = np.exp(log_probs)
    num_rows, vocab_size = weights_BV.shape
    num_blocks = vocab_size // BLOCK_WORDS
    whole = num_blocks * BLOCK_WORDS
    # einsum adds up blocks of 64 in a quarter of the time that sum and reduceat take
    blocks_BK = np.einsum("bkw->bk", weights_BV[:, :whole].reshape(num_rows, num_blocks, BLOCK_WORDS))
    if whole < vocab_size:
        blocks_BK = np.column_stack([blocks_BK, weights_BV[:, whole:].sum(axis=1)])
    blocks_BK = blocks_BK.astype(np.float64)
    block_B, threshold_B = _reach(blocks_BK, uniform_B * blocks_BK.sum(axis=1))
    words_BW = block_B[:, None] * BLOCK_WORDS + np.arange(min(BLOCK_WORDS, vocab_size))
    is_word_BW = words_BW < vocab_size
    inside_BW = weights_BV[np.arange(num_rows)[:, None], np.where(is_word_BW, words_BW, 0)] * is_word_BW
    place_B, _ = _reach(inside_BW.astype(np.float64), threshold_B)
    return np.asarray(block_B * BLOCK_WORDS + place_B)


def _reach(weights_BN: Array, thresholds_B: Array) -> tuple[Array, Array]:
    """The first place of each row whose cumulative weight exceeds the threshold, and what is left of the threshold there."""
    cumulative_BN = np.cumsum(weights_BN, axis=1)
    # Rounding may put a threshold at the total or beyond, after the last place: stay just below it.
    thresholds_B = np.minimum(thresholds_B, np.nextafter(cumulative_BN[:, -1], 0))
    places_B = (cumulative_BN > thresholds_B[:, None]).argmax(axis=1)
    rows = np.arange(len(weights_BN))
    before_B = cumulative_BN[rows, places_B] - weights_BN[rows, places_B]
    return places_B, np.maximum(thresholds_B - before_B, 0)


def _predict(lm: LanguageModel[S], state: S) -> Array:
    return refuse_nan(lm.predict(state))


def length_norm(num_tokens: Array | int, length_penalty: float) -> Array:
    """The divisor of a hypothesis' log-probability: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14)."""
    return np.asarray(((5.0 + np.asarray(num_tokens)) / 6.0) ** length_penalty)


def beam_search(
    lm: LanguageModel[S],
    state: S,
    *,
    width: int,
    stop: Stop,
    max_tokens: int,
    length_penalty: float = 0.0,
    n_best: int = 1,
    forbid: frozenset[int] = frozenset(),
) -> list[list[Hypothesis]]:
    """The best continuations found by beam search, best first; one list of at most n_best per row.

    Ranked by nats / length_norm. Continuations that reached a stop token come before those cut off at max_tokens.
    """
    _check_beam(width=width, max_tokens=max_tokens, length_penalty=length_penalty, n_best=n_best)
    stops = np.array(sorted(stop_set(stop, lm.vocab_size)), dtype=np.int64)
    beams = [_Beam(row, n_best, length_penalty, max_tokens) for row in range(num_rows(state))]
    active = list(beams)
    costs_RK = np.zeros((len(beams), 1))
    for _ in range(max_tokens):
        num_beams = costs_RK.shape[1]
        log_probs = without(_predict(lm, state), forbid)
        finished, live = _choose(costs_RK, log_probs.reshape(len(active), num_beams, -1), stops, width)
        for row, beam in enumerate(active):
            beam.extend(finished.row(row), live.row(row), lm.vocab_size)
        open_rows = np.array([row for row, beam in enumerate(active) if beam.is_open], dtype=np.int64)
        if len(open_rows) == 0:
            break
        active = [active[row] for row in open_rows]
        costs_RK, places_RK = live.costs[open_rows], live.places[open_rows]
        parents = (open_rows[:, None] * num_beams + places_RK // lm.vocab_size).ravel()
        state = lm.advance((places_RK % lm.vocab_size).ravel(), select(state, parents))
    return [beam.results() for beam in beams]


class _Candidates(NamedTuple):
    """Candidates with place (beam * V + token) and cost, cheapest first; entries of infinite cost are padding."""

    places: Array
    costs: Array

    def row(self, row: int) -> _Candidates:
        return _Candidates(self.places[row], self.costs[row])


def _choose(costs_RK: Array, log_probs_RKV: Array, stops: Array, width: int) -> tuple[_Candidates, _Candidates]:
    """The candidates that finish and those that continue, at most `width` of either per row.

    A stop token finishes a hypothesis only if it is among the `width` best of all: so a beam of one is greedy.
    """
    num_beams, vocab_size = log_probs_RKV.shape[1:]
    # A beam has at most one finishing candidate per stop token, so enough of these candidates continue.
    best = _cheapest(costs_RK, log_probs_RKV, width + num_beams * len(stops))
    is_stop_RN = np.isin(best.places % vocab_size, stops)
    finished = _Candidates(best.places[:, :width], np.where(is_stop_RN, best.costs, np.inf)[:, :width])
    going_RN = np.argsort(is_stop_RN, axis=1, kind="stable")  # those that continue first, still by cost
    costs_RN = np.take_along_axis(np.where(is_stop_RN, np.inf, best.costs), going_RN, axis=1)
    return finished, _Candidates(np.take_along_axis(best.places, going_RN, axis=1)[:, :width], costs_RN[:, :width])


def _cheapest(costs_RK: Array, log_probs_RKV: Array, count: int) -> _Candidates:
    """The `count` cheapest candidates of each row, or all if there are fewer; ties by place.

    Partitioning thousands of words is slow, so first only the best word of each block is compared: the `count` best
    words are in the `count` best blocks.
    """
    num_rows, num_beams, vocab_size = log_probs_RKV.shape
    num_blocks = -(-vocab_size // BLOCK_WORDS)
    if count >= num_beams * num_blocks:
        costs_RN = (costs_RK[:, :, None] - log_probs_RKV).reshape(num_rows, -1)
        return _lowest(costs_RN, np.broadcast_to(np.arange(costs_RN.shape[1]), costs_RN.shape), count)
    whole = vocab_size // BLOCK_WORDS * BLOCK_WORDS
    best_RKB = log_probs_RKV[:, :, :whole].reshape(num_rows, num_beams, -1, BLOCK_WORDS).max(axis=-1)
    if whole < vocab_size:
        best_RKB = np.concatenate([best_RKB, log_probs_RKV[:, :, whole:].max(axis=-1, keepdims=True)], axis=-1)
    block_costs_RN = (costs_RK[:, :, None] - best_RKB).reshape(num_rows, -1)
    blocks_RC = np.argpartition(block_costs_RN, count - 1, axis=1)[:, :count]
    beams_RC, first_RC = blocks_RC // num_blocks, blocks_RC % num_blocks * BLOCK_WORDS
    words_RCW = first_RC[:, :, None] + np.arange(BLOCK_WORDS)
    is_word_RCW = words_RCW < vocab_size
    words_RCW = np.minimum(words_RCW, vocab_size - 1)
    rows_R11 = np.arange(num_rows)[:, None, None]
    costs_RCW = costs_RK[rows_R11, beams_RC[:, :, None]] - log_probs_RKV[rows_R11, beams_RC[:, :, None], words_RCW]
    places_RCW = beams_RC[:, :, None] * vocab_size + words_RCW
    costs_RN = np.where(is_word_RCW, costs_RCW, np.inf).reshape(num_rows, -1)
    return _lowest(costs_RN, places_RCW.reshape(num_rows, -1), count)


def _lowest(costs_RN: Array, places_RN: Array, count: int) -> _Candidates:
    """The lowest costs of each row, sorted, and their places."""
    if count < costs_RN.shape[1]:
        chosen_RC = np.argpartition(costs_RN, count - 1, axis=1)[:, :count]
        costs_RN = np.take_along_axis(costs_RN, chosen_RC, axis=1)
        places_RN = np.take_along_axis(places_RN, chosen_RC, axis=1)
    order_RC = np.lexsort((places_RN, costs_RN), axis=1)
    return _Candidates(np.take_along_axis(places_RN, order_RC, axis=1), np.take_along_axis(costs_RN, order_RC, axis=1))


class _Beam:
    """The search of one row: its live prefixes, its finished hypotheses, and whether it is worth continuing."""

    def __init__(self, row: int, n_best: int, length_penalty: float, max_tokens: int) -> None:
        self.row = row
        self.n_best = n_best
        self.length_penalty = length_penalty
        self.max_tokens = max_tokens
        self.is_open = True
        self._prefixes = np.zeros((1, 0), dtype=np.int64)  # (K, tokens so far)
        self._costs = np.zeros(1)
        self._finished: list[Hypothesis] = []

    def extend(self, finished: _Candidates, live: _Candidates, vocab_size: int) -> None:
        """Add the finished candidates to the results, and make the live ones the new beam."""
        for place, cost in zip(finished.places.tolist(), finished.costs.tolist(), strict=True):
            if cost < np.inf:
                tokens = (*self._prefixes[place // vocab_size].tolist(), place % vocab_size)
                self._finished.append(Hypothesis(tokens, cost, True))
        self._finished = sorted(self._finished, key=self._rank)[: self.n_best]
        self._prefixes = np.column_stack([self._prefixes[live.places // vocab_size], live.places % vocab_size])
        self._costs = live.costs
        self.is_open = bool(np.isfinite(self._costs[0])) and not self._is_decided()

    def _is_decided(self) -> bool:
        # Lower bound: a prefix that costs nothing more and has the maximum length.
        bound = self._costs[0] / length_norm(self.max_tokens, self.length_penalty)
        return len(self._finished) == self.n_best and self._rank(self._finished[-1]) <= bound

    def _rank(self, hypothesis: Hypothesis) -> float:
        return float(hypothesis.nats / length_norm(len(hypothesis.tokens), self.length_penalty))

    def results(self) -> list[Hypothesis]:
        """The best finished hypotheses, followed by unfinished ones if there are too few."""
        num_missing = self.n_best - len(self._finished)
        live = zip(self._prefixes.tolist(), self._costs.tolist(), strict=True)
        unfinished = [Hypothesis(tuple(tokens), cost, False) for tokens, cost in live if np.isfinite(cost)]
        results = self._finished + unfinished[:num_missing]
        if not results:
            raise UsageError(
                f"no continuation of row {self.row} is possible: all tokens of non-zero probability are forbidden",
                code="nothing-possible",
                hint="forbid fewer tokens",
            )
        return results


def stop_set(stop: Stop, vocab_size: int) -> frozenset[int]:
    """The stop tokens as a set, each checked against the vocabulary."""
    stops = frozenset([stop] if isinstance(stop, int | np.integer) else stop)
    foreign = [token for token in stops if not 0 <= token < vocab_size]
    if foreign:
        raise UsageError(
            f"there is no token {min(foreign)} to stop at: the vocabulary has {vocab_size} tokens", code="unknown-word"
        )
    return stops


def _check_beam(*, width: int, max_tokens: int, length_penalty: float, n_best: int) -> None:
    if width < 1:
        raise UsageError(f"beam width {width} is too small", code="bad-value", hint="give at least 1")
    if max_tokens < 1:
        raise UsageError(f"a maximum of {max_tokens} tokens is too small", code="bad-value", hint="give at least 1")
    if not 1 <= n_best <= width:
        raise UsageError(
            f"a beam of width {width} cannot return the {n_best} best",
            code="bad-value",
            hint=f"n-best must be 1 to {width}",
        )
    if not (np.isfinite(length_penalty) and length_penalty >= 0):
        raise UsageError(f"length penalty {length_penalty} must be 0 or more", code="bad-value", hint="0 for none")
