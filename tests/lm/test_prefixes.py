"""Rows that begin alike are read together, and each costs what it costs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.lm import prefixes
from elman.lm.evaluate import score_lines
from elman.lm.prefixes import prefix_tree, score_tree
from elman.testing.table import TableLM
from tests.tasks.lm import zoo

ROWS = st.lists(st.lists(st.integers(2, 3), max_size=8).map(lambda row: np.array([*row, 1])), max_size=25)


class CountingLM(TableLM):
    """Counts the tokens it is asked to score."""

    num_scored = 0
    num_calls = 0

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        self.num_scored += int(lengths.sum())
        self.num_calls += 1
        return super().score(tokens, lengths, state)


def random_rows(rng: np.random.Generator, *, vocab_size: int) -> list[Array]:
    return [np.append(rng.integers(2, vocab_size, rng.integers(0, 9)), 1) for _ in range(40)]


@given(rows=ROWS)
def test_a_row_costs_what_it_costs_alone(rows: Sequence[Array]) -> None:
    lm = TableLM.random(np.random.default_rng(0), order=3)
    found = score_tree(lm, prefix_tree(rows))
    assert found == pytest.approx(-score_lines(lm, rows).nats, abs=1e-5)


@given(rows=ROWS)
def test_every_shared_beginning_is_read_once(rows: Sequence[Array]) -> None:
    prefixes = {tuple(row[:size]) for row in rows for size in range(1, len(row) + 1)}
    lm = CountingLM(TableLM.random(np.random.default_rng(0), order=2)._log_probs_CV.reshape(5, 5, 4) * 0 + 0.25)
    tree = prefix_tree(rows)
    score_tree(lm, tree)
    assert lm.num_scored == tree.num_tokens == len(prefixes)


def test_the_rest_of_rows_that_differ_is_read_at_once_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of one hypothesis of 50 MB was read by twelve million calls, and did not end; then in one, in 1.3 GB."""
    lm = CountingLM(np.full((5, 4), 0.25))
    rows = [np.array([2, 3, 1]), np.array([2, 3, 2, *[3] * 500, 1]), np.array([3, 1]), np.array([2, 3, 1])]
    found = score_tree(lm, prefix_tree(rows))
    assert lm.num_calls == 3
    assert found == pytest.approx([len(row) * np.log(0.25) for row in rows])
    lm = CountingLM(TableLM.random(np.random.default_rng(0), order=2)._log_probs_CV.reshape(5, 5, 4) * 0 + 0.25)
    whole = score_tree(lm, prefix_tree(rows))
    num_calls = lm.num_calls
    monkeypatch.setattr(prefixes, "PIECE_TOKENS", 100)
    assert score_tree(lm, prefix_tree(rows)) == pytest.approx(whole)
    assert lm.num_calls == 2 * num_calls + 5


def test_rows_without_tokens_cost_nothing() -> None:
    lm = TableLM.random(np.random.default_rng(0))
    assert score_tree(lm, prefix_tree([])).tolist() == []
    empty = np.array([], dtype=np.int64)
    found = score_tree(lm, prefix_tree([empty, np.array([2]), empty]))
    assert found[[0, 2]].tolist() == [0, 0] and found[1] < 0


def test_an_impossible_token_makes_only_the_rows_it_is_in_impossible() -> None:
    table = np.array([[0.0, 0.5, 0.5]] * 4)
    found = score_tree(TableLM(table), prefix_tree([np.array([2, 0, 1]), np.array([2, 2, 1]), np.array([2, 0, 2])]))
    assert np.isinf(found).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["lstm", "gru, reset first", "maxent, adaptive", "window", "transformer"])
def test_nets_too(name: str) -> None:
    lm: Any = zoo.build(name)
    rows = random_rows(np.random.default_rng(1), vocab_size=6)
    found = score_tree(lm, prefix_tree(rows))
    alone = [-float(score_lines(lm, [row]).nats[0]) for row in rows]
    assert found == pytest.approx(alone, abs=1e-5)
