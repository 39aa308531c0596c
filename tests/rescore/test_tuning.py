"""Weights are tuned exactly: no grid finds fewer errors on a line, and what is said of them is of other lists."""

from __future__ import annotations

import numpy as np
import pytest

from elman.rescore.tuning import Judged, Weights, _search_line, crosswise, tune


def random_lists(seed: int, *, lists: int = 30, size: int = 6) -> Judged:
    rng = np.random.default_rng(seed)
    shape = (lists, size)
    words = rng.integers(3, 9, shape).astype(float)
    log_probs = -rng.gamma(2.0, 2.0, shape) * words
    errors = rng.integers(0, 5, shape).astype(float)
    return Judged(rng.normal(0, 4, shape), log_probs, words, errors, np.full(lists, 6))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0), (1.0, 4.0)])
def test_no_point_of_a_line_has_fewer_errors(seed: int, direction: tuple[float, float]) -> None:
    judged, begin = random_lists(seed), Weights(0.4, -1.0)
    found = _search_line(judged, begin, direction)
    assert found.weight >= 0
    fewest = judged.list_errors(found).sum()
    for step in np.concatenate([np.linspace(-1, 3, 4001), np.linspace(-60, 60, 4001)]):
        weights = Weights(begin.weight + step * direction[0], begin.bonus + step * direction[1])
        if weights.weight >= 0:
            assert judged.list_errors(weights).sum() >= fewest


def test_a_case_by_hand() -> None:
    """Two lists: the model must count more than 1/2 for the first, less than 2 for the second."""
    judged = Judged(
        scores=np.array([[0.0, -1.0], [0.0, -4.0]]),
        log_probs=np.array([[-4.0, -2.0], [-4.0, -2.0]]),
        words=np.ones((2, 2)),
        errors=np.array([[1.0, 0.0], [0.0, 1.0]]),
        reference_words=np.array([2, 2]),
    )
    assert tune(judged, bonus=0.0).weight == pytest.approx(1.25)
    assert judged.rate(judged.list_errors(tune(judged))) == 0
    assert judged.rate(judged.list_errors(Weights(0.0, 0.0))) == 0.25


def test_a_model_that_knows_nothing_changes_nothing() -> None:
    judged = random_lists(0)
    right = Judged(judged.scores, judged.log_probs * 0, judged.words, -judged.scores, judged.reference_words)
    assert tune(right, bonus=0.0) == Weights(0.0, 0.0)


def test_what_is_given_stays() -> None:
    judged = random_lists(1)
    assert tune(judged, weight=0.25).weight == 0.25
    assert tune(judged, bonus=-0.5).bonus == -0.5


def test_crosswise_errors_of_chance_are_not_those_of_the_tuned_lists() -> None:
    """Where errors are chance, tuning finds fewer of them on its own lists, and none on others."""
    judged = random_lists(2, lists=40)
    tuned = judged.rate(judged.list_errors(tune(judged)))
    honest = np.mean([judged.rate(errors) for errors in crosswise(judged, weight=None, bonus=None)])
    assert tuned < honest
    assert honest == pytest.approx(judged.errors.mean() / 6, abs=0.06)
