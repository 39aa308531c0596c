"""Caches for a mixture, tuned on held-out text: for all of it, and for each half of it alone.

`B` rows, `T` tokens, `N` tokens in all, `P` width of a hidden vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.heldout import FIRST, PARTS, SECOND, WHOLE, FitText, Piece, pieces, score_text
from elman.lm.mixture import FEATURE_TOKENS, Featured, Member, net_at
from elman.lm.mixture_weights import fit_weights, log_mixed
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig, Weighing

DECAYS = (0.98, 0.99, 0.995, 0.998, 0.999)  # decays tried for a cache
THETAS = (0.4, 0.7, 1.0, 1.4, 2.0)  # thetas tried for a neural cache, in units of 1 / the spread of similarities
NEURAL_DECAYS = (1.0, 0.999, 0.998, 0.996, 0.992)  # decays tried for a neural cache
KEPT_NUMBERS = 1 << 28  # of hidden vectors that are kept in memory, a gigabyte
READ_TOKENS = 1 << 15  # tokens whose vectors are computed at once, where they are kept


class Addition(NamedTuple):
    """A member that is tuned: ways that it could be, and the best of them for the text and for each half."""

    members: Sequence[Any]
    log_probs: Mapping[int, Array]  # (N,) of the ways that are best for something
    best: tuple[int, int, int]
    sentence: str


def tune_cache(scored: Sequence[Array], text: FitText, vocab_size: int) -> Addition:
    """A cache with the decay with which the mixture of all members has the fewest nats."""
    caches = [CacheModel(CacheConfig(window=None, decay=decay), vocab_size=vocab_size) for decay in DECAYS]
    log_probs = np.stack([score_text(cache, text.ids, reset_lines=text.reset_lines) for cache in caches])
    scores = np.stack(scored)
    best = [_best_addition(scores[:, text.part(part)], log_probs[:, text.part(part)]) for part in PARTS]
    sentence = f"cache: decay {caches[best[WHOLE]].decay} of {', '.join(map(str, DECAYS))}"
    return Addition(caches, dict(enumerate(log_probs)), (best[0], best[1], best[2]), sentence)


def net_place(config: NeuralCacheConfig, members: Sequence[Member]) -> int:
    """The place of the net for a neural cache: the one it names, or the first."""
    if config.net is not None:
        net_at(config.net, members)  # an error if it is not a net
        return config.net
    nets = [i for i, member in enumerate(members) if isinstance(member, Featured)]
    if not nets:
        raise UsageError(
            "a neural cache needs a net among the members",
            code="bad-mixture",
            hint="give the directory of a net (lstm, gru, …) itself, not of a mixture; a cache needs none",
        )
    return nets[0]


def tune_neural_cache(config: NeuralCacheConfig, reading: Reading, scores: Array, text: FitText) -> Addition:
    """The theta, and then the decay, with which the mixture of all members has the fewest nats, on samples of the halves."""
    unit = 1.0 if config.theta is not None else _similarity_spread(reading)
    thetas = [float(f"{theta / unit:.3g}") for theta in THETAS] if config.theta is None else [config.theta]
    decays = [*NEURAL_DECAYS] if config.decay is None else [config.decay]
    samples = {half: text.sample(half) for half in (FIRST, SECOND)}
    read = {half: reading.sample(place) for half, place in samples.items()}
    known: dict[Weighing, dict[int, Array]] = {}

    def cache(way: Weighing) -> NeuralCache:
        return NeuralCache(config.model_copy(update=way._asdict()), vocab_size=reading.net.vocab_size)

    def best_of(ways: Sequence[Weighing], part: int) -> Weighing:
        if len(ways) == 1:
            return ways[0]
        halves = [FIRST, SECOND] if part == WHOLE else [part]
        if unknown := [way for way in ways if way not in known]:  # all at once: they share the similarities
            found = {half: _score_ways(cache(unknown[0]), read[half], unknown) for half in read}
            known.update({way: {half: found[half][i] for half in read} for i, way in enumerate(unknown)})
        places = np.concatenate([np.arange(len(text.ids))[samples[half]] for half in halves])
        candidates = [np.concatenate([known[way][half] for half in halves]) for way in ways]
        return ways[_best_addition(scores[:, places], candidates)]

    chosen = []
    for part in PARTS:
        theta = best_of([Weighing(theta, decays[len(decays) // 2]) for theta in thetas], part).theta
        chosen.append(best_of([Weighing(theta, decay) for decay in decays], part))
    ways = [*dict.fromkeys(chosen)]
    log_probs = _score_ways(cache(ways[0]), reading.pieces(), ways)
    best = [ways.index(way) for way in chosen]
    found = cache(chosen[WHOLE])
    sentence = f"neural cache: theta {found.config.theta}, decay {found.config.decay}, window {found.window}"
    return Addition([cache(way) for way in ways], dict(enumerate(log_probs)), (best[0], best[1], best[2]), sentence)


def _similarity_spread(reading: Reading) -> float:
    """The typical standard deviation of dot products between hidden vectors: the scale of theta for this net."""
    features_NP = np.concatenate([piece.features[piece.piece.is_token] for piece in reading.sample(slice(0, 1024))])
    spread = float((features_NP @ features_NP.T).std(axis=1).mean())
    return spread or 1.0


class _Features(NamedTuple):
    """A piece of a text, and the hidden vectors that its tokens are predicted from, (B, T, P)."""

    piece: Piece
    tokens: Array
    features: Array
    log_probs: Array


class Reading:
    """What a net makes of a text. Its vectors are kept where memory allows; else it reads the text again."""

    def __init__(self, net: Featured, text: FitText) -> None:
        self.net = net
        self._text = text
        self._kept: list[_Features] | None = None
        if len(text.ids) * net.features(net.start(1)).shape[1] <= KEPT_NUMBERS:
            self._kept = [*self._read(text.ids, READ_TOKENS)]

    def pieces(self) -> Iterable[_Features]:
        """All of the text."""
        return self._read(self._text.ids, FEATURE_TOKENS) if self._kept is None else self._kept

    def sample(self, place: slice) -> list[_Features]:
        """A part of the text, as if it began there."""
        if self._kept is None or self._text.reset_lines:
            return [*self._read(self._text.ids[place], FEATURE_TOKENS)]
        features = np.concatenate([*_within(place, [piece.features[0] for piece in self._kept])])[None]
        tokens = np.asarray(self._text.ids[None, place], np.int64)
        piece = Piece(np.arange(tokens.shape[1])[None], np.array([tokens.shape[1]]), is_start=True)
        return [_Features(piece, tokens, features, np.zeros(tokens.shape))]

    def log_probs(self) -> Array:
        """Of each token, by the net. -> (N,)"""
        return np.asarray(_gathered([(piece.piece, piece.log_probs[None]) for piece in self.pieces()])[0])

    def _read(self, ids: Array, chunk_tokens: int) -> Iterator[_Features]:
        for piece in pieces(ids, reset_lines=self._text.reset_lines, chunk_tokens=chunk_tokens):
            if piece.is_start:
                state = self.net.start(len(piece.lengths))
            tokens = np.asarray(ids[piece.place], np.int64)
            log_probs, features, state = self.net.score_features(tokens, piece.lengths, state)
            yield _Features(piece, tokens, features, log_probs)


def _within(place: slice, blocks: Iterable[Array]) -> Iterator[Array]:
    """The parts of consecutive blocks that lie in a place, without a copy of what lies outside."""
    first = 0
    for block in blocks:
        yield block[max(0, (place.start or 0) - first) : max(0, place.stop - first)]
        first += len(block)


def _score_ways(cache: NeuralCache, read: Iterable[_Features], ways: Sequence[Weighing]) -> Array:
    """Log-probability of each token of a text for each pair of theta and decay. -> (len(ways), N)"""
    found: list[tuple[Piece, Array]] = []
    for piece, tokens, features, _ in read:
        if piece.is_start:
            state = cache.start(features[:, 0])
        log_probs, state = cache.score_ways(tokens, piece.lengths, state, features, ways)
        found.append((piece, log_probs))
    return _gathered(found)


def _gathered(scored: Sequence[tuple[Piece, Array]]) -> Array:
    """The scores of pieces, (K, B, T), in the order of their text. -> (K, N)"""
    num_tokens = sum(int(piece.lengths.sum()) for piece, _ in scored)
    scores = np.empty((len(scored[0][1]) if scored else 0, num_tokens), np.float32)
    for piece, log_probs in scored:
        scores[:, piece.place[piece.is_token]] = log_probs[:, piece.is_token]
    return scores


def _best_addition(scores: Array, candidates: Sequence[Array] | Array) -> int:
    """Which candidate, mixed with the members of these scores, gives the fewest nats."""
    results = []
    for candidate in candidates:
        extended = np.concatenate([scores, candidate[None]])
        mixed = log_mixed(extended, fit_weights(extended)[None])
        results.append((int(np.isfinite(mixed).sum()), float(mixed[np.isfinite(mixed)].sum())))
    return max(range(len(results)), key=results.__getitem__)
