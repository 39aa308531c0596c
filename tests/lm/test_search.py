"""Search on a table model, against brute force."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.lm import search
from elman.lm.protocol import repeat
from elman.lm.search import Hypothesis, beam_search, draw, length_norm, sample, sample_rows
from elman.lm.shaping import Shaping
from elman.testing import TableLM


def greedy(lm: Any, state: Any, *, max_tokens: int, forbid: frozenset[int] = frozenset(), **options: Any) -> Any:
    """Every row continued by its likeliest token: a temperature of zero leaves nothing to chance."""
    shaping = Shaping(temperature=0, forbid=forbid)
    return sample_rows(lm, state, shaping=shaping, rng=np.random.default_rng(0), max_tokens=max_tokens, **options)


def nats_of(lm: TableLM, state: Array, string: tuple[int, ...]) -> float:
    log_probs, _ = lm.score(np.array([string]), np.array([len(string)]), state)
    return float(-log_probs.sum(dtype=np.float64))


def brute_force(
    lm: TableLM, state: Array, *, stop: set[int], max_tokens: int, length_penalty: float, forbid: frozenset[int]
) -> list[Hypothesis]:
    """Every string that ends at its first stop token (finished) or is max_tokens long (not), best first."""
    found = []
    for length in range(1, max_tokens + 1):
        for string in itertools.product(sorted(set(range(lm.vocab_size)) - forbid), repeat=length):
            is_finished = string[-1] in stop
            nats = nats_of(lm, state, string)
            if stop.isdisjoint(string[:-1]) and (is_finished or length == max_tokens) and np.isfinite(nats):
                found.append(Hypothesis(string, nats, is_finished))
    return sorted(found, key=lambda h: (not h.is_finished, h.nats / length_norm(len(h.tokens), length_penalty)))


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.is_finished for h in found] == [h.is_finished for h in expected]
    assert np.allclose([h.nats for h in found], [h.nats for h in expected], atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    stop=st.sets(st.integers(0, 3), max_size=3),
    max_tokens=st.integers(1, 4),
    impossible=st.sampled_from([0.0, 0.5]),
    ban=st.booleans(),
)
def test_a_beam_as_wide_as_the_space_gives_the_n_best_of_brute_force(
    seed: int, length_penalty: float, stop: set[int], max_tokens: int, impossible: float, ban: bool
) -> None:
    rng = np.random.default_rng(seed)
    lm = TableLM.random(rng, vocab_size=4, order=2, impossible=impossible)
    state = lm.advance(rng.integers(0, 4, size=1), lm.start(1))
    forbid = frozenset([0]) if ban else frozenset()
    expected = brute_force(lm, state, stop=stop, max_tokens=max_tokens, length_penalty=length_penalty, forbid=forbid)
    arguments = {"stop": stop, "max_tokens": max_tokens, "length_penalty": length_penalty, "forbid": forbid}
    if not expected:
        with pytest.raises(UsageError, match="no continuation of row 0"):
            beam_search(lm, state, width=4**max_tokens, n_best=4, **arguments)
        return
    (found,) = beam_search(lm, state, width=4**max_tokens, n_best=4, **arguments)
    assert_same(found, expected[:4])
    for hypothesis in found:
        assert hypothesis.nats == pytest.approx(nats_of(lm, state, hypothesis.tokens), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), length_penalty=st.sampled_from([0.0, 1.0]), width=st.integers(1, 6))
def test_each_row_has_a_beam_of_its_own(seed: int, length_penalty: float, width: int) -> None:
    rng = np.random.default_rng(seed)
    lm = TableLM.random(rng, vocab_size=5, order=2, impossible=0.2)
    state = lm.advance(np.arange(5), lm.start(5))
    arguments = {"width": width, "stop": 1, "max_tokens": 6, "length_penalty": length_penalty, "n_best": width}
    together = beam_search(lm, state, **arguments)
    alone = [beam_search(lm, state[row : row + 1], **arguments)[0] for row in range(5)]
    assert together == alone


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    lm = TableLM.random(np.random.default_rng(seed), vocab_size=5, order=2)
    state = lm.advance(np.arange(5), lm.start(5))
    found = beam_search(lm, state, width=1, stop=1, max_tokens=8)
    assert [hypotheses[0].tokens for hypotheses in found] == [h.tokens for h in greedy(lm, state, stop=1, max_tokens=8)]


def test_a_wider_beam_finds_what_greed_misses_and_the_length_penalty_what_both_miss() -> None:
    # Tokens: 0 = a, 1 = stop, 2 = b, 3 = c.  Start: a .6, b .4.   After a: stop .3, a .4, b .15, c .15.
    # After b: stop .9, c .1.   After c: stop 1.
    # Greedy: a a a ..., nats grow; "b stop" has .36, "a stop" .18; "a c stop" .09, "b c stop" .04.
    table = np.array(
        [[0.4, 0.3, 0.15, 0.15], [0.25, 0.25, 0.25, 0.25], [0.0, 0.9, 0.0, 0.1], [0.0, 1.0, 0.0, 0.0], [0.6, 0, 0.4, 0]]
    )
    lm = TableLM(table)
    assert greedy(lm, lm.start(1), stop=1, max_tokens=3)[0].tokens == (0, 0, 0)
    (found,) = beam_search(lm, lm.start(1), width=2, stop=1, max_tokens=3)
    assert found[0].tokens == (2, 1)
    assert found[0].nats == pytest.approx(-np.log(0.36), abs=1e-6)
    assert found[0].is_finished
    # With alpha = 9 three tokens are divided by (8/6)^9 = 13.318, two by (7/6)^9 = 4.004: "a c stop" (.09) 0.181,
    # "a b stop" (.081) 0.189, "a a stop" (.072) 0.198, "b c stop" (.04) 0.242, and only then "b stop" (.36) 0.255.
    (long,) = beam_search(lm, lm.start(1), width=64, stop=1, max_tokens=3, length_penalty=9.0, n_best=5)
    assert [h.tokens for h in long] == [(0, 3, 1), (0, 2, 1), (0, 0, 1), (2, 3, 1), (2, 1)]


def test_length_norm_is_that_of_the_literature() -> None:
    assert length_norm(1, 0.6) == 1
    assert length_norm(7, 1.0) == pytest.approx(2.0)
    assert length_norm(19, 0.5) == pytest.approx(2.0)
    assert length_norm(19, 0.0) == 1


class CountingLM(TableLM):
    """A table that counts how often it was asked."""

    num_predictions = 0

    def predict(self, state: Array) -> Array:
        self.num_predictions += 1
        return super().predict(state)


def test_a_beam_stops_as_soon_as_nothing_better_can_come() -> None:
    # The stop token has 0.9 at once: no other hypothesis can ever cost less.
    lm = CountingLM(np.array([0.05, 0.9, 0.05]))
    (found,) = beam_search(lm, lm.start(1), width=3, stop=1, max_tokens=1000)
    assert found == [Hypothesis((1,), pytest.approx(-np.log(0.9), abs=1e-6), True)]
    assert lm.num_predictions == 1


def test_a_beam_does_not_stop_while_a_longer_hypothesis_may_still_win() -> None:
    # stop at once: -ln .5 = .693; with alpha 2 the sure path 0 2 2 2 stop has .693 / (10/6)^2 = .25.
    table = np.array([[0, 0, 1, 0], [0.25] * 4, [0, 0.001, 0.999, 0], [0.25] * 4, [0.5, 0.5, 0, 0]])
    lm = TableLM(table)
    (found,) = beam_search(lm, lm.start(1), width=2, stop=1, max_tokens=400, length_penalty=2.0)
    assert len(found[0].tokens) > 1
    assert found[0].nats / length_norm(len(found[0].tokens), 2.0) < np.log(2)


def test_without_a_stop_token_every_hypothesis_is_as_long_as_allowed() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    (found,) = beam_search(lm, lm.start(1), width=3, stop=(), max_tokens=5, n_best=3)
    assert [len(h.tokens) for h in found] == [5, 5, 5]
    assert not any(h.is_finished for h in found)
    assert sorted(h.nats for h in found) == [h.nats for h in found]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width 0"),
        ({"n_best": 4}, "the 4 best"),
        ({"n_best": 0}, "the 0 best"),
        ({"max_tokens": 0}, "0 tokens"),
        ({"length_penalty": -1.0}, "length penalty -1"),
        ({"length_penalty": float("nan")}, "length penalty nan"),
        ({"stop": 4}, "no token 4"),
    ],
)
def test_a_beam_that_makes_no_sense_is_refused(change: dict[str, float], message: str) -> None:
    lm = TableLM.random(np.random.default_rng(0), vocab_size=4)
    arguments = {"width": 3, "stop": 1, "max_tokens": 5, **change}
    with pytest.raises(UsageError, match=message):
        beam_search(lm, lm.start(1), **arguments)  # type: ignore[arg-type]


def test_a_dead_end_is_a_clear_error() -> None:
    lm = TableLM(np.array([0.0, 0.5, 0.5]))
    with pytest.raises(UsageError, match="no continuation of row 0") as caught:
        beam_search(lm, lm.start(2), width=2, stop=1, max_tokens=3, forbid=frozenset([1, 2]))
    assert caught.value.hint == "forbid fewer tokens"
    with pytest.raises(UsageError, match="no token is left"):
        greedy(lm, lm.start(2), max_tokens=3, forbid=frozenset([1, 2]))


def test_sampled_strings_follow_the_model() -> None:
    """All strings up to the stop token or length 3, 20,000 draws: every frequency within 5 standard errors."""
    lm = TableLM.random(np.random.default_rng(1), vocab_size=3, order=2, impossible=0.2)
    state = lm.advance(np.array([0]), lm.start(1))
    num_draws = 20_000
    drawn = sample_rows(lm, repeat(state, num_draws), rng=np.random.default_rng(2), stop=1, max_tokens=3)
    counts: dict[tuple[int, ...], int] = {}
    for hypothesis in drawn:
        counts[hypothesis.tokens] = counts.get(hypothesis.tokens, 0) + 1
        assert hypothesis.is_finished == (hypothesis.tokens[-1] == 1)
    expected = brute_force(lm, state, stop={1}, max_tokens=3, length_penalty=0, forbid=frozenset())
    assert set(counts) <= {h.tokens for h in expected}
    for hypothesis in expected:
        p = np.exp(-hypothesis.nats)
        error = np.sqrt(p * (1 - p) / num_draws)
        assert abs(counts.get(hypothesis.tokens, 0) / num_draws - p) <= 5 * error + 1e-9, hypothesis
    for hypothesis in drawn[:50]:
        assert hypothesis.nats == pytest.approx(nats_of(lm, state, hypothesis.tokens), abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.0, 0.7, 1.0]))
def test_one_row_streamed_gives_the_tokens_of_the_row_in_a_batch_of_one(seed: int, temperature: float) -> None:
    lm = TableLM.random(np.random.default_rng(seed), vocab_size=6, order=2)
    shaping = Shaping(temperature=temperature, top_k=4)
    streamed = list(
        sample(lm, lm.start(1), shaping=shaping, rng=np.random.default_rng(seed), stop={1, 2}, max_tokens=20)
    )
    (row,) = sample_rows(lm, lm.start(1), shaping=shaping, rng=np.random.default_rng(seed), stop={1, 2}, max_tokens=20)
    assert tuple(streamed) == row.tokens
    assert len(streamed) <= 20
    assert {1, 2}.isdisjoint(streamed[:-1]), "the stop token is the last one given out"


def test_shaping_bends_what_is_drawn_but_nats_stay_the_models_own() -> None:
    lm = TableLM(np.array([0.5, 0.2, 0.3]))
    shaping = Shaping(forbid=frozenset([0]), top_k=1)
    drawn = sample_rows(lm, lm.start(100), shaping=shaping, rng=np.random.default_rng(0), max_tokens=2)
    assert {h.tokens for h in drawn} == {(2, 2)}
    assert drawn[0].nats == pytest.approx(-2 * np.log(0.3), abs=1e-6)
    assert greedy(lm, lm.start(1), max_tokens=2, forbid=frozenset([0, 2]))[0].tokens == (1, 1)


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    lm = TableLM.random(np.random.default_rng(0), vocab_size=8)
    texts = [tuple(sample(lm, lm.start(1), rng=np.random.default_rng(s), max_tokens=50)) for s in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_tokens_come_as_they_are_asked_for() -> None:
    lm = CountingLM(np.full(4, 0.25))
    tokens = sample(lm, lm.start(1), rng=np.random.default_rng(0))
    assert lm.num_predictions == 0
    next(tokens)
    next(tokens)
    assert lm.num_predictions == 2


def test_sampling_needs_no_more_memory_for_a_longer_text() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    tokens = sample(lm, lm.start(1), rng=np.random.default_rng(0))

    def peak_while_drawing(num_tokens: int) -> int:
        tracemalloc.start()
        for _ in itertools.islice(tokens, num_tokens):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    peak_while_drawing(100)
    assert peak_while_drawing(5000) < peak_while_drawing(100) + 10_000


def test_nothing_is_drawn_for_no_tokens() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    assert list(sample(lm, lm.start(1), rng=np.random.default_rng(0), max_tokens=0)) == []
    empty = Hypothesis((), 0.0, False)
    assert sample_rows(lm, lm.start(2), rng=np.random.default_rng(0), max_tokens=0) == [empty, empty]


def test_several_rows_are_refused_where_one_is_streamed() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    with pytest.raises(ValueError, match="one row, not 2"):
        sample(lm, lm.start(2), rng=np.random.default_rng(0))


class LastDraw(np.random.Generator):
    """Always the largest number below one."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, size: int) -> Array:  # type: ignore[override]
        return np.full(size, np.nextafter(1, 0))


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_even_the_last_draw_hits_a_possible_token(weights: list[float], before: int, behind: int) -> None:
    probabilities = np.array([0.0] * before + weights + [0.0] * behind)
    with np.errstate(divide="ignore"):
        log_probs = np.log(probabilities / probabilities.sum()).astype(np.float32)[None]
    assert draw(log_probs, LastDraw())[0] == before + len(weights) - 1


class DamagedLM(TableLM):
    """A model whose weights became NaN."""

    def predict(self, state: Array) -> Array:
        return super().predict(state) * np.float32("nan")


def test_a_model_that_predicts_nan_is_an_error_not_a_text() -> None:
    lm = DamagedLM.random(np.random.default_rng(0))
    with pytest.raises(DataError, match="NaN"):
        greedy(lm, lm.start(1), max_tokens=2)
    with pytest.raises(DataError, match="NaN"):
        next(sample(lm, lm.start(1), rng=np.random.default_rng(0)))
    with pytest.raises(DataError, match="NaN"):
        beam_search(lm, lm.start(1), width=2, stop=1, max_tokens=2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([1, 5, 63, 64, 65, 200]), st.integers(1, 9))
def test_the_best_of_many_words_are_found_as_by_sorting_all(
    seed: int, num_beams: int, vocab_size: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    log_probs = np.log(rng.random((2, num_beams, vocab_size)).astype(np.float32))
    log_probs[rng.random(log_probs.shape) < 0.3] = -np.inf
    costs = rng.random((2, num_beams))
    found = search._cheapest(costs, log_probs, count)
    for row in range(2):
        every = (costs[row][:, None] - log_probs[row]).ravel()
        expected = np.argsort(every, kind="stable")[:count]
        possible = np.isfinite(every[expected])
        np.testing.assert_array_equal(found.costs[row][: len(expected)], every[expected])
        np.testing.assert_array_equal(found.places[row][: len(expected)][possible], expected[possible])
        assert (found.places[row] < num_beams * vocab_size).all()
