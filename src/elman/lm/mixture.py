"""Weighted models: p = sum over members of weight * p_member. Weights come from held-out text by EM.

One set of weights, or (bucketed) one for each bucket of histories, a history being its last word: words that the held-out
text repeats often have a bucket of their own, the others share one with words of like frequency. So frequent words, after
which n-grams are sure, and rare ones, after which a cache is worth more, are weighed apart: 1 to 1.5 % lower perplexity
on PTB and WikiText-2 than one set, where buckets by the training count of the last two words gave 0.2 %.

A neural cache is a member that reads what another member, a net, makes of the text. The net is run once for both.
`B` rows, `T` tokens, `N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.counts.ngram import tensor
from elman.lm.cache import CacheModel
from elman.lm.neural_cache import NeuralCache, Weighing
from elman.lm.protocol import ConditionalModel, FreeModel, map_state
from elman.tasks.choices import MixtureConfig
from elman.tasks.lm.count_config import CacheConfig, NeuralCacheConfig
from elman.text.units.vocabulary import EOS_ID

DECAYS = (0.98, 0.99, 0.995, 0.998, 0.999)  # tried for a cache
OWN_BUCKET = 100  # occurrences in the held-out text from which a word is a bucket of its own
PRIOR_TOKENS = 20.0  # a bucket's weights start from the overall ones as if seen so often
MAX_ROUNDS = 1_000  # of EM
CHUNK_TOKENS = 1 << 16  # scored in one call
FEATURE_TOKENS = 1 << 13  # whose vectors are held at once
THETAS = (0.4, 0.7, 1.0, 1.4, 2.0)  # tried for a neural cache, by how much the likeness of histories varies
NEURAL_DECAYS = (1.0, 0.999, 0.998, 0.996, 0.992)
TUNED_TOKENS = 1 << 15  # enough for two numbers


class Member(FreeModel[Any], Protocol):
    """A model that can be mixed and saved."""

    def tensors(self) -> dict[str, Array]:
        """Everything but its settings."""


@runtime_checkable
class Featured(Member, Protocol):
    """A member, a net, that makes a vector of what it has read."""

    def features(self, state: Any) -> Array:
        """What the next token will be predicted from. -> (B, P)"""

    def score_features(self, tokens: Array, lengths: Array, state: Any) -> tuple[Array, Array, Any]:
        """`score`, and between the two what each token was predicted from, (B, T, P)."""


@dataclass(frozen=True)
class MixtureState:
    """What every member remembers, and the bucket of the history, (B,)."""

    members: tuple[Any, ...]
    buckets: Array


class Mixture:
    """Several models as one. weights (K, M), each row summing to one; word_buckets (V,) says which row holds after a word."""

    def __init__(
        self, members: Sequence[Member | NeuralCache], weights: Array, *, word_buckets: Array | None = None
    ) -> None:
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
        self._followed = {member.net for member in members if isinstance(member, NeuralCache)}
        for place, member in enumerate(members):
            if isinstance(member, NeuralCache):
                _net_at(member.net, members[:place])  # it stands before, so that it is read first
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(self.weights)

    def start(self, rows: int) -> MixtureState:
        """Every member before anything was read; the bucket is that of the end of a line."""
        parts: list[Any] = []
        for member in self.members:
            if isinstance(member, NeuralCache):
                parts.append(member.start(self._features(member.net, parts)))
            else:
                parts.append(member.start(rows))
        return MixtureState(tuple(parts), self._buckets_after(np.full(rows, EOS_ID)))

    def predict(self, state: MixtureState) -> Array:
        """The weighted sum of what the members predict. -> (B, V)"""
        log_probs = (
            member.predict(part, self._features(member.net, state.members))
            if isinstance(member, NeuralCache)
            else member.predict(part)
            for member, part in zip(self.members, state.members, strict=True)
        )
        return self._mix(log_probs, state.buckets[:, None])

    def advance(self, tokens: Array, state: MixtureState) -> MixtureState:
        """Every member one token further."""
        parts = (
            member.advance(tokens, part, self._features(member.net, state.members))
            if isinstance(member, NeuralCache)
            else member.advance(tokens, part)
            for member, part in zip(self.members, state.members, strict=True)
        )
        return MixtureState(tuple(parts), self._buckets_after(tokens))

    def score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        """The weighted sum of the members' probabilities of each token, 0 at padding, and the state after. -> (B, T)"""
        num_rows, num_tokens = tokens.shape
        if not self._followed or num_rows * num_tokens <= FEATURE_TOKENS:
            return self._score(tokens, lengths, state)
        together = max(1, FEATURE_TOKENS // num_tokens)  # the vectors of more would fill the memory
        scored = []
        for first in range(0, num_rows, together):
            rows = slice(first, first + together)
            scored.append(self._score_pieces(tokens[rows], lengths[rows], map_state(itemgetter(rows), state)))
        return np.concatenate([nats for nats, _ in scored]), self.join([after for _, after in scored])

    def _score_pieces(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        pieces = []
        for first in range(0, tokens.shape[1], FEATURE_TOKENS):
            piece = tokens[:, first : first + FEATURE_TOKENS]
            nats, state = self._score(piece, np.clip(lengths - first, 0, piece.shape[1]), state)
            pieces.append(nats)
        return np.concatenate(pieces, axis=1), state

    def _score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        features: dict[int, Array] = {}
        scored: list[tuple[Array, Any]] = []
        for i, (member, part) in enumerate(zip(self.members, state.members, strict=True)):
            if isinstance(member, NeuralCache):
                scored.append(member.score(tokens, lengths, part, features[member.net]))
            elif i in self._followed:
                log_probs, features[i], after = _net_at(i, self.members).score_features(tokens, lengths, part)
                scored.append((log_probs, after))
            else:
                scored.append(member.score(tokens, lengths, part))
        buckets = np.concatenate([state.buckets[:, None], self._buckets_after(tokens)], axis=1)
        nats = self._mix((log_probs for log_probs, _ in scored), buckets[:, :-1])
        nats[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
        return nats, MixtureState(tuple(part for _, part in scored), buckets[np.arange(len(tokens)), lengths])

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
    def from_tensors(
        cls, config: MixtureConfig, members: Sequence[Member | NeuralCache], tensors: Mapping[str, Array]
    ) -> Mixture:
        """The mixture that was saved; its members are restored by whoever knows their families."""
        vocab_size = members[0].vocab_size
        word_buckets = tensor(tensors, "word_buckets", "i", vocab_size) if config.bucketed else None
        num_buckets = 1 if word_buckets is None else int(word_buckets.max()) + 1
        weights = tensor(tensors, "weights", "f", num_buckets * len(members)).reshape(num_buckets, len(members))
        return cls(members, weights, word_buckets=word_buckets)

    def _features(self, net: int, parts: Sequence[Any]) -> Array:
        """What a net among the members makes of what was read. -> (B, P)"""
        return _net_at(net, self.members).features(parts[net])

    def _buckets_after(self, tokens: Array) -> Array:
        return np.zeros(tokens.shape, np.int32) if self.word_buckets is None else self.word_buckets[tokens]

    def _mix(self, log_probs: Iterable[Array], buckets: Array) -> Array:
        total: Array | None = None
        for i, part in enumerate(log_probs):
            weighted = part + self._log_weights[buckets, i]
            total = weighted if total is None else np.logaddexp(total, weighted)
        assert total is not None
        return total.astype(np.float32)


class Ensemble:
    """Several models of targets as one: each reads the source, and their predictions are mixed. weights (M,)"""

    def __init__(self, members: Sequence[ConditionalModel[Any]], weights: Array | None = None) -> None:
        shares = np.full(len(members), 1 / len(members)) if weights is None else weights
        self._members = tuple(members)
        self._mixture = Mixture(members, shares[None])  # type: ignore[arg-type]  # its `start` is never called
        self.vocab_size = self._mixture.vocab_size

    def encode(self, source: Array, lengths: Array) -> MixtureState:
        """Every member has read the source."""
        parts = tuple(member.encode(source, lengths) for member in self._members)
        return MixtureState(parts, np.zeros(len(source), dtype=np.int64))

    def predict(self, state: MixtureState) -> Array:
        """The weighted sum of what the members predict. -> (B, V)"""
        return self._mixture.predict(state)

    def advance(self, tokens: Array, state: MixtureState) -> MixtureState:
        """Every member one token further."""
        return self._mixture.advance(tokens, state)

    def score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        """The weighted sum of what the members give each token. -> (B, T)"""
        return self._mixture.score(tokens, lengths, state)

    def join(self, states: Sequence[MixtureState]) -> MixtureState:
        """Member by member."""
        return self._mixture.join(states)


def _net_at(place: int, members: Sequence[Member | NeuralCache]) -> Featured:
    """The net that a neural cache follows."""
    found = members[place] if place < len(members) else None
    if not isinstance(found, Featured):
        nets = [str(i) for i, member in enumerate(members) if isinstance(member, Featured)]
        raise UsageError(
            f"a neural cache follows a net, and member {place} is none",
            hint=f"members that are nets: {', '.join(nets)}" if nets else "give a net (lstm, gru, …) as a member",
        )
    return found


def fit_mixture(
    members: Sequence[Member],
    ids: Array,
    *,
    reset_lines: bool,
    cache: bool = False,
    neural_caches: Sequence[NeuralCacheConfig] = (),
    bucketed: bool = False,
    report: Callable[[str], None],
) -> Mixture:
    """Mix the members so that the held-out text `ids` is most likely. Tokens that no member thinks possible are left out.

    `neural_caches` are added as members, what they leave open tuned; `cache` adds a last one: the fading cache whose
    decay helps most.
    """
    mixed: list[Member | NeuralCache] = [*members]
    Mixture(mixed, np.ones((1, len(mixed))))  # refuses before anything slow
    places = [_followed(config, members) for config in neural_caches]
    scores = [score_text(member, ids, reset_lines=reset_lines) for member in members]
    for config, place in zip(neural_caches, places, strict=True):
        net = _net_at(place, members)
        config = config.model_copy(update={"net": place})
        tuned = _tune_neural_cache(config, net, np.stack(scores), ids, reset_lines=reset_lines)
        scores += [*_score_ways(tuned, net, ids, [tuned.weighing], reset_lines=reset_lines)]
        mixed.append(tuned)
        report(f"neural cache: theta {tuned.config.theta}, decay {tuned.config.decay}, window {tuned.window}")
    if cache:
        found, own = _fit_cache(scores, ids, members[0].vocab_size, reset_lines=reset_lines)
        report(f"cache: decay {found.decay} of {', '.join(map(str, DECAYS))}")
        mixed.append(found)
        scores.append(own)
    scores_MN = np.stack(scores)
    weights = fit_weights(scores_MN)
    report(f"weights {', '.join(f'{weight:.3f}' for weight in weights)}")
    if not bucketed:
        return Mixture(mixed, weights[None])
    word_buckets = bucket_words(ids, vocab_size=members[0].vocab_size)
    buckets_N = word_buckets[np.concatenate([[EOS_ID], ids[:-1]])]
    rows = [
        fit_weights(scores_MN[:, buckets_N == bucket], prior=weights, prior_tokens=PRIOR_TOKENS)
        for bucket in range(int(word_buckets.max()) + 1)
    ]
    report(f"weights for {len(rows)} buckets of histories")
    return Mixture(mixed, np.stack(rows), word_buckets=word_buckets)


def _followed(config: NeuralCacheConfig, members: Sequence[Member]) -> int:
    """The place of the net that a neural cache is to follow: the one it names, or the first."""
    if config.net is not None:
        _net_at(config.net, members)  # refuses what is none
        return config.net
    nets = [i for i, member in enumerate(members) if isinstance(member, Featured)]
    if not nets:
        raise UsageError(
            "a neural cache needs a net beside it, and no member is one",
            hint="give the directory of a net (lstm, gru, …) itself, not of a mixture; a cache needs none",
        )
    return nets[0]


def _fit_cache(scores: Sequence[Array], ids: Array, vocab_size: int, *, reset_lines: bool) -> tuple[CacheModel, Array]:
    """The cache with which a mixture of all leaves the fewest nats, and its scores."""
    caches = [CacheModel(CacheConfig(window=None, decay=decay), vocab_size=vocab_size) for decay in DECAYS]
    own = [score_text(cache, ids, reset_lines=reset_lines) for cache in caches]
    best = _most_useful(np.stack(scores), own)
    return caches[best], own[best]


def _tune_neural_cache(
    config: NeuralCacheConfig, net: Featured, scores: Array, ids: Array, *, reset_lines: bool
) -> NeuralCache:
    """The cache with which a mixture of all leaves the fewest nats, on the beginning of the text."""
    size = min(len(ids), TUNED_TOKENS)
    while reset_lines and size < len(ids) and ids[size - 1] != EOS_ID:
        size += 1
    unit = 1.0 if config.theta is not None else _typical_likeness(net, ids[:FEATURE_TOKENS])
    thetas = [float(f"{theta / unit:.3g}") for theta in THETAS] if config.theta is None else [config.theta]
    ways = [Weighing(*way) for way in product(thetas, NEURAL_DECAYS if config.decay is None else [config.decay])]
    caches = [NeuralCache(config.model_copy(update=way._asdict()), vocab_size=net.vocab_size) for way in ways]
    if len(caches) == 1:
        return caches[0]
    own = _score_ways(caches[0], net, ids[:size], ways, reset_lines=reset_lines)
    return caches[_most_useful(scores[:, :size], own)]


def _typical_likeness(net: Featured, ids: Array) -> float:
    """How much the products of a history's vector with others vary; theta counts in these, as nets' scales differ."""
    tokens = np.asarray(ids[None, :1024], np.int64)
    _, features, _ = net.score_features(tokens, np.array([tokens.shape[1]]), net.start(1))
    varies = float((features[0] @ features[0].T).std(axis=1).mean())
    return varies or 1.0


def _score_ways(cache: NeuralCache, net: Featured, ids: Array, ways: Sequence[Weighing], *, reset_lines: bool) -> Array:
    """Log-probability of each token of a text for each way of weighing. -> (len(ways), N)"""
    scores = np.empty((len(ways), len(ids)), np.float32)
    for piece in _pieces(ids, reset_lines=reset_lines, chunk_tokens=FEATURE_TOKENS):
        if piece.is_start:
            net_state = net.start(len(piece.lengths))
            state = cache.start(net.features(net_state))
        tokens = np.asarray(ids[piece.place], np.int64)
        _, features, net_state = net.score_features(tokens, piece.lengths, net_state)
        nats, state = cache.score_ways(tokens, piece.lengths, state, features, ways)
        scores[:, piece.place[piece.is_token]] = nats[:, piece.is_token]
    return scores


def _most_useful(scores: Array, candidates: Sequence[Array] | Array) -> int:
    """Which candidate, mixed with the members of these scores, leaves the fewest nats."""
    worths = []
    for own in candidates:
        together = np.concatenate([scores, own[None]])
        mixed = _log_mixed(together, fit_weights(together))
        worths.append((int(np.isfinite(mixed).sum()), float(mixed[np.isfinite(mixed)].sum())))
    return max(range(len(worths)), key=worths.__getitem__)


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
    state: Any = None
    for piece in _pieces(ids, reset_lines=reset_lines, chunk_tokens=CHUNK_TOKENS):
        if piece.is_start:
            state = lm.start(len(piece.lengths))
        nats, state = lm.score(np.asarray(ids[piece.place], np.int64), piece.lengths, state)
        scores[piece.place[piece.is_token]] = nats[piece.is_token]
    return scores


class _Piece(NamedTuple):
    """A part of a text that is read at once."""

    place: Array  # (B, T) where its tokens stand
    lengths: Array  # (B,)
    is_start: bool  # its rows begin anew; else it goes on from the piece before

    @property
    def is_token(self) -> Array:
        return np.asarray(np.arange(self.place.shape[1]) < self.lengths[:, None])


def _pieces(ids: Array, *, reset_lines: bool, chunk_tokens: int) -> Iterator[_Piece]:
    """A text cut up: one stream in order, or lines of like length together, the longest of a batch last."""
    if not reset_lines:
        for first in range(0, len(ids), chunk_tokens):
            place = np.arange(first, min(first + chunk_tokens, len(ids)))[None]
            yield _Piece(place, np.array([place.shape[1]]), first == 0)
        return
    starts = np.flatnonzero(np.concatenate([[True], ids[:-1] == EOS_ID])[: len(ids)])
    lengths = np.diff(starts, append=len(ids))
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and lengths[order[last]] * (last + 1 - first) <= chunk_tokens:
            last += 1
        rows = order[first:last]
        columns = np.arange(lengths[rows[-1]])
        place = np.where(columns < lengths[rows][:, None], starts[rows][:, None] + columns, 0)
        yield _Piece(place, lengths[rows], True)
        first = last
