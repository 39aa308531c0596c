"""Words that stand in the same places get vectors alike; what a text does not have gets none."""

from __future__ import annotations

import numpy as np
import pytest

from elman.core.arrays import Array
from elman.counts.word_vectors import DISTANCES, SMOOTHING, SPREAD, _information, count_word_vectors

KINDS, EACH = 4, 5  # the text goes round through kinds of words, of each of which it takes any
VOCAB = KINDS * EACH + 2  # and two words that never occur


@pytest.fixture(scope="module")
def ids() -> Array:
    rng = np.random.default_rng(3)
    kinds = np.arange(4000) % KINDS
    return (kinds * EACH + rng.integers(EACH, size=len(kinds))).astype(np.uint16)


def vectors_of(ids: Array, *, width: int = 6, seed: int = 1, vocab_size: int = VOCAB) -> Array:
    return count_word_vectors(ids, vocab_size=vocab_size, width=width, rng=np.random.default_rng(seed))


def cosines(vectors: Array) -> Array:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Array = units @ units.T
    return found


def test_words_of_the_same_places_are_alike_and_others_are_not(ids: Array) -> None:
    found = cosines(vectors_of(ids, width=KINDS)[: KINDS * EACH])
    kinds = np.arange(KINDS * EACH) // EACH
    is_same = kinds[:, None] == kinds[None, :]
    assert found[is_same].min() > 0.99 and abs(found[~is_same]).max() < 0.01


def test_a_word_that_never_occurs_has_no_vector(ids: Array) -> None:
    vectors = vectors_of(ids)
    assert np.isnan(vectors[KINDS * EACH :]).all() and np.isfinite(vectors[: KINDS * EACH]).all()


def test_numbers_have_the_spread_that_a_net_stands_and_every_unit_a_share(ids: Array) -> None:
    vectors = vectors_of(ids)[: KINDS * EACH]
    assert vectors.dtype == np.float32
    assert 0.8 * SPREAD < vectors.std() < 1.3 * SPREAD
    assert vectors.std(axis=0).min() > 0.2 * SPREAD


def test_a_seed_turns_them_and_keeps_what_is_near_what(ids: Array) -> None:
    one, same, other = (vectors_of(ids, seed=seed)[: KINDS * EACH] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > SPREAD
    np.testing.assert_allclose(cosines(one), cosines(other), atol=0.1)


def test_information_is_that_of_the_definition(ids: Array) -> None:
    found = _information(ids, VOCAB).toarray()
    counts = np.bincount(ids, minlength=VOCAB)
    order = np.argsort(-counts, kind="stable")  # contexts stand in the order of their counts
    expected = []
    for distance in DISTANCES:
        pairs = np.zeros((VOCAB, VOCAB))
        np.add.at(pairs, (ids[:-distance].astype(int), ids[distance:].astype(int)), 1)
        for joint in (pairs, pairs.T):
            smoothed = counts**SMOOTHING / (counts**SMOOTHING).sum()
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.log(joint / (counts[:, None] * smoothed[None, :]))
            expected.append(np.where(joint > 0, np.maximum(values, 0.0), 0.0)[:, order])
    np.testing.assert_allclose(found, np.hstack(expected), rtol=1e-5)


@pytest.mark.parametrize("text", [[0], [0, 1], [0] * 50], ids=["one", "two", "the same"])
def test_next_to_no_text_gives_vectors_or_none_but_never_infinities(text: list[int]) -> None:
    vectors = vectors_of(np.array(text, dtype=np.uint16), width=8, vocab_size=3)
    assert vectors.shape == (3, 8) and not np.isinf(vectors).any()


def test_wider_than_there_are_places_to_describe_a_word(ids: Array) -> None:
    width = 4 * VOCAB * len(DISTANCES)
    vectors = vectors_of(ids, width=width)[: KINDS * EACH]
    assert vectors.shape[1] == width and np.isfinite(vectors).all()
