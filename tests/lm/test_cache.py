"""The cache: what was just said, by weight."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import make
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.protocol import FreeModel, score_by_steps
from elman.testing import LAWS, saving_and_loading_is_exact

CONFIGS = {
    "one token": CacheConfig(window=1),
    "window": CacheConfig(window=3),
    "fading": CacheConfig(decay=0.3),
    "slow": CacheConfig(decay=0.97),
    "fading window": CacheConfig(window=4, decay=0.5),
}


def read(model: CacheModel, *tokens: int) -> Array:
    state = model.start(1)
    for token in tokens:
        state = model.advance(np.array([token]), state)
    return state


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_cache_keeps_the_law(config: CacheConfig, law) -> None:
    law(CacheModel(config, vocab_size=4), np.random.default_rng(0), 1e-5)


def test_a_cache_is_restored_from_its_settings_alone() -> None:
    def roundtrip(lm: FreeModel) -> CacheModel:
        assert isinstance(lm, CacheModel)
        assert lm.tensors() == {}
        return CacheModel.from_tensors(lm.config, {}, vocab_size=lm.vocab_size, reset_lines=False)

    model = CacheModel(CacheConfig(decay=0.5), vocab_size=4)
    saving_and_loading_is_exact(model, np.random.default_rng(0), roundtrip=roundtrip)


def test_before_anything_was_read_every_token_is_equally_likely() -> None:
    model = CacheModel(CacheConfig(), vocab_size=5)
    np.testing.assert_allclose(np.exp(model.predict(model.start(2))), 0.2, rtol=1e-6)


def test_a_window_counts_its_tokens_equally_and_forgets_the_rest() -> None:
    model = CacheModel(CacheConfig(window=4), vocab_size=5)
    # read 3 0 0 2 3 0: the last four are 0 2 3 0
    np.testing.assert_allclose(np.exp(model.predict(read(model, 3, 0, 0, 2, 3, 0)))[0], [0.5, 0, 0.25, 0.25, 0])


def test_a_fading_cache_halves_the_weight_of_each_token_with_the_next() -> None:
    model = CacheModel(CacheConfig(decay=0.5), vocab_size=4)
    # read 2 3 2: weights 1/4 1/2 1, so 2 has 1.25 of 1.75 and 3 has 0.5 of it
    np.testing.assert_allclose(np.exp(model.predict(read(model, 2, 3, 2)))[0], [0, 0, 5 / 7, 2 / 7], rtol=1e-6)


def test_what_is_not_in_the_window_is_impossible_not_an_error() -> None:
    model = CacheModel(CacheConfig(window=2), vocab_size=4)
    nats, _ = model.score(np.array([[1, 1, 3]]), np.array([3]), model.start(1))
    assert nats[0].tolist() == [pytest.approx(-math.log(4)), 0.0, -math.inf]


def test_a_fading_cache_keeps_what_weighs_a_ten_thousandth() -> None:
    assert CacheModel(CacheConfig(decay=0.995), vocab_size=4).window == 1838  # 0.995**1838 = 0.99e-4


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    decay=st.sampled_from([1.0, 0.9, 0.4]),
    window=st.integers(1, 12),
)
def test_scoring_at_once_equals_stepping_however_often_tokens_leave_the_window(
    tokens: list[int], cut: int, decay: float, window: int
) -> None:
    model = CacheModel(CacheConfig(window=window, decay=decay), vocab_size=4)
    text, cut = np.array([tokens]), min(cut, len(tokens))
    _, state = model.score(text[:, :cut], np.array([cut]), model.start(1))
    rest, length = text[:, cut:], np.array([len(tokens) - cut])
    scored, after = model.score(rest, length, state)
    stepped, expected = score_by_steps(model, rest, length, state)
    np.testing.assert_allclose(scored, stepped, atol=1e-5)
    np.testing.assert_array_equal(after, expected)


def test_a_cache_that_never_forgets_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a window"):
        make(CacheConfig, {"decay": 1.0}, section="model")
