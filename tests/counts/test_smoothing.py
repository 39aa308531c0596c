"""The classic smoothings against their definitions, their laws, and what they do with the unseen."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.counts import smoothing as smoothing_module
from elman.counts.counting import count_ngrams
from elman.counts.scratch import Scratch
from elman.counts.smoothing import CountModel, UniformModel, jelinek_mercer, tune_alpha, tune_weights
from elman.testing import LAWS
from tests.counts.fitting import silent, smoothed
from tests.counts.reference import BOS, EOS, Reference, witten_bell_share
from tests.counts.test_kneser_ney import LINES, probability, stream

SMOOTHINGS = ("ml", "add", "interpolated", "witten-bell", "absolute")


def fit(lines, *, smoothing, order, alpha=None, vocab_size=6, reset_lines=True, heldout=None, report=silent):
    with Scratch() as scratch:
        return smoothed(
            stream(lines),
            smoothing=smoothing,
            order=order,
            alpha=alpha,
            vocab_size=vocab_size,
            reset_lines=reset_lines,
            scratch=scratch,
            heldout_ids=None if heldout is None else stream(heldout),
            report=report,
        )


def random_lines(seed=3, *, words=4, lines=60):
    rng = np.random.default_rng(seed)
    return [list(rng.integers(2, words, size=rng.integers(1, 9))) for _ in range(lines)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("reset_lines", [True, False])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_laws_hold(law, smoothing, reset_lines):
    lines = random_lines()
    model = fit(lines, order=3, smoothing=smoothing, vocab_size=4, reset_lines=reset_lines)
    law(model, np.random.default_rng(4), 1e-5)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_hold_for_the_uniform_model(law):
    law(UniformModel(4), np.random.default_rng(0), 1e-5)


@settings(max_examples=50, deadline=None)
@given(LINES, st.integers(1, 3), st.booleans(), st.lists(st.integers(2, 5), max_size=4))
def test_witten_bell_follows_the_definition(lines, order, reset_lines, words):
    model = fit(lines, order=order, smoothing="witten-bell", reset_lines=reset_lines)
    reference = Reference(lines, order, 6, reset_lines=reset_lines)
    for word in range(6):
        history = [BOS if reset_lines else EOS, *words]
        expected = reference.probability(witten_bell_share, reference.raw, history, word)
        assert probability(model, words, word) == pytest.approx(expected, rel=1e-5)


def test_maximum_likelihood_is_the_relative_frequency_and_the_unseen_is_impossible():
    model = fit([[2, 3], [2, 3], [2, 4]], order=2, smoothing="ml")
    assert probability(model, [2], 3) == pytest.approx(2 / 3)
    assert probability(model, [2], 4) == pytest.approx(1 / 3)
    assert probability(model, [2], 2) == 0
    assert probability(model, [], 2) == pytest.approx(1)


def test_a_history_never_seen_backs_off():
    model = fit([[2, 3], [2, 3], [2, 4]], order=2, smoothing="ml")
    # word 5 was never read: nine tokens in all, three of them word 2
    assert probability(model, [5], 2) == pytest.approx(3 / 9)


def test_add_alpha_by_hand():
    model = fit([[2, 3], [2, 3], [2, 4]], order=2, smoothing="add", alpha=0.5)
    assert probability(model, [2], 3) == pytest.approx((2 + 0.5) / (3 + 0.5 * 6))
    assert probability(model, [2], 5) == pytest.approx(0.5 / (3 + 0.5 * 6))


def test_the_tuned_alpha_beats_its_neighbours():
    lines, heldout = random_lines(1, words=40), random_lines(2, words=40)
    ids = stream(lines)
    with Scratch() as scratch:
        counts = count_ngrams(ids, order=2, vocab_size=40, reset_lines=True, scratch=scratch)
    best = tune_alpha(CountModel(counts, alpha=1.0, reset_lines=True), stream(heldout))

    def loss(alpha):
        model = CountModel(counts, alpha=alpha, reset_lines=True)
        return -sum(np.log(probability(model, line[:t], w)) for line in heldout for t, w in enumerate([*line, EOS]))

    assert loss(best) < loss(best * 1.2)
    assert loss(best) < loss(best / 1.2)


def test_interpolation_weights_do_not_get_worse_and_reach_the_best_single_weight():
    """With one bucket in use, EM must find the weight that a scan finds."""
    lines, heldout = random_lines(1, words=4, lines=40), random_lines(7, words=4, lines=40)
    with Scratch() as scratch:
        counts = count_ngrams(stream(lines), order=1, vocab_size=4, reset_lines=True, scratch=scratch)
    model = CountModel(counts, alpha=0.0, reset_lines=True)
    weights = tune_weights(model, stream(heldout), reset_lines=True).values
    frequency = counts.counts[0][:4] / counts.counts[0][:4].sum()
    tokens = stream(heldout)
    scan = np.linspace(1e-4, 1 - 1e-4, 2001)
    losses = [-np.log(w * frequency[tokens] + (1 - w) / 4).sum() for w in scan]
    bucket = int(np.log2(counts.counts[0][:4].sum()))
    found = weights[0, bucket]
    assert -np.log(found * frequency[tokens] + (1 - found) / 4).sum() == pytest.approx(min(losses), abs=0.02)
    u, gamma = jelinek_mercer(weights)(1, counts.counts[0][:4], np.zeros(4, int), 1, None)
    assert u.sum() + gamma[0] == pytest.approx(1)


def tuned_by_definition(lines, heldout, *, order, vocab_size, rounds):
    """Jelinek-Mercer's EM over dictionaries. -> {(order, bucket): weight} of the buckets that held-out text had

    A token's path goes down from its longest history. At each order it stays with the bucket's weight, if the history was
    seen at all; what a bucket learns from is only the share of the token that came so far down.
    """
    raw = Reference(lines, order, vocab_size, reset_lines=True).raw
    weights = defaultdict(lambda: 0.5)
    for _ in range(rounds):
        came, stayed = defaultdict(float), defaultdict(float)
        for line in heldout:
            text = [BOS, *line, EOS]
            for end in range(1, len(text)):
                path, p = [], 1 / vocab_size  # from the shortest history up: its bucket, and the chance to have stayed
                for k in range(1, min(order, end + 1) + 1):
                    history = tuple(text[end - k + 1 : end])
                    total = sum(count for gram, count in raw[k].items() if gram[:-1] == history)
                    if total:
                        key = (k, int(math.log2(total)))
                        frequency = raw[k].get((*history, text[end]), 0) / total
                        below, p = p, weights[key] * frequency + (1 - weights[key]) * p
                        assert below > 0
                        path.append((key, weights[key] * frequency / p))
                share = 1.0
                for key, stay in reversed(path):
                    came[key] += share
                    stayed[key] += share * stay
                    share *= 1 - stay
        weights.update({key: min(max(stayed[key] / came[key], 1e-4), 1 - 1e-4) for key in came})
    return dict(weights)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_em_is_that_of_the_definition_and_an_order_learns_only_from_what_came_down_to_it(rounds, monkeypatch):
    lines, heldout = random_lines(1, words=6, lines=25), random_lines(2, words=6, lines=15)
    monkeypatch.setattr(smoothing_module, "EM_ROUNDS", rounds)
    with Scratch() as scratch:
        counts = count_ngrams(stream(lines), order=3, vocab_size=6, reset_lines=True, scratch=scratch)
    found = tune_weights(CountModel(counts, alpha=0.0, reset_lines=True), stream(heldout), reset_lines=True)
    expected = tuned_by_definition(lines, heldout, order=3, vocab_size=6, rounds=rounds)
    assert {(k + 1, bucket) for k, bucket in np.argwhere(found.seen).tolist()} == expected.keys()
    for (k, bucket), weight in expected.items():
        assert found.values[k - 1, bucket] == pytest.approx(weight, rel=1e-9)


def test_interpolated_beats_plain_add_on_text_not_seen():
    lines = random_lines(1, words=9, lines=300)
    heldout, test = random_lines(2, words=9, lines=100), random_lines(3, words=9, lines=100)

    def loss(model):
        return -sum(np.log(probability(model, line[:t], w)) for line in test for t, w in enumerate([*line, EOS]))

    models = [
        fit(lines, order=3, smoothing=smoothing, vocab_size=9, heldout=heldout) for smoothing in ("interpolated", "add")
    ]
    assert loss(models[0]) < loss(models[1])


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_a_model_survives_its_tensors(smoothing):
    model = fit(random_lines(), order=3, smoothing=smoothing)
    again = type(model).from_tensors(model.tensors(), order=3, vocab_size=6, reset_lines=True)
    state = model.advance(np.array([2, 3]), model.start(2))
    np.testing.assert_array_equal(again.predict(state), model.predict(state))


def test_what_is_tuned_is_said():
    said = []
    fit(random_lines(), order=1, smoothing="add", report=said.append)
    fit(random_lines(), order=3, smoothing="interpolated", report=said.append)
    assert "alpha" in said[0]
    assert "interpolation weights" in said[1]
