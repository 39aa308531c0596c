"""Weighted models: p = sum over members of weight * p_member. Weights come from held-out text by EM.

One set of weights, or (bucketed) one for each bucket of histories, a history being its last word: words that the held-out
text repeats often have a bucket of their own, the others share one with words of like frequency. So frequent words, after
which n-grams are sure, and rare ones, after which a cache is worth more, are weighed apart: 1 to 1.5 % lower perplexity
on PTB and WikiText-2 than one set, where buckets by the training count of the last two words gave 0.2 %.
`B` rows, `T` tokens, `N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from elman.config import CacheConfig, MixtureConfig
from elman.counts.cache import CacheModel
from elman.counts.ngram import tensor
from elman.errors import UsageError
from elman.lm import Array, FreeModel
from elman.text.vocabulary import EOS_ID

DECAYS = (0.98, 0.99, 0.995, 0.998, 0.999)  # tried for a cache
OWN_BUCKET = 100  # occurrences in the held-out text from which a word is a bucket of its own
PRIOR_TOKENS = 20.0  # a bucket's weights start from the overall ones as if seen so often
MAX_ROUNDS = 1_000  # of EM
CHUNK_TOKENS = 1 << 16  # scored in one call


class Member(FreeModel[Any], Protocol):
    """A model that can be mixed and saved."""

    def tensors(self) -> dict[str, Array]:
        """Everything but its settings."""


@dataclass(frozen=True)
class MixtureState:
    """What every member remembers, and the bucket of the history, (B,)."""

    members: tuple[Any, ...]
    buckets: Array


class Mixture:
    """Several models as one. weights (K, M), each row summing to one; word_buckets (V,) says which row holds after a word."""

    def __init__(self, members: Sequence[Member], weights: Array, *, word_buckets: Array | None = None) -> None:
        sizes = sorted({member.vocab_size for member in members})
        if len(sizes) != 1:
            raise UsageError(
                f"models of {' and '.join(f'{size:,}' for size in sizes)} words cannot be mixed",
                hint="a mixture needs one vocabulary: train its members on the same data",
            )
        self.members = tuple(members)
        self.vocab_size = sizes[0]
        self.weights = weights
        self.word_buckets = word_buckets
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(self.weights)

    def start(self, rows: int) -> MixtureState:
        """Every member before anything was read; the bucket is that of the end of a line."""
        buckets = self._buckets_after(np.full(rows, EOS_ID))
        return MixtureState(tuple(member.start(rows) for member in self.members), buckets)

    def predict(self, state: MixtureState) -> Array:
        """The weighted sum of what the members predict. -> (B, V)"""
        log_probs = (member.predict(part) for member, part in zip(self.members, state.members, strict=True))
        return self._mix(log_probs, state.buckets[:, None])

    def advance(self, tokens: Array, state: MixtureState) -> MixtureState:
        """Every member one token further."""
        parts = (member.advance(tokens, part) for member, part in zip(self.members, state.members, strict=True))
        return MixtureState(tuple(parts), self._buckets_after(tokens))

    def score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        """The weighted sum of the members' probabilities of each token, 0 at padding, and the state after. -> (B, T)"""
        scored = [member.score(tokens, lengths, part) for member, part in zip(self.members, state.members, strict=True)]
        buckets = np.concatenate([state.buckets[:, None], self._buckets_after(tokens)], axis=1)
        nats = self._mix((log_probs for log_probs, _ in scored), buckets[:, :-1])
        nats[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
        after = buckets[np.arange(len(tokens)), lengths]
        return nats, MixtureState(tuple(part for _, part in scored), after)

    def join(self, states: Sequence[MixtureState]) -> MixtureState:
        """The rows of several states as one batch; each member joins its own."""
        parts = (member.join([state.members[i] for state in states]) for i, member in enumerate(self.members))
        return MixtureState(tuple(parts), np.concatenate([state.buckets for state in states]))

    def tensors(self) -> dict[str, Array]:
        """The weights, and every member's tensors under `members.0.`, `members.1.`, ..."""
        found: dict[str, Array] = {"weights": self.weights.reshape(-1)}
        if self.word_buckets is not None:
            found["word_buckets"] = self.word_buckets
        for i, member in enumerate(self.members):
            found |= {f"members.{i}.{name}": array for name, array in member.tensors().items()}
        return found

    @classmethod
    def from_tensors(cls, config: MixtureConfig, members: Sequence[Member], tensors: Mapping[str, Array]) -> Mixture:
        """The mixture that was saved; its members are restored by whoever knows their families."""
        vocab_size = members[0].vocab_size
        word_buckets = tensor(tensors, "word_buckets", "i", vocab_size) if config.bucketed else None
        num_buckets = 1 if word_buckets is None else int(word_buckets.max()) + 1
        weights = tensor(tensors, "weights", "f", num_buckets * len(members)).reshape(num_buckets, len(members))
        return cls(members, weights, word_buckets=word_buckets)

    def _buckets_after(self, tokens: Array) -> Array:
        return np.zeros(tokens.shape, np.int32) if self.word_buckets is None else self.word_buckets[tokens]

    def _mix(self, log_probs: Iterable[Array], buckets: Array) -> Array:
        total: Array | None = None
        for i, part in enumerate(log_probs):
            weighted = part + self._log_weights[buckets, i]
            total = weighted if total is None else np.logaddexp(total, weighted)
        assert total is not None
        return total.astype(np.float32)


def fit_mixture(
    members: Sequence[Member],
    ids: Array,
    *,
    reset_lines: bool,
    cache: bool = False,
    bucketed: bool = False,
    report: Callable[[str], None],
) -> Mixture:
    """Mix the members so that the held-out text `ids` is most likely. Tokens that no member thinks possible are left out.

    `cache` adds a last member: the fading cache whose decay helps most.
    """
    members = [*members]
    Mixture(members, np.ones((1, len(members))))  # refuses before anything slow
    scores = [score_text(member, ids, reset_lines=reset_lines) for member in members]
    if cache:
        found, own = _fit_cache(scores, ids, members[0].vocab_size, reset_lines=reset_lines)
        report(f"cache: decay {found.decay} of {', '.join(map(str, DECAYS))}")
        members.append(found)
        scores.append(own)
    scores_MN = np.stack(scores)
    weights = fit_weights(scores_MN)
    report(f"weights {', '.join(f'{weight:.3f}' for weight in weights)}")
    if not bucketed:
        return Mixture(members, weights[None])
    word_buckets = bucket_words(ids, vocab_size=members[0].vocab_size)
    buckets_N = word_buckets[np.concatenate([[EOS_ID], ids[:-1]])]
    rows = [
        fit_weights(scores_MN[:, buckets_N == bucket], prior=weights, prior_tokens=PRIOR_TOKENS)
        for bucket in range(int(word_buckets.max()) + 1)
    ]
    report(f"weights for {len(rows)} buckets of histories")
    return Mixture(members, np.stack(rows), word_buckets=word_buckets)


def _fit_cache(scores: Sequence[Array], ids: Array, vocab_size: int, *, reset_lines: bool) -> tuple[CacheModel, Array]:
    """The cache with which a mixture of all leaves the fewest nats, and its scores."""
    best: tuple[tuple[int, float], CacheModel, Array] | None = None
    for decay in DECAYS:
        cache = CacheModel(CacheConfig(window=None, decay=decay), vocab_size=vocab_size)
        own = score_text(cache, ids, reset_lines=reset_lines)
        together = np.stack([*scores, own])
        mixed = _log_mixed(together, fit_weights(together))
        worth = (int(np.isfinite(mixed).sum()), float(mixed[np.isfinite(mixed)].sum()))
        if best is None or worth > best[0]:
            best = worth, cache, own
    assert best is not None
    return best[1], best[2]


def bucket_words(ids: Array, *, vocab_size: int) -> Array:
    """The bucket of each word by how often the text has it: its own, or one with words of like frequency. -> (V,)"""
    counts = np.bincount(ids, minlength=vocab_size)
    is_frequent = counts >= OWN_BUCKET
    classes = np.floor(np.log2(counts + 1)).astype(np.int32)
    own = int(classes[~is_frequent].max(initial=-1)) + np.cumsum(is_frequent)
    return np.where(is_frequent, own, classes).astype(np.int32)


def fit_weights(log_probs: Array, *, prior: Array | None = None, prior_tokens: float = 0.0) -> Array:
    """The weights under which the tokens are most likely, by EM. (M, N) log-probabilities -> (M,)

    lambda_m <- mean over tokens of lambda_m p_m / sum of lambda p, with prior_tokens more that have the prior's shares.
    """
    prior = np.full(len(log_probs), 1 / len(log_probs)) if prior is None else prior
    best = log_probs.max(axis=0, initial=-np.inf)
    possible = np.isfinite(best)
    probs = np.exp(log_probs[:, possible].astype(np.float64) - best[possible])
    weights, num_tokens = prior, probs.shape[1] + prior_tokens
    if num_tokens == 0:
        return prior
    for _ in range(MAX_ROUNDS):
        shares = weights[:, None] * probs
        shares /= shares.sum(axis=0)
        new = (shares.sum(axis=1) + prior_tokens * prior) / num_tokens
        moved = float(np.abs(new - weights).max())
        weights = new
        if moved < 1e-6:
            break
    return np.asarray(weights / weights.sum())


def _log_mixed(log_probs: Array, weights: Array) -> Array:
    """log of the weighted sum for each token. (M, N) -> (N,)"""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(log_probs.astype(np.float64) + np.log(weights)[:, None], axis=0))


def score_text(lm: FreeModel[Any], ids: Array, *, reset_lines: bool) -> Array:
    """Log-probability of each token of a text, read as one stream or each line from the start. -> (N,)"""
    scores = np.empty(len(ids), np.float32)
    if not reset_lines:
        state = lm.start(1)
        for first in range(0, len(ids), CHUNK_TOKENS):
            piece = np.asarray(ids[None, first : first + CHUNK_TOKENS], np.int64)
            nats, state = lm.score(piece, np.array([piece.shape[1]]), state)
            scores[first : first + CHUNK_TOKENS] = nats[0]
        return scores
    starts = np.flatnonzero(np.concatenate([[True], ids[:-1] == EOS_ID])[: len(ids)])
    lengths = np.diff(starts, append=len(ids))
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):  # lines of like length together, the longest of a batch last
        last = first + 1
        while last < len(order) and lengths[order[last]] * (last + 1 - first) <= CHUNK_TOKENS:
            last += 1
        rows = order[first:last]
        is_token = np.arange(lengths[rows[-1]]) < lengths[rows][:, None]
        place = np.where(is_token, starts[rows][:, None] + np.arange(is_token.shape[1]), 0)
        nats, _ = lm.score(np.asarray(ids[place], np.int64), lengths[rows], lm.start(len(rows)))
        scores[place[is_token]] = nats[is_token]
        first = last
    return scores
