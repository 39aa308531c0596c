"""Classic smoothing: none, add-alpha, Jelinek-Mercer, Witten-Bell, absolute discounting; and the uniform model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from elman.core.arrays import Array
from elman.core.tensors import require_table
from elman.counts.counting import Counts
from elman.counts.interpolation import Share, interpolate, suffix_links, sum_by_history
from elman.counts.kneser_ney import count_of_counts, discounting, estimate_discounts
from elman.counts.ngram import Match, NgramModel, TrieModel, match_ngrams, trie_from_tensors
from elman.counts.scratch import Scratch
from elman.counts.trie import NOT_FOUND
from elman.lm.evaluate import line_starts
from elman.text.units.vocabulary import EOS_ID

Smoothing = Literal["ml", "add", "interpolated", "witten-bell", "absolute"]

NUM_BUCKETS = 16  # buckets of histories by count, each for counts twice as high as the one before
EM_ROUNDS = 50  # iterations of EM for the Jelinek-Mercer weights
TUNING_TOKENS = 100_000  # held-out tokens to tune alpha and weights on; more made no difference


class UniformModel:
    """Every token is equally likely."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def start(self, rows: int) -> Array:
        return np.zeros((rows, 0), np.int64)

    def predict(self, state: Array) -> Array:
        return np.full((len(state), self.vocab_size), -np.log(self.vocab_size), np.float32)

    def advance(self, tokens: Array, state: Array) -> Array:
        return state

    def join(self, states: Sequence[Array]) -> Array:
        return np.concatenate(states)

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        real = np.arange(tokens.shape[1]) < lengths[:, None]
        return np.where(real, np.float32(-np.log(self.vocab_size)), np.float32(0)), state

    def tensors(self) -> dict[str, Array]:
        return {}


class CountModel(TrieModel):
    """(C(h w) + alpha) / (C(h) + alpha V), for the longest suffix h of the history that was seen as a history.

    With alpha 0 it is maximum likelihood: a word never seen after h has probability zero.
    """

    def __init__(
        self, counts: Counts, *, alpha: float, reset_lines: bool, totals: Sequence[Array] | None = None
    ) -> None:
        """totals: how often each n-gram was a history, where `counts` are only some of those after it."""
        super().__init__(counts.trie, reset_lines=reset_lines)
        self.counts = counts.counts
        self.alpha = alpha
        self.num_unigrams = int(self.counts[0][: self.vocab_size].sum(dtype=np.int64))
        self.totals = history_totals(counts) if totals is None else totals

    def predict(self, state: Array) -> Array:
        out = np.empty((len(state), self.vocab_size), np.float32)
        for row, nodes in zip(out, state.tolist(), strict=True):
            counts, total = self.counts[0][: self.vocab_size].astype(np.float64), float(self.num_unigrams)
            for k in range(self.order - 1, 0, -1):
                if nodes[k - 1] != NOT_FOUND and self.totals[k - 1][nodes[k - 1]] > 0:
                    rows = self.trie.children(k, nodes[k - 1])
                    counts, total = np.zeros(self.vocab_size), float(self.totals[k - 1][nodes[k - 1]])
                    counts[self.trie.words[k][rows]] = self.counts[k][rows]
                    break
            with np.errstate(divide="ignore"):
                row[:] = np.log((counts + self.alpha) / (total + self.alpha * self.vocab_size))
        return out

    def _log_probs(self, match: Match) -> Array:
        count, total = self.target_counts(match)
        with np.errstate(divide="ignore"):
            log_probs = np.log((count + self.alpha) / (total + self.alpha * self.vocab_size))
        return log_probs.astype(np.float32)

    def target_counts(self, match: Match) -> tuple[Array, Array]:
        """C(h w) and C(h) at each token. -> (N,), (N,)"""
        count = np.take(self.counts[0], match.ngrams[0]).astype(np.float64)
        total = np.full(len(count), float(self.num_unigrams))
        for k in range(2, self.order + 1):
            histories, hits = match.histories[k - 2], match.ngrams[k - 1]
            seen = np.where(histories == NOT_FOUND, 0, np.take(self.totals[k - 2], histories))
            hit_counts = np.take(self.counts[k - 1], hits) if self.counts[k - 1].size else np.zeros_like(hits)
            total = np.where(seen > 0, seen, total)
            count = np.where(seen > 0, np.where(hits == NOT_FOUND, 0, hit_counts), count)
        return count, total

    def tensors(self) -> dict[str, Array]:
        arrays = {"alpha": np.array([self.alpha])}
        for k in range(1, self.order + 1):
            arrays[f"counts.{k}"] = self.counts[k - 1]
            if k > 1:
                arrays[f"words.{k}"] = self.trie.words[k - 1]
                arrays[f"starts.{k - 1}"] = self.trie.starts[k - 2]
        return arrays

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Array], *, order: int, vocab_size: int, reset_lines: bool
    ) -> CountModel:
        trie = trie_from_tensors(tensors, order=order, vocab_size=vocab_size)
        counts = tuple(require_table(tensors, f"counts.{k}", "ui", trie.num_nodes(k)) for k in range(1, order + 1))
        alpha = float(require_table(tensors, "alpha", "f", 1)[0])
        return cls(Counts(trie, counts), alpha=alpha, reset_lines=reset_lines)


def history_totals(counts: Counts) -> list[Array]:
    """How often each n-gram was a history: the sum over its children. -> one array per order but the highest"""
    totals = []
    for k in range(1, counts.trie.order):
        running = np.concatenate(([0], np.cumsum(counts.counts[k], dtype=np.int64)))
        totals.append(np.diff(running[counts.trie.starts[k - 1]]))
    return totals


def fit_smoothed(
    ids: Array,
    count: Callable[[Array], Counts],
    *,
    smoothing: Smoothing,
    alpha: float | None,
    prune: Sequence[int],
    reset_lines: bool,
    heldout_ids: Array | None,
    scratch: Scratch,
    report: Callable[[str], None],
) -> CountModel | NgramModel:
    """Tune alpha or weights on held-out text where needed, and smooth. `count` counts a text or a part of it."""
    tunes = smoothing == "interpolated" or (smoothing == "add" and alpha is None)
    tuning = _Tuning.of(ids, heldout_ids) if tunes else None
    counts = count(ids)
    # without held-out text: tune on the end of the text with counts of the rest, then use all counts
    tuning_counts = counts if tuning is None or tuning.counted is None else count(tuning.counted)
    match smoothing:
        case "ml":
            return CountModel(counts, alpha=0.0, reset_lines=reset_lines)
        case "add":
            if alpha is None:
                assert tuning is not None
                alpha = tuned_alpha(CountModel(tuning_counts, alpha=1.0, reset_lines=reset_lines), tuning.ids, report)
            return CountModel(counts, alpha=alpha, reset_lines=reset_lines)
        case "interpolated":
            assert tuning is not None
            model = CountModel(tuning_counts, alpha=0.0, reset_lines=reset_lines)
            share = jelinek_mercer(tuned_weights(model, tuning.ids, report))
        case "witten-bell":
            share = witten_bell
        case "absolute":
            tallies = [count_of_counts(level, scratch) for level in counts.counts]
            share = discounting(absolute_discounts(tallies, report))
    links = suffix_links(counts.trie, scratch)
    return interpolate(counts, links, share, raw=counts, prune=prune, reset_lines=reset_lines, scratch=scratch)


def num_tuning_tokens(num_tokens: int) -> int:
    """How many tokens at the end of a text are tuned on, where no other text is held out."""
    return min(TUNING_TOKENS, max(1, num_tokens // 20))


@dataclass(frozen=True)
class _Tuning:
    """Text to tune on, and the part of the training text to count meanwhile (None for all of it)."""

    ids: Array
    counted: Array | None

    @classmethod
    def of(cls, ids: Array, heldout_ids: Array | None) -> _Tuning:
        if heldout_ids is not None and len(heldout_ids):
            return cls(np.asarray(heldout_ids[:TUNING_TOKENS]), None)
        cut = len(ids) - num_tuning_tokens(len(ids))
        ends = np.flatnonzero(ids[:cut] == EOS_ID)
        cut = int(ends[-1]) + 1 if len(ends) else cut
        return cls(np.asarray(ids[cut:]), ids[:cut])


def match_text(model: TrieModel, ids: Array, *, reset_lines: bool) -> Match:
    """Match a whole text: each line alone, or as one stream."""
    starts = line_starts(ids) if reset_lines else np.zeros(1, np.int64)
    return match_ngrams(model.trie, np.asarray(ids, np.int64), starts, model.start(len(starts)))


def tuned_alpha(model: CountModel, ids: Array, report: Callable[[str], None]) -> float:
    """The best alpha for held-out text, told."""
    alpha = tune_alpha(model, ids)
    report(f"alpha {alpha:.4g}, tuned on {len(ids):,} held-out tokens")
    return alpha


def tuned_weights(model: CountModel, ids: Array, report: Callable[[str], None]) -> Array:
    """The best interpolation weights for held-out text, told. -> (order, NUM_BUCKETS)"""
    weights = tune_weights(model, ids, reset_lines=model.reset_lines)
    for k, (by_bucket, seen) in enumerate(zip(weights.values, weights.seen, strict=True), start=1):
        shown = " ".join(f"{weight:.2f}" for weight in by_bucket[seen]) or "none seen"
        report(f"order {k}: interpolation weights {shown} for rare to frequent histories")
    return weights.values


def tune_alpha(model: CountModel, ids: Array) -> float:
    """The alpha that maximises the likelihood of held-out text, to 1 %."""
    count, total = model.target_counts(match_text(model, ids, reset_lines=model.reset_lines))

    def loss(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return float(-np.mean(np.log((count + alpha) / (total + alpha * model.vocab_size))))

    from scipy.optimize import minimize_scalar

    # the loss has one minimum: each term is a ratio of two functions linear in alpha
    best = minimize_scalar(loss, bounds=(np.log(1e-8), np.log(1e4)), method="bounded", options={"xatol": 0.01})
    return float(np.exp(best.x))


def witten_bell(
    order: int, counts: Array, history: Array, num_histories: int, is_pruned: Array | None
) -> tuple[Array, Array]:
    """The probability of a new word after h is T(h) / (C(h) + T(h)), T(h) the number of different words seen."""
    total = sum_by_history(counts, history, num_histories)
    types = sum_by_history(counts > 0, history, num_histories)
    both = np.where(total == 0, 1, total + types)
    left = types if is_pruned is None else types + sum_by_history(counts, history, num_histories, is_pruned)
    return counts / both[history], np.where(total == 0, 1, left / both)


def absolute_discounts(tallies: Sequence[Array], report: Callable[[str], None]) -> list[tuple[float, float, float]]:
    """One discount an order, by its counts of counts."""
    discounts = []
    for k, tally in enumerate(tallies, start=1):
        discount, why = estimate_discounts(tally, modified=False)
        report(f"order {k}: discount {discount[0]:.3f}{f' ({why})' if why else ''}")
        discounts.append(discount)
    return discounts


def bucket_of(totals: Array) -> Array:
    """The bucket of histories with these counts: 1, 2-3, 4-7, …"""
    return np.minimum(np.log2(np.maximum(totals, 1)).astype(np.int64), NUM_BUCKETS - 1)


def jelinek_mercer(weights: Array) -> Share:
    """Relative frequency with weight weights[order-1, bucket of the history], the rest from the shorter history."""

    def share(
        order: int, counts: Array, history: Array, num_histories: int, is_pruned: Array | None
    ) -> tuple[Array, Array]:
        total = sum_by_history(counts, history, num_histories)
        weight = np.where(total == 0, 0.0, weights[order - 1, bucket_of(total)])
        total = np.maximum(total, 1)
        gamma = 1 - weight
        if is_pruned is not None:
            gamma = gamma + weight * sum_by_history(counts, history, num_histories, is_pruned) / total
        return weight[history] * counts / total[history], gamma

    return share


@dataclass(frozen=True)
class Weights:
    """values[k-1, bucket]: interpolation weight of order k; seen: the buckets that occurred in held-out text."""

    values: Array
    seen: Array


def tune_weights(model: CountModel, ids: Array, *, reset_lines: bool) -> Weights:
    """Jelinek-Mercer weights by EM on held-out text.

    The generative model: from the longest history down, stop at each order with the bucket's weight, else go on to the
    next shorter one; below order 1 every token is equally likely. The E-step is the probability of stopping at each order.
    """
    match = match_text(model, ids, reset_lines=reset_lines)
    totals = [np.array([model.num_unigrams]), *model.totals]
    frequency, bucket, has_history = [], [], []
    for k in range(1, model.order + 1):
        histories = np.zeros(len(ids), np.int64) if k == 1 else match.histories[k - 2]
        total = np.where(histories == NOT_FOUND, 0, np.take(totals[k - 1], histories))
        hits = match.ngrams[k - 1]
        table = model.counts[k - 1]
        count = np.where(hits == NOT_FOUND, 0, np.take(table, hits)) if table.size else np.zeros_like(hits)
        frequency.append(count / np.maximum(total, 1))
        bucket.append(bucket_of(total))
        has_history.append(total > 0)
    weights = np.full((model.order, NUM_BUCKETS), 0.5)
    seen = np.zeros((model.order, NUM_BUCKETS), bool)
    for _ in range(EM_ROUNDS):
        below = np.full(len(ids), 1 / model.vocab_size)  # p(w | the shorter history)
        stop_probs = []
        for k in range(model.order):
            weight = np.where(has_history[k], weights[k, bucket[k]], 0)
            here = weight * frequency[k] + (1 - weight) * below
            stop_probs.append(np.divide(weight * frequency[k], here, out=np.zeros_like(here), where=here > 0))
            below = here
        reached = np.ones(len(below))
        for k in range(model.order - 1, -1, -1):
            total = np.bincount(bucket[k], weights=reached * has_history[k], minlength=NUM_BUCKETS)
            stopped = np.bincount(bucket[k], weights=reached * has_history[k] * stop_probs[k], minlength=NUM_BUCKETS)
            seen[k] = total > 0
            # a bucket that did not occur takes the weight of the next rarer one; weights stay inside (0, 1)
            fitted = np.clip(np.divide(stopped, total, out=np.full(NUM_BUCKETS, np.nan), where=seen[k]), 1e-4, 1 - 1e-4)
            weights[k] = _fill(fitted)
            reached = reached * (1 - stop_probs[k])
    return Weights(weights, seen)


def _fill(values: Array) -> Array:
    """Fill NaN with the nearest value before it, else after it, else 0.5."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return np.full(len(values), 0.5)
    nearest = known[np.maximum(np.searchsorted(known, np.arange(len(values)), side="right") - 1, 0)]
    return values[nearest]
