"""Mixtures: a weighted sum, by EM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.heldout import score_text
from elman.lm.mixture import Mixture
from elman.lm.mixture_fit import fit_mixture
from elman.lm.mixture_weights import bucket_words, fit_weights
from elman.lm.protocol import FreeModel
from elman.testing import LAWS, TableLM, saving_and_loading_is_exact
from elman.text.units.vocabulary import EOS_ID


class Table(TableLM):
    """A table that can be saved."""

    def tensors(self) -> dict[str, Array]:
        return {"log_probs": self._log_probs_CV.reshape(-1)}


def silent(sentence: str) -> None:
    del sentence


def table(seed: int, *, impossible: float = 0.0) -> Any:
    return Table.random(np.random.default_rng(seed), impossible=impossible)


def mixture(*, bucketed: bool) -> Mixture:
    members = [table(0), table(1, impossible=0.4), CacheModel(CacheConfig(window=3), vocab_size=4)]
    if not bucketed:
        return Mixture(members, np.array([[0.5, 0.3, 0.2]]))
    weights = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0]])
    return Mixture(members, weights, word_buckets=np.array([0, 2, 1, 0], np.int32))


def possible(text_log_probs: Array) -> Array:
    return text_log_probs[np.isfinite(text_log_probs)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bucketed", [False, True], ids=["one set", "buckets"])
def test_a_mixture_keeps_the_law(bucketed: bool, law) -> None:
    law(mixture(bucketed=bucketed), np.random.default_rng(0), 1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_a_mixture_of_mixtures_keeps_the_law(law) -> None:
    nested = Mixture([mixture(bucketed=True), table(2)], np.array([[0.25, 0.75]]))
    law(nested, np.random.default_rng(0), 1e-5)


@pytest.mark.parametrize("bucketed", [False, True], ids=["one set", "buckets"])
def test_saving_and_loading_is_exact(bucketed: bool) -> None:
    def roundtrip(lm: FreeModel) -> Mixture:
        assert isinstance(lm, Mixture)
        tensors = lm.tensors()
        assert np.array_equal(tensors["members.1.log_probs"], lm.members[1].tensors()["log_probs"])
        return Mixture.from_tensors(lm.members, tensors, bucketed=bucketed)

    saving_and_loading_is_exact(mixture(bucketed=bucketed), np.random.default_rng(0), roundtrip=roundtrip)


def test_weights_that_do_not_fit_the_members_are_refused() -> None:
    with pytest.raises(DataError, match="weights"):
        Mixture.from_tensors([table(0), table(1)], {"weights": np.array([0.2, 0.3, 0.5])}, bucketed=False)


def test_a_prediction_is_the_weighted_sum_of_the_members() -> None:
    first, second = Table(np.array([0.1, 0.2, 0.7])), Table(np.array([0.5, 0.5, 0.0]))
    mixed = Mixture([first, second], np.array([[0.6, 0.4]]))
    expected = [0.6 * 0.1 + 0.4 * 0.5, 0.6 * 0.2 + 0.4 * 0.5, 0.6 * 0.7]
    np.testing.assert_allclose(np.exp(mixed.predict(mixed.start(1)))[0], expected, rtol=1e-6)


def test_very_unlikely_tokens_do_not_become_impossible() -> None:
    class Sure(Table):
        def predict(self, state: Array) -> Array:
            return np.full((len(state), 2), -2000.0, np.float32)

    mixed = Mixture([Sure(np.array([0.5, 0.5]))] * 2, np.array([[0.5, 0.5]]))
    assert mixed.predict(mixed.start(1)).tolist() == [[-2000.0, -2000.0]]


def test_the_bucket_of_the_last_word_chooses_the_weights() -> None:
    always_0, always_1 = Table(np.array([1.0, 0.0])), Table(np.array([0.0, 1.0]))
    weights = np.array([[0.9, 0.1], [0.2, 0.8]])
    mixed = Mixture([always_0, always_1], weights, word_buckets=np.array([1, 0], np.int32))
    after_0 = mixed.advance(np.array([0]), mixed.start(1))
    np.testing.assert_allclose(np.exp(mixed.predict(mixed.start(1)))[0], [0.9, 0.1], rtol=1e-6)  # as after an EOS
    np.testing.assert_allclose(np.exp(mixed.predict(after_0))[0], [0.2, 0.8], rtol=1e-6)


@pytest.mark.parametrize("bucketed", [False, True], ids=["one set", "buckets"])
def test_gains_are_the_gradient_by_the_logarithms_of_the_weights(bucketed: bool) -> None:
    lm, tokens, lengths = mixture(bucketed=bucketed), np.array([[2, 0, 3, 1, 2], [3, 3, 0, 0, 0]]), np.array([5, 2])
    log_probs, gains_BTM, _ = lm.score_gains(tokens, lengths, lm.start(2))
    np.testing.assert_array_equal(log_probs, lm.score(tokens, lengths, lm.start(2))[0])
    is_possible = np.isfinite(log_probs)
    assert not gains_BTM[1, 2:].any() and not gains_BTM[~is_possible].any()
    for member in range(3):
        up, down = (
            lm.reweighted(np.exp(step * np.eye(3)[member])).score(tokens, lengths, lm.start(2))[0][is_possible]
            for step in (0.01, -0.01)
        )
        np.testing.assert_allclose(gains_BTM[is_possible, member], (up - down) / 0.02, atol=1e-4)


def test_a_token_that_nobody_thinks_possible_brings_no_gains() -> None:
    lm = Mixture([CacheModel(CacheConfig(window=3), vocab_size=4)] * 2, np.array([[0.9, 0.1]]))
    log_probs, gains_BTM, _ = lm.score_gains(np.array([[2, 3]]), np.array([2]), lm.start(1))
    assert log_probs[0, 1] == -np.inf
    np.testing.assert_allclose(gains_BTM, 0, atol=1e-6)


def test_weights_times_factors_are_normalised_again() -> None:
    lm = mixture(bucketed=True).reweighted(np.array([2.0, 1.0, 0.5]))
    np.testing.assert_allclose(
        lm.weights, [[1 / 1.4, 0.3 / 1.4, 0.1 / 1.4], [0.2 / 0.7, 0.1 / 0.7, 0.4 / 0.7], [0, 1, 0]]
    )


def test_models_of_different_vocabularies_are_refused() -> None:
    caches = [CacheModel(CacheConfig(window=3), vocab_size=size) for size in (1000, 1200)]
    with pytest.raises(UsageError, match="1,000 and 1,200 words") as error:
        fit_mixture(caches, np.array([1]), reset_lines=False, report=silent)
    assert "same data" in str(error.value.hint)


@given(counts=st.lists(st.integers(1, 50), min_size=2, max_size=4))
def test_members_that_share_no_token_are_weighed_by_their_tokens(counts: list[int]) -> None:
    """If every token is possible under one member alone, the best weights are the parts of the text."""
    owner = np.repeat(np.arange(len(counts)), counts)
    log_probs = np.where(owner == np.arange(len(counts))[:, None], -1.5, -np.inf)
    np.testing.assert_allclose(fit_weights(log_probs), np.array(counts) / sum(counts), atol=1e-9)


def test_em_finds_the_weights_that_a_fine_grid_finds() -> None:
    rng = np.random.default_rng(0)
    log_probs = rng.normal(-3, 1.5, size=(2, 500))
    found = fit_weights(log_probs)
    grid = np.linspace(0, 1, 10_001)
    totals = [np.log(w * np.exp(log_probs[0]) + (1 - w) * np.exp(log_probs[1])).sum() for w in grid]
    assert found[0] == pytest.approx(grid[int(np.argmax(totals))], abs=2e-3)


def test_tokens_that_nobody_thinks_possible_do_not_count() -> None:
    log_probs = np.array([[-1.0, -np.inf, -np.inf], [-np.inf, -2.0, -np.inf]])
    np.testing.assert_allclose(fit_weights(log_probs), [0.5, 0.5])
    np.testing.assert_allclose(fit_weights(np.full((2, 3), -np.inf)), [0.5, 0.5])


def test_a_prior_holds_where_there_are_few_tokens() -> None:
    log_probs = np.array([[0.0], [-np.inf]])  # one token, the first member's
    found = fit_weights(log_probs, prior=np.array([0.25, 0.75]), prior_tokens=3)
    np.testing.assert_allclose(found, [(1 + 3 * 0.25) / 4, 3 * 0.75 / 4])


def test_a_fitted_mixture_is_no_worse_than_its_best_member_and_says_its_weights() -> None:
    ids = np.random.default_rng(1).integers(0, 4, 400)
    members, said = [table(0), table(1), table(2)], []
    mixed = fit_mixture(members, ids, reset_lines=False, report=said.append).mixture
    best = max(score_text(member, ids, reset_lines=False).sum(dtype=np.float64) for member in members)
    assert score_text(mixed, ids, reset_lines=False).sum(dtype=np.float64) >= best - 1e-3
    assert said == [f"weights {', '.join(f'{weight:.3f}' for weight in mixed.weights[0])}"]


@pytest.mark.parametrize(("topic_tokens", "topic_words", "decay"), [(8, 4, 0.98), (9000, 200, 0.999)])
def test_the_cache_that_is_added_fades_as_fast_as_topics_change(
    topic_tokens: int, topic_words: int, decay: float
) -> None:
    rng = np.random.default_rng(2)
    topics = [rng.integers(2, 300, topic_words) for _ in range(9000 // topic_tokens)]
    ids = np.concatenate([rng.choice(topic, topic_tokens) for topic in topics])
    uniform: Any = Table(np.full(300, 1 / 300))
    mixed = fit_mixture([uniform], ids, reset_lines=False, cache=True, report=silent).mixture
    cache = mixed.members[-1]
    assert isinstance(cache, CacheModel)
    assert cache.config.decay == decay
    assert mixed.weights[0, 1] > 0.2


def test_buckets_tell_apart_where_each_member_is_right() -> None:
    """After word 2 comes 2 or 3, as the first member says; after word 3 comes 0, as the second says."""
    rng = np.random.default_rng(3)
    ids = [2]
    while len(ids) < 3000:
        ids.append(int(rng.choice([2, 3])) if ids[-1] == 2 else 0 if ids[-1] == 3 else 2)
    text = np.array(ids)
    members = [Table(np.array([0.1, 0.1, 0.4, 0.4])), Table(np.array([0.7, 0.1, 0.1, 0.1]))]
    one = fit_mixture(members, text, reset_lines=False, report=silent).mixture
    many = fit_mixture(members, text, reset_lines=False, bucketed=True, report=silent).mixture
    buckets = many.word_buckets
    assert buckets is not None
    assert many.weights[buckets[2], 0] > 0.95
    assert many.weights[buckets[3], 1] > 0.95
    gain = score_text(many, text, reset_lines=False).mean() - score_text(one, text, reset_lines=False).mean()
    assert gain > 0.1


def test_crosswise_is_each_half_by_the_weights_of_the_other() -> None:
    """The first half is as the first member says, the second as the other: tuned on one half, the other is a surprise."""
    rng = np.random.default_rng(4)
    probs = np.array([[0.1, 0.1, 0.4, 0.4], [0.7, 0.1, 0.1, 0.1]])
    text = np.concatenate([rng.choice(4, 500, p=row) for row in probs])
    fitted = fit_mixture([Table(row) for row in probs], text, reset_lines=False, report=silent)
    log_probs = np.log(probs[:, text])
    expected = []
    for tuned, other in ((slice(500), slice(500, None)), (slice(500, None), slice(500))):
        expected.append(np.log(fit_weights(log_probs[:, tuned]) @ np.exp(log_probs[:, other])))
    np.testing.assert_allclose(fitted.crosswise, np.concatenate(expected[::-1]), rtol=1e-5)
    np.testing.assert_allclose(fitted.log_probs, score_text(fitted.mixture, text, reset_lines=False), rtol=1e-5)
    assert fitted.log_probs.mean() - fitted.crosswise.mean() > 0.2


def test_ingredients_say_what_each_member_brought() -> None:
    rng = np.random.default_rng(6)
    good, bad = np.array([0.1, 0.1, 0.4, 0.4]), np.array([0.7, 0.1, 0.1, 0.1])
    text = rng.choice(4, 2000, p=good)
    of_good, of_bad = fit_mixture([Table(good), Table(bad)], text, reset_lines=False, report=silent).ingredients
    assert of_good.weight > 0.95
    assert of_good.alone == pytest.approx(-np.log(good[text]).mean(), rel=1e-6)
    assert of_good.without == pytest.approx(of_bad.alone, rel=1e-6)
    assert of_bad.without == pytest.approx(of_good.alone, rel=1e-6)


def test_frequent_words_have_a_bucket_of_their_own_and_others_share() -> None:
    ids = np.repeat([0, 1, 2, 3, 4], [1, 2, 3, 150, 200])
    assert bucket_words(ids, vocab_size=6).tolist() == [1, 1, 2, 3, 4, 0]


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=12), seed=st.integers(0, 5))
def test_a_text_of_lines_scores_as_its_lines_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = [np.append(rng.choice([0, 2, 3], length), EOS_ID) for length in lengths]
    lm = table(seed)
    alone = [lm.score(line[None], np.array([len(line)]), lm.start(1))[0][0] for line in lines]
    found = score_text(lm, np.concatenate(lines), reset_lines=True)
    np.testing.assert_allclose(found, np.concatenate(alone), rtol=1e-6)


def test_a_stream_scores_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(4).integers(0, 4, 50)
    lm = mixture(bucketed=True)
    whole = score_text(lm, ids, reset_lines=False)
    monkeypatch.setattr("elman.lm.heldout.CHUNK_TOKENS", 7)
    np.testing.assert_allclose(score_text(lm, ids, reset_lines=False), whole, rtol=1e-5)
    assert math.isfinite(possible(whole).sum())
