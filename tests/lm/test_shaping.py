"""Bending a distribution: what each way of it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.shaping import AS_IS, Shaping, forbid, keep_top_k, keep_top_p, likeliest, normalise, shape, warm, without

LN = np.log


def log_probs_of(*rows: list[float]) -> Array:
    with np.errstate(divide="ignore"):
        return LN(np.array(rows)).astype(np.float32)


@st.composite
def distributions(draw: st.DrawFn) -> Array:
    """A few rows with ties, zeros and tiny probabilities."""
    vocab_size = draw(st.integers(1, 12))
    weight = st.sampled_from([0.0, 1e-30, 1e-6, 0.5, 1.0, 1.0, 2.0, 1000.0])
    rows = draw(st.lists(st.lists(weight, min_size=vocab_size, max_size=vocab_size), min_size=1, max_size=3))
    weights = np.array(rows)
    weights[weights.sum(axis=1) == 0] = 1
    return log_probs_of(*(weights / weights.sum(axis=1, keepdims=True)).tolist())


shapings = st.builds(
    Shaping,
    temperature=st.sampled_from([0.0, 1e-8, 0.3, 1.0, 2.0, 50.0]),
    top_k=st.none() | st.integers(1, 14),
    top_p=st.none() | st.floats(0, 1),
)


@given(distributions(), shapings)
def test_whatever_the_shaping_the_result_is_a_distribution_over_tokens_that_were_possible(
    log_probs: Array, shaping: Shaping
) -> None:
    before = log_probs.copy()
    shaped = shape(log_probs, shaping)
    assert shaped.shape == log_probs.shape
    assert shaped.dtype == log_probs.dtype
    assert np.allclose(np.exp(shaped).sum(axis=1), 1, atol=1e-5)
    assert not np.isfinite(shaped[np.isneginf(log_probs)]).any()
    assert np.array_equal(log_probs, before), "the argument is not touched"


@given(distributions(), shapings)
def test_the_order_of_tokens_is_kept(log_probs: Array, shaping: Shaping) -> None:
    shaped = shape(log_probs, shaping)
    for before, after in zip(log_probs, shaped, strict=True):
        kept = np.flatnonzero(np.isfinite(after))
        order = kept[np.argsort(before[kept])]
        assert (np.diff(after[order]) >= -1e-5).all()
        assert before[kept].max() == before.max(), "the likeliest token always stays"


@given(distributions(), st.integers(1, 14))
def test_top_k_keeps_exactly_the_k_likeliest(log_probs: Array, k: int) -> None:
    kept = np.isfinite(keep_top_k(log_probs, k))
    possible = np.isfinite(log_probs)
    assert np.array_equal(kept.sum(axis=1), np.minimum(k, possible.sum(axis=1)))
    for row, keep in zip(log_probs, kept, strict=True):
        assert row[keep].min() >= row[~keep].max(initial=-np.inf)


@given(distributions(), st.floats(0, 1))
def test_top_p_keeps_the_fewest_tokens_that_reach_p_and_at_least_one(log_probs: Array, p: float) -> None:
    for row, shaped in zip(log_probs.astype(np.float64), keep_top_p(log_probs, p), strict=True):
        kept = np.exp(row[np.isfinite(shaped)])
        assert len(kept) >= 1
        assert kept.sum() >= p - 1e-6, "the nucleus reaches p"
        if len(kept) > 1:
            assert kept.sum() - kept.min() < p + 1e-6, "and would not without its least token"


def test_of_equally_likely_tokens_the_first_ones_stay() -> None:
    even = log_probs_of([0.25, 0.25, 0.25, 0.25])
    assert np.flatnonzero(np.isfinite(keep_top_k(even, 2)[0])).tolist() == [0, 1]
    assert np.flatnonzero(np.isfinite(keep_top_p(even, 0.6)[0])).tolist() == [0, 1, 2]
    assert np.flatnonzero(np.isfinite(warm(even, 0)[0])).tolist() == [0]


def test_temperature_is_a_power_of_the_probabilities_worked_by_hand() -> None:
    # At temperature 1/2 probabilities are squared: 0.64 and 0.04 of 0.68; at 2 their roots: 2 and 1 of 3.
    assert np.allclose(np.exp(warm(log_probs_of([0.8, 0.2, 0.0]), 0.5)), [[16 / 17, 1 / 17, 0]])
    assert np.allclose(np.exp(warm(log_probs_of([0.8, 0.2, 0.0]), 2.0)), [[2 / 3, 1 / 3, 0]])


def test_a_tiny_temperature_is_greedy() -> None:
    assert np.allclose(np.exp(warm(log_probs_of([0.3, 0.4, 0.3]), 1e-300)), [[0, 1, 0]])


def test_top_p_is_measured_after_temperature_and_bans_worked_by_hand() -> None:
    # 0.5 is banned: 0.4 and 0.1 become 0.8 and 0.2; squared 16/17 and 1/17; 0.9 is reached by the first alone.
    start = log_probs_of([0.5, 0.4, 0.1])
    only_ban = shape(start, Shaping(forbid=frozenset([0]), top_p=0.9))
    assert np.allclose(np.exp(only_ban), [[0, 0.8, 0.2]])
    both = shape(start, Shaping(forbid=frozenset([0]), temperature=0.5, top_p=0.9))
    assert np.allclose(np.exp(both), [[0, 1, 0]])


@given(distributions(), st.data())
def test_a_forbidden_token_is_never_possible_and_the_rest_keeps_its_proportions(
    log_probs: Array, data: st.DataObject
) -> None:
    vocab_size = log_probs.shape[1]
    ids = data.draw(st.frozensets(st.integers(0, vocab_size - 1), max_size=vocab_size - 1))
    rest = [token for token in range(vocab_size) if token not in ids]
    assume(np.isfinite(log_probs[:, rest]).any(axis=1).all())
    shaped = forbid(log_probs, ids)
    assert not np.isfinite(shaped[:, sorted(ids)]).any()
    weights = np.exp(log_probs[:, rest].astype(np.float64))
    expected = weights / weights.sum(axis=1, keepdims=True)
    assert np.allclose(np.exp(shaped[:, rest]), expected, rtol=1e-4, atol=1e-7)


def test_the_default_gives_the_very_same_numbers() -> None:
    log_probs = log_probs_of([0.3, 0.7])
    assert shape(log_probs, AS_IS) is log_probs
    assert shape(log_probs, Shaping(top_p=1.0)) is log_probs


def test_forbidding_everything_possible_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="no token is left") as caught:
        shape(log_probs_of([0.5, 0.5, 0.0], [0.2, 0.4, 0.4]), Shaping(forbid=frozenset([0, 1])))
    assert caught.value.hint == "forbid fewer tokens"
    with pytest.raises(UsageError, match="no token is left"):
        normalise(log_probs_of([0.0, 0.0]))


def test_forbidding_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="no token 2 to forbid"):
        without(log_probs_of([0.5, 0.5]), frozenset([2, 0]))
    with pytest.raises(UsageError, match="no token -1"):
        without(log_probs_of([0.5, 0.5]), frozenset([-1]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "temperature -0.1"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_k": 0}, "top-k 0"),
        ({"top_p": 1.1}, "top-p 1.1"),
        ({"top_p": float("nan")}, "top-p nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Shaping(**settings)  # type: ignore[arg-type]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.integers(1, 20), st.integers(1, 1000))
def test_the_likeliest_are_those_that_sorting_puts_first(seed: int, vocab_size: int, k: int, num_values: int) -> None:
    with np.errstate(divide="ignore"):
        log_probs = LN(np.random.default_rng(seed).integers(0, num_values, vocab_size) / num_values).astype(np.float32)
    assert likeliest(log_probs, k).tolist() == np.argsort(-log_probs, kind="stable")[:k].tolist()
