"""States are values: what can be done with them without knowing the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.lm.protocol import (
    FreeModel,
    LanguageModel,
    join_arrays,
    leaves,
    map_state,
    num_rows,
    repeat,
    score_by_steps,
    select,
)
from elman.testing import TableLM


@dataclass(frozen=True)
class Inner:
    hidden: Any
    cell: Any


class Pair(NamedTuple):
    net: Inner
    window: Any


def nested(rows: list[int]) -> tuple[Any, ...]:
    column = np.array(rows)
    return (
        Pair(Inner(column[:, None] * [1, 10], column * 2.0), column[:, None, None] + np.zeros((1, 2, 3))),
        (column,),
    )


def test_a_table_model_is_a_language_model_that_can_start_from_nothing() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    assert isinstance(lm, LanguageModel)
    assert isinstance(lm, FreeModel)
    assert not isinstance(object(), LanguageModel)


def test_mapping_a_state_keeps_its_types_and_visits_every_leaf_once() -> None:
    state = nested([1, 2, 3])
    seen: list[Any] = []
    doubled = map_state(lambda leaf: seen.append(leaf) or leaf * 2, state)
    assert type(doubled) is tuple
    assert type(doubled[0]) is Pair
    assert type(doubled[0].net) is Inner
    assert len(seen) == 4
    assert all(a is b for a, b in zip(seen, leaves(state), strict=True))
    assert np.array_equal(doubled[0].net.hidden, [[2, 20], [4, 40], [6, 60]])
    assert np.array_equal(state[0].net.hidden, [[1, 10], [2, 20], [3, 30]]), "the old state stays as it was"


def test_selecting_picks_reorders_and_repeats_rows_in_every_leaf() -> None:
    picked = select(nested([5, 6, 7]), np.array([2, 0, 2]))
    for found, expected in zip(leaves(picked), leaves(nested([7, 5, 7])), strict=True):
        assert np.array_equal(found, expected)


def test_repeating_puts_copies_next_to_each_other() -> None:
    copies = repeat(nested([5, 6]), 3)
    assert num_rows(copies) == 6
    for found, expected in zip(leaves(copies), leaves(nested([5, 5, 5, 6, 6, 6])), strict=True):
        assert np.array_equal(found, expected)


def test_joining_arrays_puts_rows_one_after_the_other() -> None:
    joined = join_arrays([nested([1]), nested([2, 3]), nested([4])])
    assert type(joined[0]) is Pair
    for found, expected in zip(leaves(joined), leaves(nested([1, 2, 3, 4])), strict=True):
        assert np.array_equal(found, expected)


def test_scoring_by_steps_gives_a_hand_worked_score() -> None:
    # p(0) = 1/4 at the start; after a 0, p(0) = 1/2; after a 1, p(1) = 1/8.
    lm = TableLM(np.array([[1 / 2, 1 / 2], [7 / 8, 1 / 8], [1 / 4, 3 / 4]]))
    tokens = np.array([[0, 0, 1], [1, 1, 0]])
    log_probs, state = score_by_steps(lm, tokens, np.array([3, 2]), lm.start(2))
    assert np.allclose(np.exp(log_probs), [[1 / 4, 1 / 2, 1 / 2], [3 / 4, 1 / 8, 1]])
    assert log_probs[1, 2] == 0
    assert np.array_equal(state, [[1], [1]])


@given(seed=st.integers(0, 1000), order=st.integers(0, 3), rows=st.integers(1, 5), num_tokens=st.integers(0, 6))
def test_scoring_by_steps_equals_scoring_at_once(seed: int, order: int, rows: int, num_tokens: int) -> None:
    rng = np.random.default_rng(seed)
    lm = TableLM.random(rng, vocab_size=3, order=order, impossible=0.3)
    tokens = rng.integers(0, 3, size=(rows, num_tokens))
    lengths = rng.integers(0, num_tokens + 1, size=rows)
    at_once, state = lm.score(tokens, lengths, lm.start(rows))
    by_steps, stepped_state = score_by_steps(lm, tokens, lengths, lm.start(rows))
    assert np.array_equal(at_once, by_steps)
    assert np.array_equal(state, stepped_state)


def test_a_table_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="not \\(V \\+ 1"):
        TableLM(np.full((2, 2), 0.5))
