"""A classifier reads texts, never padding; every pool and every output; and the baseline beside it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from elman.nets.inputs import NetInputs
from elman.tasks.classify.config import ClassifierConfig
from elman.tasks.classify.data import LabelBatch
from elman.tasks.classify.linear import LinearModel, fit_linear, loss_of
from elman.tasks.classify.net import ClassifierModel, Ensemble

WORDS = np.array([[2, 3, 4, 5], [5, 1, 1, 1], [3, 3, 1, 1]])
LENGTHS = np.array([4, 1, 2])
TARGETS: dict[str, Any] = {
    "softmax": np.array([0, 2, 1]),
    "sigmoid": np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=np.uint8),
    "linear": np.array([1.0, 5.0, 3.0], dtype=np.float32),
}
KINDS = list(itertools.product(["last", "mean", "max", "attention"], ["softmax", "sigmoid", "linear"], [True, False]))


def make(pool: str, output: str, both: bool, *, seed: int = 0, nets: int = 1) -> ClassifierModel:
    settings = {"hidden": 4, "embedding": 3, "pool": pool, "output": output, "bidirectional": both, "nets": nets}
    return ClassifierModel(
        ClassifierConfig.model_validate(settings),
        NetInputs(6, rng=torch.Generator().manual_seed(seed), dtype=torch.float64),
        num_labels=1 if output == "linear" else 3,
        centre=3.0 if output == "linear" else 0.0,
        spread=2.0 if output == "linear" else 1.0,
    ).eval()


@pytest.mark.parametrize(("pool", "output", "both"), KINDS)
def test_a_text_alone_is_the_text_in_a_batch(pool: str, output: str, both: bool) -> None:
    model = make(pool, output, both)
    together = model.predict(WORDS, LENGTHS)
    loss, _ = model.batch_loss(LabelBatch(WORDS, LENGTHS, TARGETS[output]), None)
    nats = 0.0
    for row, length in enumerate(LENGTHS):
        one = slice(row, row + 1)
        alone = model.predict(WORDS[one, :length], LENGTHS[one])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-6)
        part, _ = model.batch_loss(LabelBatch(WORDS[one, :length], LENGTHS[one], TARGETS[output][one]), None)
        nats += float(part.nats)
    assert float(loss.nats) == pytest.approx(nats)
    assert loss.tokens == 3
    if output == "softmax":
        np.testing.assert_allclose(together.sum(1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(("pool", "output", "both"), KINDS[::3])
def test_what_was_saved_says_the_same(pool: str, output: str, both: bool) -> None:
    model = make(pool, output, both)
    again = ClassifierModel.from_tensors(model.config, model.tensors()).eval()
    assert np.array_equal(model.predict(WORDS, LENGTHS), again.predict(WORDS, LENGTHS))


@pytest.mark.parametrize("output", ["softmax", "sigmoid", "linear"])
def test_several_nets_say_their_mean_and_learn_as_if_each_were_alone(output: str) -> None:
    nets = [make("attention", output, True, seed=seed, nets=3) for seed in range(3)]
    batch = LabelBatch(WORDS, LENGTHS, TARGETS[output])
    alone = [net.batch_loss(batch, None)[0] for net in nets]
    gradients = [torch.autograd.grad(loss.total, net.output.weight)[0] for net, loss in zip(nets, alone, strict=True)]
    model = Ensemble(nets).eval()
    np.testing.assert_allclose(
        model.scores(WORDS, LENGTHS), np.mean([net.scores(WORDS, LENGTHS) for net in nets], axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(model.attention_weights(WORDS, LENGTHS).sum(1), 1.0, rtol=1e-6)
    loss, _ = model.batch_loss(batch, None)
    assert float(loss.nats) == pytest.approx(np.mean([float(one.nats) for one in alone]))
    assert loss.tokens == 3
    loss.total.backward()
    for net, gradient in zip(nets, gradients, strict=True):
        torch.testing.assert_close(net.output.weight.grad, gradient)
    again = Ensemble.from_tensors(model.config, model.tensors()).eval()
    assert np.array_equal(model.predict(WORDS, LENGTHS), again.predict(WORDS, LENGTHS))


def test_attention_is_a_mean_by_weights_that_sum_to_one() -> None:
    weights = make("attention", "softmax", True).attention_weights(WORDS, LENGTHS)
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-6)
    assert not weights[1, 1:].any()


def test_a_number_is_on_the_scale_of_training() -> None:
    model = make("mean", "linear", True)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.fill_(0.5)
    np.testing.assert_allclose(model.predict(WORDS, LENGTHS), 4.0)
    loss, _ = model.batch_loss(LabelBatch(WORDS, LENGTHS, TARGETS["linear"]), None)
    # standardised: -1, 1, 0; errors 1.5, -0.5, 0.5
    assert float(loss.nats) == pytest.approx(0.5 * (1.5**2 + 0.5**2 + 0.5**2))


TEXTS = [["good", "film"], ["very", "good"], ["bad", "film"], ["not", "good"], ["very", "bad"], ["not", "good", "film"]]


def test_the_baseline_learns_words_and_pairs_of_words() -> None:
    texts, targets = TEXTS * 4, np.array([1, 1, 0, 0, 0, 0] * 4)
    model = fit_linear(texts, targets, kind="softmax", num_labels=2)
    assert model.predict(TEXTS).argmax(1).tolist() == [1, 1, 0, 0, 0, 0]
    np.testing.assert_allclose(model.predict(TEXTS).sum(1), 1.0, rtol=1e-5)
    again = LinearModel.from_tensors("softmax", model.tensors())
    assert np.array_equal(again.predict(TEXTS), model.predict(TEXTS))


def test_the_baseline_is_logistic_regression_as_scikit_learn_has_it() -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    from elman.tasks.classify.linear import PENALTY, features_of

    rng = np.random.default_rng(0)
    texts = [[str(word) for word in rng.integers(12, size=6)] for _ in range(80)]
    targets = np.array([int("3" in words) + int("5" in words) for words in texts])
    ours = fit_linear(texts, targets, kind="softmax", num_labels=3)
    theirs = sklearn.LogisticRegression(C=1 / PENALTY["softmax"], max_iter=2000, tol=1e-8)
    theirs.fit(features_of(texts, ours.rarity), targets)
    expected = theirs.predict_proba(features_of(texts, ours.rarity))
    np.testing.assert_allclose(ours.predict(texts), expected, atol=0.02)


def test_the_baseline_says_several_labels_and_numbers_too() -> None:
    texts = TEXTS * 4
    several = np.array([["good" in words, "film" in words] for words in texts], dtype=np.uint8)
    found = fit_linear(texts, several, kind="sigmoid", num_labels=2).predict(TEXTS)
    assert np.array_equal(found >= 0.5, several[: len(TEXTS)])
    numbers = np.array([3.0 + 2 * ("good" in words) for words in texts], dtype=np.float32)
    found = fit_linear(texts, numbers, kind="linear", num_labels=1).predict(TEXTS)
    assert np.abs(found[:, 0] - numbers[: len(TEXTS)]).max() < 0.6


def test_the_parts_of_phrases_add_up_to_the_score_of_a_label() -> None:
    model = fit_linear(TEXTS * 4, np.array([1, 1, 0, 0, 0, 0] * 4), kind="softmax", num_labels=2)
    found = model.phrases(["not", "good", "unheard"], 0)
    assert {phrase for phrase, _ in found} == {"not", "good", "not good"}
    assert abs(found[0][1]) >= abs(found[-1][1])
    scores = model.scores([["not", "good", "unheard"]])[0] - model.bias
    assert sum(part for _, part in found) == pytest.approx(scores[0] - scores.mean(), rel=1e-5)


def test_the_linear_model_stops_where_its_time_is_over_and_is_a_model_all_the_same() -> None:
    texts, targets = TEXTS * 4, np.array([1, 1, 0, 0, 0, 0] * 4)
    asked: list[bool] = []
    short = fit_linear(texts, targets, kind="softmax", num_labels=2, should_stop=lambda: not asked.append(True))
    full = fit_linear(texts, targets, kind="softmax", num_labels=2)
    assert len(asked) == 1
    losses = [loss_of(model.scores(texts), model.wanted(targets), "softmax")[0] for model in (full, short)]
    assert losses[0] < losses[1] < len(texts) * np.log(2)
