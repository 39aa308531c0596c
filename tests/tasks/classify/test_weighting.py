"""A classifier is never worse than the linear model beside its net, and says so of texts that it was not fitted on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from elman.core.arrays import Array
from elman.tasks.classify import weighting
from elman.tasks.classify.linear import loss_of
from elman.tasks.classify.parts import Kind, PartWeights, answers_of
from elman.tasks.classify.weighting import Judged, crosswise, fit_weights, usual_weights

LINEAR_ALONE, NET_ALONE = PartWeights(net=0, linear=1), PartWeights(net=1, linear=0)


def scores_of(targets: Array, *, strength: float, seed: int) -> Array:
    """Scores of a part that tells classes apart so well. -> (N, 3)"""
    noise = np.random.default_rng(seed).normal(size=(len(targets), 3))
    return (noise + strength * np.eye(3)[targets]).astype(np.float32)


def judge(net: float, linear: float, *, count: int = 400) -> Judged:
    """Texts of three classes, and two parts that err on different ones."""
    targets = np.random.default_rng(0).integers(3, size=count)
    scores = np.stack([scores_of(targets, strength=net, seed=1), scores_of(targets, strength=linear, seed=2)])
    return Judged("softmax", scores, np.eye(3)[targets])


def test_parts_that_err_on_different_texts_predict_together_and_are_right_more_often_than_either() -> None:
    judged = judge(2.0, 2.0)
    weights = fit_weights(judged)
    assert weights.net > 0 and weights.linear > 0
    assert judged.wrong(weights) < min(judged.wrong(NET_ALONE), judged.wrong(LINEAR_ALONE)) - 20


def test_a_part_that_is_wrong_and_sure_of_it_counts_next_to_nothing() -> None:
    judged = judge(0.0, 2.0)
    judged.scores[0] *= 5
    assert fit_weights(judged).net == 0
    judged = judge(2.0, 0.0)
    judged.scores[1] *= 5
    weights = fit_weights(judged)
    assert weights.linear < 0.05 < weights.net
    assert judged.wrong(weights) < judged.wrong(NET_ALONE) + weighting.MARGIN


def test_two_texts_are_no_reason_to_leave_the_linear_model_and_three_are() -> None:
    targets = np.zeros(40, dtype=np.int64)
    scores = np.zeros((2, 40, 2), dtype=np.float32)
    scores[:, :, 0] = 1.0
    for more, is_left in ((2, False), (3, True)):
        scores[1, :more] = [0.0, 0.1]  # wrong in the linear model alone
        assert (fit_weights(Judged("softmax", scores, np.eye(2)[targets])).net > 0) == is_left


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["softmax", "sigmoid"]),
    count=st.integers(0, 30),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
)
def test_it_is_never_worse_than_the_linear_model_on_the_texts_it_was_fitted_on(
    kind: Kind, count: int, seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    scores = (scale * rng.normal(size=(2, count, 3))).astype(np.float32)
    wanted = (
        np.eye(3)[rng.integers(3, size=count)] if kind == "softmax" else rng.integers(2, size=(count, 3)).astype(float)
    )
    judged = Judged(kind, scores, wanted)
    assert judged.wrong(fit_weights(judged)) <= judged.wrong(LINEAR_ALONE)


def test_weights_are_those_of_least_loss_as_another_optimiser_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighting, "RATIO_PULL", 0.0)
    monkeypatch.setattr(weighting, "SIZE_PULL", 0.0)
    judged = judge(2.0, 1.0)

    def loss(weights: Array) -> float:
        return loss_of(np.tensordot(weights, judged.scores, 1), judged.wanted, "softmax")[0]

    best = optimize.minimize(loss, [1.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    found = fit_weights(judged)
    np.testing.assert_allclose([found.net, found.linear], best, atol=2e-4)


def test_scores_that_are_too_sure_are_cooled() -> None:
    plain, sure = judge(2.0, 2.0), judge(2.0, 2.0)
    sure.scores[:] *= 10
    found, cooled = fit_weights(plain), fit_weights(sure)
    assert cooled.net + cooled.linear < 0.2 * (found.net + found.linear)


def test_few_texts_move_the_ratio_less_than_many() -> None:
    """The net is the better one here; by a hundred texts that is hardly told, by four thousand it is."""
    few, many = fit_weights(judge(3.0, 1.5, count=100)), fit_weights(judge(3.0, 1.5, count=4000))
    usual = usual_weights("softmax")
    assert usual.net / usual.linear < few.net / few.linear < many.net / many.linear


def test_what_is_said_of_a_text_crosswise_does_not_depend_on_its_own_label() -> None:
    judged = judge(1.0, 1.0, count=30)
    for row in range(5):
        other = Judged("softmax", judged.scores, judged.wanted.copy())
        other.wanted[row] = np.roll(other.wanted[row], 1)
        changed = False
        for before, after in zip(crosswise(judged), crosswise(other), strict=True):
            assert np.array_equal(before[row], after[row])
            changed |= not np.array_equal(before, after)
        assert changed  # but the scores of texts in the other half do


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "linear"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_texts_are_no_error(kind: Kind, count: int) -> None:
    labels = 1 if kind == "linear" else 2
    judged = Judged(kind, np.ones((2, count, labels), dtype=np.float32), np.ones((count, labels)))
    assert fit_weights(judged).linear > 0
    assert all(found.shape == (count, labels) for found in crosswise(judged))


def test_numbers_are_weighted_too() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(300, 1))
    scores = np.stack([wanted + rng.normal(size=(300, 1)), wanted + rng.normal(size=(300, 1))]).astype(np.float32)
    judged = Judged("linear", scores, wanted)
    weights = fit_weights(judged)
    # least squares of two readings of x with noise of the same size as x: 1/3 each
    np.testing.assert_allclose([weights.net, weights.linear], [1 / 3, 1 / 3], atol=0.08)
    assert judged.wrong(weights) < judged.wrong(LINEAR_ALONE)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "linear"])
def test_answers_are_those_of_torch(kind: Kind) -> None:
    import torch

    scores = np.array([[-800.0, 3.0], [0.5, 0.25], [800.0, -900.0]], dtype=np.float32)
    given = torch.from_numpy(scores).double()
    expected = {"softmax": given.softmax(1), "sigmoid": given.sigmoid(), "linear": 2 + 3 * given}[kind]
    np.testing.assert_allclose(answers_of(scores, kind, centre=2.0, spread=3.0), expected.numpy(), rtol=1e-6, atol=1e-9)
