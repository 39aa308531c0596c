"""Dynamic evaluation: weights follow the text, strictly behind it, and are put back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.mixture import Mixture
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig
from elman.tasks.lm.net import NeuralModel
from elman.testing import TableLM
from elman.text.units.vocabulary import EOS_ID
from elman.training import dynamic
from elman.training.dynamic import Dynamics, adapting, nets_of
from tests.tasks.lm.zoo import build

FAST = Dynamics(segment=4, rate=0.05, decay=0.01, weight_rate=0.05)
VARIED = ["lstm", "gru", "adaptive", "adaptive, tied", "tied, projected", "learned start", "frozen vectors", "window"]
VARIED += ["maxent", "maxent alone", "maxent, nce", "transformer"]
TEXT = np.random.default_rng(0).integers(0, 6, 30)


@pytest.fixture(autouse=True)
def little_text_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for statistics of six words."""
    monkeypatch.setattr(dynamic, "SAMPLED_ROWS", 10)
    monkeypatch.setattr(dynamic, "SAMPLED_SEGMENTS", 3)


class Table(TableLM):
    """A table that can be saved."""

    def tensors(self) -> dict[str, Array]:
        return {}


def table() -> Any:
    return Table.random(np.random.default_rng(0), vocab_size=6)


def static(lm: Any, ids: Array) -> Array:
    return -lm.score(ids[None], np.array([len(ids)]), lm.start(1))[0][0]


def adapted(lm: Any, *blocks: Array, dynamics: Dynamics = FAST, reset_lines: bool = False) -> Array:
    rng = np.random.default_rng(1)
    with adapting(lm, reset_lines=reset_lines, dynamics=dynamics, rng=rng) as scorer:
        return np.concatenate([scorer(block) for block in blocks])


def mixed(net: NeuralModel[Any]) -> Mixture:
    cache = CacheModel(CacheConfig(window=5), vocab_size=6)
    neural = NeuralCache(NeuralCacheConfig(window=6, theta=0.5, decay=1, net=1), vocab_size=6)
    return Mixture([table(), net, cache, neural], np.array([[0.2, 0.4, 0.1, 0.3]]))


@pytest.mark.parametrize("name", VARIED)
def test_the_first_segment_scores_as_it_does_without(name: str) -> None:
    lm = build(name)
    found, expected = adapted(lm, TEXT), static(lm, TEXT)
    np.testing.assert_allclose(found[:4], expected[:4], rtol=1e-6)
    assert abs(found[4:] - expected[4:]).max() > 1e-3


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("reset_lines", [False, True])
def test_a_later_token_never_changes_an_earlier_score(name: str, reset_lines: bool) -> None:
    lm = build(name)
    found = adapted(lm, TEXT, reset_lines=reset_lines)
    for place in (1, 3, 4, 11, 29):
        other = TEXT.copy()
        other[place:] = (other[place:] + 1 + np.arange(30 - place) % 5) % 6
        again = adapted(lm, other, reset_lines=reset_lines)
        assert np.array_equal(again[:place], found[:place])
        assert again[place] != found[place]


def test_in_a_mixture_too() -> None:
    lm = mixed(build("lstm"))
    found = adapted(lm, TEXT)
    np.testing.assert_allclose(found[:4], static(lm, TEXT)[:4], rtol=1e-6)
    assert abs(found[4:] - static(lm, TEXT)[4:]).max() > 1e-3
    for place in (2, 5, 17):
        other = TEXT.copy()
        other[place:] = (other[place:] + 1) % 6
        assert np.array_equal(adapted(lm, other)[:place], found[:place])


def test_all_weight_on_a_net_is_the_net_alone() -> None:
    net = build("gru")
    both = Mixture([table(), net], np.array([[0.0, 1.0]]))
    np.testing.assert_allclose(adapted(both, TEXT), adapted(net, TEXT), rtol=1e-6)


def test_a_step_is_that_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """W <- W + decay (W0 - W) - rate g / (s + mean of s), and log weights + weight_rate (share - weight) at every token."""
    net, moved = build("lstm"), build("lstm")
    weights, trained = list(moved.parameters()), list(net.parameters())
    rng = torch.Generator().manual_seed(0)
    usual = [torch.rand(weight.shape, generator=rng, dtype=weight.dtype) for weight in weights]
    mean = sum(float(sizes.mean()) for sizes in usual) / len(usual)  # every tensor counts the same
    monkeypatch.setattr(dynamic._AdaptedNet, "_usual_gradients", lambda *_, **__: [sizes.clone() for sizes in usual])
    found = adapted(net, TEXT[:12])
    read, carried = torch.tensor([[EOS_ID, *TEXT]]), moved.start_training(1)
    states, log_weights = [moved.start(1), net.start(1)], np.log([0.7, 0.3])
    for first in (0, 4, 8):
        shares = np.exp(log_weights) / np.exp(log_weights).sum()
        scored = [
            one.score(TEXT[None, first : first + 4], np.array([4]), state)
            for one, state in zip((moved, net), states, strict=True)
        ]
        states = [state for _, state in scored]
        joint_2T = shares[:, None] * np.exp([log_probs[0] for log_probs, _ in scored])
        np.testing.assert_allclose(found[first : first + 4], -np.log(joint_2T.sum(axis=0)), rtol=1e-5)
        log_weights += FAST.weight_rate * (joint_2T / joint_2T.sum(axis=0) - shares[:, None]).sum(axis=1)
        moved.zero_grad()
        loss, carried = moved.eval().loss(read[:, first : first + 4], read[:, first + 1 : first + 5], None, carried)
        loss.total.backward()
        with torch.no_grad():
            for weight, origin, sizes in zip(weights, trained, usual, strict=True):
                weight += 0.01 * (origin - weight) - 0.05 * weight.grad / (sizes + mean)


def test_weight_goes_to_the_member_that_predicts_better() -> None:
    """A net that runs wild costs little: what it was before is a member too, and is given its weight."""
    net, rng = build("lstm"), np.random.default_rng(3)
    text = rng.integers(0, 6, 2_000)
    wild = Dynamics(segment=4, rate=1.0, decay=0.0, weight_rate=0.05)
    deaf = Dynamics(segment=4, rate=1.0, decay=0.0, weight_rate=0.0)
    assert adapted(net, text, dynamics=wild)[1_000:].mean() < adapted(net, text, dynamics=deaf)[1_000:].mean() - 0.05
    assert adapted(net, text, dynamics=wild)[1_000:].mean() < static(net, text)[1_000:].mean() + 0.05


def test_what_repeats_itself_is_learned() -> None:
    rng = np.random.default_rng(2)
    text = np.tile(rng.integers(0, 6, 8), 40)
    for lm in (build("lstm"), mixed(build("adaptive, tied"))):
        found, before = adapted(lm, text), static(lm, text)
        assert found.mean() < 0.8 * before.mean()
        assert found[-80:].mean() < found[:80].mean()


@pytest.mark.parametrize("name", VARIED)
def test_the_model_is_as_it_was_afterwards(name: str) -> None:
    net = build(name).train()
    before = {key: array.copy() for key, array in net.tensors().items()}
    adapted(mixed(net), TEXT)
    assert all(np.array_equal(array, before[key]) for key, array in net.tensors().items())
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    with (
        pytest.raises(RuntimeError, match="in between"),
        adapting(net, reset_lines=False, dynamics=FAST, rng=np.random.default_rng(0)) as scorer,
    ):
        scorer(TEXT)
        raise RuntimeError("in between")
    assert all(np.array_equal(array, before[key]) for key, array in net.tensors().items())


@pytest.mark.parametrize("reset_lines", [False, True])
def test_wherever_a_text_is_cut_it_scores_the_same(reset_lines: bool) -> None:
    net = build("lstm")
    whole = adapted(net, TEXT, reset_lines=reset_lines)
    for cuts in ([0, 1, 2, 30], [0, 6, 6, 9, 30], [0, 29, 30]):
        blocks = [TEXT[first:last] for first, last in pairwise(cuts)]
        np.testing.assert_allclose(adapted(net, *blocks, reset_lines=reset_lines), whole, rtol=1e-6)


def test_lines_read_alone_begin_anew_and_are_learned_from_when_they_end() -> None:
    net = build("lstm")
    text = np.array([2, 3, EOS_ID, 2, 3, EOS_ID, 4, 4, 4, 4, 4, EOS_ID])
    found = adapted(net, text, reset_lines=True)
    np.testing.assert_allclose(found[:3], static(net, text[:3]), rtol=1e-6)
    assert found[3] != found[0]  # what was learned from the first line
    gentle = adapted(net, text, reset_lines=True, dynamics=Dynamics(segment=4, rate=1e-12))
    alone = [static(net, line) for line in np.split(text, [3, 6])]
    np.testing.assert_allclose(gentle, np.concatenate(alone), rtol=1e-5)


def test_nets_are_found_once_wherever_they_are() -> None:
    net, other = build("lstm"), build("gru")
    inner = Mixture([net, table()], np.array([[0.5, 0.5]]))
    assert nets_of(Mixture([inner, other, net], np.array([[0.2, 0.4, 0.4]]))) == [net, other]


def test_what_only_counts_is_refused() -> None:
    for lm in (table(), Mixture([table(), table()], np.array([[0.5, 0.5]]))):
        with pytest.raises(UsageError, match="adapts nets") as error:
            adapted(lm, TEXT)
        assert "leave out --dynamic" in str(error.value.hint)


def test_weights_that_run_away_are_an_error_with_a_remedy_and_come_back() -> None:
    net = build("rnn relu")
    before = {key: array.copy() for key, array in net.tensors().items()}
    with pytest.raises(UsageError, match="ran away") as error:
        adapted(net, np.tile(TEXT, 20), dynamics=Dynamics(segment=4, rate=1e30))
    assert "smaller --dynamic-rate" in str(error.value.hint)
    assert all(np.array_equal(array, before[key]) for key, array in net.tensors().items())
