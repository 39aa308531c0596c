"""Fits a mixture to held-out text: the weights of its members by EM, and the parameters of caches.

`N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.mixture import FEATURE_TOKENS, Featured, Member, Mixture, net_at
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig, Weighing
from elman.lm.protocol import FreeModel
from elman.text.units.vocabulary import EOS_ID

DECAYS = (0.98, 0.99, 0.995, 0.998, 0.999)  # decays tried for a cache
OWN_BUCKET = 100  # occurrences in the held-out text from which a word has a bucket of its own
PRIOR_TOKENS = 20.0  # strength of the overall weights as a prior of a bucket's weights, in tokens
MAX_ROUNDS = 1_000  # limit of EM iterations
CHUNK_TOKENS = 1 << 16  # tokens scored in one call
THETAS = (0.4, 0.7, 1.0, 1.4, 2.0)  # thetas tried for a neural cache, in units of 1 / the spread of similarities
NEURAL_DECAYS = (1.0, 0.999, 0.998, 0.996, 0.992)  # decays tried for a neural cache
TUNED_TOKENS = 1 << 15  # tokens to tune theta and decay on: enough for two parameters


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
    """The mixture that maximises the likelihood of the held-out text `ids`, without tokens impossible for all members.

    `neural_caches` are added as members, with missing parameters tuned; `cache` adds a cache with the best decay.
    """
    mixed: list[Member | NeuralCache] = [*members]
    Mixture(mixed, np.ones((1, len(mixed))))  # checks the members before anything slow
    places = [_net_place(config, members) for config in neural_caches]
    scores = [score_text(member, ids, reset_lines=reset_lines) for member in members]
    for config, place in zip(neural_caches, places, strict=True):
        net = net_at(place, members)
        config = config.model_copy(update={"net": place})
        tuned = _tune_neural_cache(config, net, np.stack(scores), ids, reset_lines=reset_lines)
        scores += [*_score_ways(tuned, net, ids, [tuned.weighing], reset_lines=reset_lines)]
        mixed.append(tuned)
        report(f"neural cache: theta {tuned.config.theta}, decay {tuned.config.decay}, window {tuned.window}")
    if cache:
        best_cache, cache_scores = _fit_cache(scores, ids, members[0].vocab_size, reset_lines=reset_lines)
        report(f"cache: decay {best_cache.decay} of {', '.join(map(str, DECAYS))}")
        mixed.append(best_cache)
        scores.append(cache_scores)
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


def _net_place(config: NeuralCacheConfig, members: Sequence[Member]) -> int:
    """The place of the net for a neural cache: the one it names, or the first."""
    if config.net is not None:
        net_at(config.net, members)  # an error if it is not a net
        return config.net
    nets = [i for i, member in enumerate(members) if isinstance(member, Featured)]
    if not nets:
        raise UsageError(
            "a neural cache needs a net among the members",
            hint="give the directory of a net (lstm, gru, …) itself, not of a mixture; a cache needs none",
        )
    return nets[0]


def _fit_cache(scores: Sequence[Array], ids: Array, vocab_size: int, *, reset_lines: bool) -> tuple[CacheModel, Array]:
    """The cache with which the mixture of all members has the fewest nats, and its scores."""
    caches = [CacheModel(CacheConfig(window=None, decay=decay), vocab_size=vocab_size) for decay in DECAYS]
    candidates = [score_text(cache, ids, reset_lines=reset_lines) for cache in caches]
    best = _best_addition(np.stack(scores), candidates)
    return caches[best], candidates[best]


def _tune_neural_cache(
    config: NeuralCacheConfig, net: Featured, scores: Array, ids: Array, *, reset_lines: bool
) -> NeuralCache:
    """The cache with which the mixture of all members has the fewest nats, on the beginning of the text."""
    size = min(len(ids), TUNED_TOKENS)
    while reset_lines and size < len(ids) and ids[size - 1] != EOS_ID:
        size += 1
    unit = 1.0 if config.theta is not None else _similarity_spread(net, ids[:FEATURE_TOKENS])
    thetas = [float(f"{theta / unit:.3g}") for theta in THETAS] if config.theta is None else [config.theta]
    ways = [Weighing(*way) for way in product(thetas, NEURAL_DECAYS if config.decay is None else [config.decay])]
    caches = [NeuralCache(config.model_copy(update=way._asdict()), vocab_size=net.vocab_size) for way in ways]
    if len(caches) == 1:
        return caches[0]
    candidates = _score_ways(caches[0], net, ids[:size], ways, reset_lines=reset_lines)
    return caches[_best_addition(scores[:, :size], candidates)]


def _similarity_spread(net: Featured, ids: Array) -> float:
    """The typical standard deviation of dot products between hidden vectors: the scale of theta for this net."""
    tokens = np.asarray(ids[None, :1024], np.int64)
    _, features, _ = net.score_features(tokens, np.array([tokens.shape[1]]), net.start(1))
    spread = float((features[0] @ features[0].T).std(axis=1).mean())
    return spread or 1.0


def _score_ways(cache: NeuralCache, net: Featured, ids: Array, ways: Sequence[Weighing], *, reset_lines: bool) -> Array:
    """Log-probability of each token of a text for each pair of theta and decay. -> (len(ways), N)"""
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


def _best_addition(scores: Array, candidates: Sequence[Array] | Array) -> int:
    """Which candidate, mixed with the members of these scores, gives the fewest nats."""
    results = []
    for candidate in candidates:
        extended = np.concatenate([scores, candidate[None]])
        mixed = _log_mixed(extended, fit_weights(extended))
        results.append((int(np.isfinite(mixed).sum()), float(mixed[np.isfinite(mixed)].sum())))
    return max(range(len(results)), key=results.__getitem__)


def bucket_words(ids: Array, *, vocab_size: int) -> Array:
    """The bucket of each word by its count: one of its own, or one of words of similar frequency. -> (V,)"""
    counts = np.bincount(ids, minlength=vocab_size)
    is_frequent = counts >= OWN_BUCKET
    classes = np.floor(np.log2(counts + 1)).astype(np.int32)
    own_buckets = int(classes[~is_frequent].max(initial=-1)) + np.cumsum(is_frequent)
    return np.where(is_frequent, own_buckets, classes).astype(np.int32)


def fit_weights(log_probs: Array, *, prior: Array | None = None, prior_tokens: float = 0.0) -> Array:
    """The weights that maximise the likelihood of the tokens, by EM. (M, N) log-probabilities -> (M,)

    lambda_m <- mean over tokens of lambda_m p_m / sum of lambda p, with prior_tokens pseudo-counts by the prior.
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
        change = float(np.abs(new - weights).max())
        weights = new
        if change < 1e-6:
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

    place: Array  # (B, T) positions of its tokens in the text
    lengths: Array  # (B,)
    is_start: bool  # its rows start from the start state; otherwise they continue the piece before

    @property
    def is_token(self) -> Array:
        return np.asarray(np.arange(self.place.shape[1]) < self.lengths[:, None])


def _pieces(ids: Array, *, reset_lines: bool, chunk_tokens: int) -> Iterator[_Piece]:
    """A text in pieces: one stream in order, or batches of lines of similar length, the longest line last."""
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
