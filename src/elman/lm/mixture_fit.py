"""Fits a mixture to held-out text: the weights of its members by EM, and the parameters of caches.

`N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
WHOLE, FIRST, SECOND = PARTS = range(3)  # of the text


class Ingredient(NamedTuple):
    """What a member does for its mixture, in nats a token of the held-out text."""

    weight: float  # on average over the text
    alone: float  # infinite where it finds a token impossible
    without: float  # of the others, mixed with one set of weights, crosswise


class Fitted(NamedTuple):
    """A mixture, and what the text that it was fitted to costs."""

    mixture: Mixture
    log_probs: Array  # (N,)
    crosswise: Array  # (N,), each half by a mixture that was fitted to the other
    ingredients: tuple[Ingredient, ...]  # one for each member


def fit_mixture(
    members: Sequence[Member],
    ids: Array,
    *,
    reset_lines: bool,
    cache: bool = False,
    neural_caches: Sequence[NeuralCacheConfig] = (),
    bucketed: bool = False,
    report: Callable[[str], None],
) -> Fitted:
    """The mixture that maximises the likelihood of the held-out text `ids`, without tokens impossible for all members.

    `neural_caches` are added as members, with missing parameters tuned; `cache` adds a cache with the best decay.
    """
    Mixture(members, np.ones((1, len(members))))  # checks the members before anything slow
    neural_caches = [config.model_copy(update={"net": _net_place(config, members)}) for config in neural_caches]
    text = _Text(ids, reset_lines)
    scored = [score_text(member, ids, reset_lines=reset_lines) for member in members]
    additions: list[_Addition] = []
    for config in neural_caches:
        assert config.net is not None
        additions.append(_tune_neural_cache(config, net_at(config.net, members), np.stack(scored), text))
    if cache:
        additions.append(_tune_cache(scored, text, members[0].vocab_size))
    for addition in additions:
        report(addition.sentence)

    def scores(part: int) -> Array:
        return np.stack([*scored, *(addition.log_probs[addition.best[part]] for addition in additions)])

    vocab_size = members[0].vocab_size
    whole = _Weights.fit(scores(WHOLE), text, WHOLE, bucketed=bucketed, vocab_size=vocab_size)
    report(f"weights {', '.join(f'{weight:.3f}' for weight in whole.overall)}")
    if bucketed:
        report(f"weights for {len(whole.rows)} buckets of histories")
    mixed = [*members, *(addition.members[addition.best[WHOLE]] for addition in additions)]
    crosswise = _crosswise(scores, text, bucketed=bucketed, vocab_size=vocab_size)
    shares = whole.at(text).mean(axis=0)
    ingredients = [
        Ingredient(float(share), _cost(alone), _cost(_without(i, scores, text)))
        for i, (share, alone) in enumerate(zip(shares, scores(WHOLE), strict=True))
    ]
    return Fitted(
        Mixture(mixed, whole.rows, word_buckets=whole.word_buckets),
        _log_mixed(scores(WHOLE), whole.at(text)),
        crosswise,
        tuple(ingredients),
    )


class _Text:
    """The held-out text, whole and in two halves, whose cut is at the end of a line where lines are read alone."""

    def __init__(self, ids: Array, reset_lines: bool) -> None:
        self.ids = ids
        self.reset_lines = reset_lines
        self.middle = self._end(len(ids) // 2)
        self.before = np.concatenate([[EOS_ID], ids[:-1]])  # the token before each, after which weights are chosen

    def part(self, part: int) -> slice:
        """The tokens of a part."""
        return (slice(None), slice(self.middle), slice(self.middle, None))[part]

    def sample(self, part: int) -> slice:
        """The beginning of a half, to tune on."""
        first = 0 if part == FIRST else self.middle
        last = self.middle if part == FIRST else len(self.ids)
        return slice(first, min(last, self._end(first + TUNED_TOKENS // 2)))

    def _end(self, place: int) -> int:
        while self.reset_lines and 0 < place < len(self.ids) and self.ids[place - 1] != EOS_ID:
            place += 1
        return min(place, len(self.ids))


class _Weights(NamedTuple):
    """Weights of members: overall (M,), and a row for each bucket of last words (K, M)."""

    overall: Array
    rows: Array
    word_buckets: Array | None

    @classmethod
    def fit(cls, scores_MN: Array, text: _Text, part: int, *, bucketed: bool, vocab_size: int) -> _Weights:
        """By EM on a part of the text."""
        place = text.part(part)
        scores_MN, before_N = scores_MN[:, place], text.before[place]
        overall = fit_weights(scores_MN)
        if not bucketed:
            return cls(overall, overall[None], None)
        word_buckets = bucket_words(text.ids[place], vocab_size=vocab_size)
        buckets_N = word_buckets[before_N]
        rows = [
            fit_weights(scores_MN[:, buckets_N == bucket], prior=overall, prior_tokens=PRIOR_TOKENS)
            for bucket in range(int(word_buckets.max()) + 1)
        ]
        return cls(overall, np.stack(rows), word_buckets)

    def at(self, text: _Text) -> Array:
        """Those of each token. -> (N, M)"""
        if self.word_buckets is None:
            return np.broadcast_to(self.rows, (len(text.ids), self.rows.shape[1]))
        return np.asarray(self.rows[self.word_buckets[text.before]])


def _crosswise(scores: Callable[[int], Array], text: _Text, *, bucketed: bool, vocab_size: int) -> Array:
    """Each half of the text by the caches and the weights that are best for the other. -> (N,)"""
    log_probs = np.empty(len(text.ids))
    for fitted, other in ((FIRST, SECOND), (SECOND, FIRST)):
        found = scores(fitted)
        weights = _Weights.fit(found, text, fitted, bucketed=bucketed, vocab_size=vocab_size)
        place = text.part(other)
        log_probs[place] = _log_mixed(found[:, place], weights.at(text)[place])
    return log_probs


def _without(i: int, scores: Callable[[int], Array], text: _Text) -> Array:
    """Crosswise by all members but one, with one set of weights; by that one where there is no other. -> (N,)"""

    def others(part: int) -> Array:
        found = scores(part)
        return np.delete(found, i, axis=0) if len(found) > 1 else found

    return _crosswise(others, text, bucketed=False, vocab_size=0)


def _cost(log_probs: Array) -> float:
    """Nats a token; infinite where one is impossible."""
    return -float(log_probs.mean(dtype=np.float64)) if len(log_probs) else 0.0


# -------------------------------------------------------------------------------------------------------------- caches


class _Addition(NamedTuple):
    """A member that is tuned: ways that it could be, and the best of them for the text and for each half."""

    members: Sequence[Any]
    log_probs: Mapping[int, Array]  # (N,) of the ways that are best for something
    best: tuple[int, int, int]
    sentence: str


def _tune_cache(scored: Sequence[Array], text: _Text, vocab_size: int) -> _Addition:
    """A cache with the decay with which the mixture of all members has the fewest nats."""
    caches = [CacheModel(CacheConfig(window=None, decay=decay), vocab_size=vocab_size) for decay in DECAYS]
    log_probs = np.stack([score_text(cache, text.ids, reset_lines=text.reset_lines) for cache in caches])
    scores = np.stack(scored)
    best = [_best_addition(scores[:, text.part(part)], log_probs[:, text.part(part)]) for part in PARTS]
    sentence = f"cache: decay {caches[best[WHOLE]].decay} of {', '.join(map(str, DECAYS))}"
    return _Addition(caches, dict(enumerate(log_probs)), (best[0], best[1], best[2]), sentence)


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


def _tune_neural_cache(config: NeuralCacheConfig, net: Featured, scores: Array, text: _Text) -> _Addition:
    """The theta, and then the decay, with which the mixture of all members has the fewest nats, on samples of the halves."""
    unit = 1.0 if config.theta is not None else _similarity_spread(net, text.ids[:FEATURE_TOKENS])
    thetas = [float(f"{theta / unit:.3g}") for theta in THETAS] if config.theta is None else [config.theta]
    decays = [*NEURAL_DECAYS] if config.decay is None else [config.decay]
    samples = {half: text.sample(half) for half in (FIRST, SECOND)}
    read = {half: [*_read(net, text.ids[place], text.reset_lines)] for half, place in samples.items()}
    known: dict[Weighing, dict[int, Array]] = {}

    def cache(way: Weighing) -> NeuralCache:
        return NeuralCache(config.model_copy(update=way._asdict()), vocab_size=net.vocab_size)

    def best_of(ways: Sequence[Weighing], part: int) -> Weighing:
        halves = [FIRST, SECOND] if part == WHOLE else [part]
        for way in ways:
            if way not in known and len(ways) > 1:
                known[way] = {half: _score_ways(cache(way), read[half], [way])[0] for half in read}
        if len(ways) == 1:
            return ways[0]
        places = np.concatenate([np.arange(len(text.ids))[samples[half]] for half in halves])
        candidates = [np.concatenate([known[way][half] for half in halves]) for way in ways]
        return ways[_best_addition(scores[:, places], candidates)]

    chosen = []
    for part in PARTS:
        theta = best_of([Weighing(theta, decays[len(decays) // 2]) for theta in thetas], part).theta
        chosen.append(best_of([Weighing(theta, decay) for decay in decays], part))
    ways = [*dict.fromkeys(chosen)]
    log_probs = _score_ways(cache(ways[0]), _read(net, text.ids, text.reset_lines), ways)
    best = [ways.index(way) for way in chosen]
    found = cache(chosen[WHOLE])
    sentence = f"neural cache: theta {found.config.theta}, decay {found.config.decay}, window {found.window}"
    return _Addition([cache(way) for way in ways], dict(enumerate(log_probs)), (best[0], best[1], best[2]), sentence)


def _similarity_spread(net: Featured, ids: Array) -> float:
    """The typical standard deviation of dot products between hidden vectors: the scale of theta for this net."""
    tokens = np.asarray(ids[None, :1024], np.int64)
    _, features, _ = net.score_features(tokens, np.array([tokens.shape[1]]), net.start(1))
    spread = float((features[0] @ features[0].T).std(axis=1).mean())
    return spread or 1.0


class _Features(NamedTuple):
    """A piece of a text, and the hidden vectors that its tokens are predicted from, (B, T, P)."""

    piece: _Piece
    tokens: Array
    features: Array
    start: Array  # (B, P), before the first piece


def _read(net: Featured, ids: Array, reset_lines: bool) -> Iterator[_Features]:
    """The hidden vectors of a text, piece by piece."""
    for piece in _pieces(ids, reset_lines=reset_lines, chunk_tokens=FEATURE_TOKENS):
        if piece.is_start:
            state = net.start(len(piece.lengths))
            start = net.features(state)
        tokens = np.asarray(ids[piece.place], np.int64)
        _, features, state = net.score_features(tokens, piece.lengths, state)
        yield _Features(piece, tokens, features, start)


def _score_ways(cache: NeuralCache, read: Iterable[_Features], ways: Sequence[Weighing]) -> Array:
    """Log-probability of each token of a text for each pair of theta and decay. -> (len(ways), N)"""
    found: list[tuple[Array, Array]] = []
    for piece, tokens, features, start in read:
        if piece.is_start:
            state = cache.start(start)
        nats, state = cache.score_ways(tokens, piece.lengths, state, features, ways)
        found.append((piece.place[piece.is_token], nats[:, piece.is_token]))
    scores = np.empty((len(ways), sum(len(place) for place, _ in found)), np.float32)
    for place, nats in found:
        scores[:, place] = nats
    return scores


def _best_addition(scores: Array, candidates: Sequence[Array] | Array) -> int:
    """Which candidate, mixed with the members of these scores, gives the fewest nats."""
    results = []
    for candidate in candidates:
        extended = np.concatenate([scores, candidate[None]])
        mixed = _log_mixed(extended, fit_weights(extended)[None])
        results.append((int(np.isfinite(mixed).sum()), float(mixed[np.isfinite(mixed)].sum())))
    return max(range(len(results)), key=results.__getitem__)


# ------------------------------------------------------------------------------------------------------------- weights


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
    """log of the weighted sum for each token. (M, N), (1 or N, M) -> (N,)"""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(log_probs.astype(np.float64) + np.log(weights.T), axis=0))


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
