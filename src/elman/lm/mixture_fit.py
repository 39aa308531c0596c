"""Fits a mixture to held-out text: the weights of its members by EM, and the parameters of caches.

`N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm.cache_tuning import Addition, Reading, net_place, tune_cache, tune_neural_cache
from elman.lm.heldout import FIRST, MIN_TEXT_TOKENS, SECOND, WHOLE, FitText, score_text
from elman.lm.mixture import Member, Mixture, net_at
from elman.lm.mixture_weights import bucket_words, fit_weights, log_mixed
from elman.lm.neural_cache import NeuralCacheConfig

PRIOR_TOKENS = 20.0  # strength of the overall weights as a prior of a bucket's weights, in tokens


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
    if neural_caches and len(ids) < MIN_TEXT_TOKENS:
        raise DataError(
            "a neural cache cannot be tuned on a single token of held-out text",
            code="empty-data",
            hint="give a longer --valid",
        )
    neural_caches = [config.model_copy(update={"net": net_place(config, members)}) for config in neural_caches]
    text = FitText(ids, reset_lines)
    read = {
        place: Reading(net_at(place, members), text)
        for place in {config.net for config in neural_caches}
        if place is not None
    }
    scored = [
        read[i].log_probs() if i in read else score_text(member, ids, reset_lines=reset_lines)
        for i, member in enumerate(members)
    ]
    additions: list[Addition] = []
    for config in neural_caches:
        assert config.net is not None
        additions.append(tune_neural_cache(config, read[config.net], np.stack(scored), text))
    if cache:
        additions.append(tune_cache(scored, text, members[0].vocab_size))
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
        log_mixed(scores(WHOLE), whole.at(text)),
        crosswise,
        tuple(ingredients),
    )


class _Weights(NamedTuple):
    """Weights of members: overall (M,), and a row for each bucket of last words (K, M)."""

    overall: Array
    rows: Array
    word_buckets: Array | None

    @classmethod
    def fit(cls, scores_MN: Array, text: FitText, part: int, *, bucketed: bool, vocab_size: int) -> _Weights:
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

    def at(self, text: FitText) -> Array:
        """Those of each token. -> (N, M)"""
        if self.word_buckets is None:
            return np.broadcast_to(self.rows, (len(text.ids), self.rows.shape[1]))
        return np.asarray(self.rows[self.word_buckets[text.before]])


def _crosswise(scores: Callable[[int], Array], text: FitText, *, bucketed: bool, vocab_size: int) -> Array:
    """Each half of the text by the caches and the weights that are best for the other. -> (N,)"""
    log_probs = np.empty(len(text.ids))
    for fitted, other in ((FIRST, SECOND), (SECOND, FIRST)):
        found = scores(fitted)
        weights = _Weights.fit(found, text, fitted, bucketed=bucketed, vocab_size=vocab_size)
        place = text.part(other)
        log_probs[place] = log_mixed(found[:, place], weights.at(text)[place])
    return log_probs


def _without(i: int, scores: Callable[[int], Array], text: FitText) -> Array:
    """Crosswise by all members but one, with one set of weights; by that one where there is no other. -> (N,)"""

    def others(part: int) -> Array:
        found = scores(part)
        return np.delete(found, i, axis=0) if len(found) > 1 else found

    return _crosswise(others, text, bucketed=False, vocab_size=0)


def _cost(log_probs: Array) -> float:
    """Nats a token; infinite where one is impossible."""
    return -float(log_probs.mean(dtype=np.float64)) if len(log_probs) else 0.0
