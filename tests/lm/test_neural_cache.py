"""The neural cache alone: histories come as vectors, so every number can be worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm import neural_cache
from elman.lm.neural_cache import EMPTY, NeuralCache, NeuralCacheConfig, Remembered, Weighing


def cache(*, window: int = 3, theta: float = 1.0, decay: float = 1.0, vocab_size: int = 4) -> NeuralCache:
    return NeuralCache(NeuralCacheConfig(window=window, theta=theta, decay=decay, net=0), vocab_size=vocab_size)


def by_steps(member: NeuralCache, tokens: Array, features: Array, state: Remembered) -> tuple[Array, Remembered]:
    """What `score` means, for one row."""
    scored = []
    for token, vector in zip(tokens, features, strict=True):
        scored.append(member.predict(state, vector[None])[0, token])
        state = member.advance(np.array([token]), state, vector[None])
    return np.array(scored), state


# After history (ln 2, 0) came word 2, after (0, ln 2) word 3, after (ln 2, ln 2) word 2.
HISTORIES = math.log(2) * np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32)
FOLLOWED = np.array([2, 3, 2])


def test_a_prediction_worked_by_hand() -> None:
    # (1, 0) times the histories is ln 2, 0, ln 2: they weigh 2, 1, 2, so word 2 has 4 of 5.
    member = cache()
    _, state = by_steps(member, FOLLOWED, HISTORIES, member.start(np.zeros((1, 2), np.float32)))
    predicted = np.exp(member.predict(state, np.array([[1, 0]], np.float32)))
    np.testing.assert_allclose(predicted, [[0, 0, 4 / 5, 1 / 5]], rtol=1e-6)


def test_theta_sharpens_and_decay_forgets() -> None:
    vector = np.array([[1, 0]], np.float32)
    for theta, decay, weights in [
        (0, 1, (1, 1, 1)),
        (2, 1, (4, 1, 4)),
        (0, 0.5, (1 / 4, 1 / 2, 1)),
        (1, 0.5, (0.5, 0.5, 2)),
    ]:
        member = cache(theta=theta, decay=decay)
        _, state = by_steps(member, FOLLOWED, HISTORIES, member.start(vector))
        share = (weights[0] + weights[2]) / sum(weights)
        np.testing.assert_allclose(np.exp(member.predict(state, vector))[0, 2:], [share, 1 - share], rtol=1e-6)


def test_only_the_window_is_kept() -> None:
    member = cache(window=2)
    vector = np.array([[1, 0]], np.float32)
    _, state = by_steps(member, FOLLOWED, HISTORIES, member.start(vector))
    assert state.tokens.tolist() == [[3, 2]]
    np.testing.assert_allclose(np.exp(member.predict(state, vector)), [[0, 0, 2 / 3, 1 / 3]], rtol=1e-6)


def test_before_anything_was_read_every_token_is_equally_likely() -> None:
    member, vectors = cache(), np.ones((2, 5), np.float32)
    assert np.exp(member.predict(member.start(vectors), vectors)) == pytest.approx(0.25)
    scored, _ = member.score(np.array([[3], [0]]), np.array([1, 0]), member.start(vectors), vectors[:, None])
    assert scored.tolist() == [[pytest.approx(-math.log(4))], [0]]


def test_likenesses_too_large_for_exp_are_no_trouble() -> None:
    member, vectors = cache(), np.array([[300.0], [200.0], [300.0]], np.float32)
    scored, state = member.score(np.array([[2, 3, 2]]), np.array([3]), member.start(vectors[:1]), vectors[None])
    assert scored[0, 2] == pytest.approx(0.0)
    assert np.exp(member.predict(state, vectors[:1]))[0, 2] == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    window=st.integers(1, 9),
    block=st.integers(1, 7),
    lengths=st.lists(st.integers(0, 14), min_size=1, max_size=4),
    before=st.integers(0, 6),
    theta=st.sampled_from([0.0, 0.5, 2.0]),
    decay=st.sampled_from([1.0, 0.7]),
)
def test_blocks_score_as_steps_do(
    seed: int, window: int, block: int, lengths: list[int], before: int, theta: float, decay: float
) -> None:
    rng = np.random.default_rng(seed)
    member = cache(window=window, theta=theta, decay=decay)
    rows, width = len(lengths), max(lengths)
    state = member.start(np.zeros((rows, 3), np.float32))
    for _ in range(before):
        state = member.advance(rng.integers(0, 4, rows), state, rng.normal(size=(rows, 3)).astype(np.float32))
    tokens, features = rng.integers(0, 4, (rows, width)), rng.normal(size=(rows, width, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural_cache, "BLOCK_TOKENS", block)
        scored, after = member.score(tokens, np.array(lengths), state, features)
    probe = rng.normal(size=(rows, 3)).astype(np.float32)
    for row, length in enumerate(lengths):
        begin = Remembered(state.histories[row : row + 1], state.tokens[row : row + 1])
        expected, end = by_steps(member, tokens[row, :length], features[row, :length], begin)
        np.testing.assert_allclose(scored[row, :length], expected, rtol=1e-4, atol=1e-5)
        assert not scored[row, length:].any()
        found = member.predict(
            Remembered(after.histories[row : row + 1], after.tokens[row : row + 1]), probe[row : row + 1]
        )
        np.testing.assert_allclose(found, member.predict(end, probe[row : row + 1]), rtol=1e-4, atol=1e-5)


def test_several_ways_of_weighing_score_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    tokens, features = rng.integers(0, 4, (2, 9)), rng.normal(size=(2, 9, 3)).astype(np.float32)
    ways = [Weighing(0.0, 1.0), Weighing(1.5, 0.9)]
    lengths = np.array([9, 5])
    together, _ = cache().score_ways(tokens, lengths, cache().start(features[:, 0]), features, ways)
    for way, scored in zip(ways, together, strict=True):
        member = cache(theta=way.theta, decay=way.decay)
        alone, _ = member.score(tokens, lengths, member.start(features[:, 0]), features)
        assert np.array_equal(scored, alone)


def test_rows_that_have_read_less_are_filled_up_when_joined() -> None:
    member, vectors = cache(), np.ones((1, 2), np.float32)
    empty = member.start(vectors)
    fuller = member.advance(np.array([2]), member.advance(np.array([3]), empty, vectors), vectors)
    assert member.join([empty, fuller]).tokens.tolist() == [[EMPTY, EMPTY], [3, 2]]


def test_settings_that_were_never_tuned_make_no_cache() -> None:
    with pytest.raises(DataError, match="never tuned"):
        NeuralCache(NeuralCacheConfig(window=3, theta=0.1), vocab_size=4)
