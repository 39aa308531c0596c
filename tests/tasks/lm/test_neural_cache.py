"""A neural cache in a mixture, beside the net whose histories it compares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm import heldout, mixture
from elman.lm.heldout import score_text
from elman.lm.mixture import Mixture
from elman.lm.mixture_fit import fit_mixture
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig
from elman.lm.protocol import FreeModel, score_by_steps
from elman.tasks.lm.families import restore_model
from elman.tasks.lm.families.mixed import MixtureConfig
from elman.tasks.lm.families.uniform import UniformConfig
from elman.tasks.lm.family import Shape
from elman.tasks.lm.net import NeuralModel
from elman.testing import LAWS, Law, TableLM, saving_and_loading_is_exact
from elman.text.units.vocabulary import EOS_ID
from tests.tasks.lm.zoo import build

CONFIG = NeuralCacheConfig(window=4, theta=0.6, decay=0.9, net=0)


class Table(TableLM):
    """A table that can be saved."""

    def tensors(self) -> dict[str, Array]:
        return {}


def silent(sentence: str) -> None:
    del sentence


def with_cache(net: NeuralModel[Any] | None = None) -> Mixture:
    table: Any = Table.random(np.random.default_rng(0), vocab_size=6)
    cache = NeuralCache(CONFIG.model_copy(update={"net": 1}), vocab_size=6)
    return Mixture([table, net or build("lstm"), cache], np.array([[0.2, 0.5, 0.3]]))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", ["lstm", "window", "adaptive, tied", "transformer", "maxent alone"])
def test_a_mixture_with_a_neural_cache_keeps_the_law(name: str, law: Law) -> None:
    law(with_cache(build(name)), np.random.default_rng(0), 1e-5)


@pytest.mark.parametrize("feature_tokens", [1, 3, 5, 1000])
def test_the_pieces_in_which_vectors_are_held_change_nothing(
    feature_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, rng = with_cache(), np.random.default_rng(2)
    texts, lengths = rng.integers(0, 6, (4, 9)), np.array([9, 0, 4, 7])
    expected, _ = score_by_steps(lm, texts, lengths, lm.start(4))
    monkeypatch.setattr(mixture, "FEATURE_TOKENS", feature_tokens)
    scored, _ = lm.score(texts, lengths, lm.start(4))
    np.testing.assert_allclose(scored, expected, rtol=1e-5)


def test_no_later_token_changes_an_earlier_score() -> None:
    lm, rng = with_cache(), np.random.default_rng(3)
    text = rng.integers(0, 6, 40)
    scores = score_text(lm, text, reset_lines=False)
    for place in (1, 7, 20, 39):
        other = text.copy()
        other[place:] = rng.integers(0, 6, 40 - place)
        np.testing.assert_allclose(score_text(lm, other, reset_lines=False)[:place], scores[:place], rtol=1e-6)


def test_the_net_is_run_once_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    net = build("lstm")
    lm, read = with_cache(net), 0
    original = net._read

    def counted(tokens_TB: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal read
        read += tokens_TB.numel()
        return original(tokens_TB, *arguments, **options)

    monkeypatch.setattr(net, "_read", counted)
    lm.score(np.array([[2, 3, 4, 5]]), np.array([4]), lm.start(1))
    assert read == 5  # the start, and each token


@pytest.mark.parametrize("name", ["lstm", "window", "adaptive, tied", "transformer", "maxent alone"])
def test_features_come_with_scores_as_they_come_from_states(name: str) -> None:
    net, rng = build(name), np.random.default_rng(4)
    texts, lengths = rng.integers(0, 6, (3, 5)), np.array([3, 5, 0])
    scored, features, after = net.score_features(texts, lengths, net.start(3))
    expected, _ = net.score(texts, lengths, net.start(3))
    assert np.array_equal(scored, expected)
    state = net.start(3)
    for t in range(5):
        active = lengths > t
        np.testing.assert_allclose(features[active, t], net.features(state)[active], rtol=1e-6)
        assert not features[~active, t].any()
        state = net.advance(texts[:, t], state)
    np.testing.assert_allclose(net.features(after)[1], net.features(state)[1], rtol=1e-6)


def test_what_is_saved_of_a_neural_cache_is_its_settings() -> None:
    cache = NeuralCache(CONFIG, vocab_size=6)
    net = build("lstm")
    lm = Mixture([net, cache], np.array([[0.7, 0.3]]))
    config = MixtureConfig(members=(net.config, CONFIG))

    def roundtrip(lm: FreeModel) -> Any:  # type: ignore[type-arg]
        tensors = lm.tensors()  # type: ignore[attr-defined]
        assert not [name for name in tensors if name.startswith("members.1.")]
        kept = MixtureConfig.model_validate_json(config.model_dump_json())
        return restore_model(kept, tensors, Shape(6, False))

    saving_and_loading_is_exact(lm, np.random.default_rng(0), roundtrip=roundtrip)


def repetitive(num_tokens: int) -> Array:
    """Phrases that come again at once: what followed a history follows it again."""
    rng = np.random.default_rng(5)
    phrases = [np.append(rng.integers(2, 6, 5), EOS_ID) for _ in range(num_tokens // 24)]
    return np.concatenate([np.tile(phrase, 4) for phrase in phrases])


@pytest.mark.parametrize("reset_lines", [False, True])
def test_what_is_left_open_is_tuned_and_helps(reset_lines: bool) -> None:
    ids, net, said = repetitive(600), build("lstm"), []
    plain = fit_mixture([net], ids, reset_lines=reset_lines, cache=True, report=silent).mixture
    tuned = fit_mixture(
        [net], ids, reset_lines=reset_lines, cache=True, neural_caches=[NeuralCacheConfig()], report=said.append
    ).mixture
    found = tuned.members[1]
    assert isinstance(found, NeuralCache)
    assert (found.net, found.window) == (0, 2000)
    assert said[0] == f"neural cache: theta {found.config.theta}, decay {found.config.decay}, window 2000"
    gain = (score_text(tuned, ids, reset_lines=reset_lines) - score_text(plain, ids, reset_lines=reset_lines)).mean()
    assert gain > (-1e-3 if reset_lines else 0.03)


def test_what_is_given_is_kept() -> None:
    given = NeuralCacheConfig(theta=0.5, decay=0.99, window=10)
    tuned = fit_mixture(
        [build("lstm")], repetitive(100), reset_lines=False, neural_caches=[given], report=silent
    ).mixture
    assert isinstance(tuned.members[1], NeuralCache)
    assert tuned.members[1].config == given.model_copy(update={"net": 0})


def test_tuning_reads_only_the_beginning_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with whole lines, whatever is written there."""
    monkeypatch.setattr(heldout, "TUNED_TOKENS", 50)
    for reset_lines in (False, True):
        ids = repetitive(300)
        fitted = fit_mixture(
            [build("gru")], ids, reset_lines=reset_lines, neural_caches=[NeuralCacheConfig()], report=silent
        )
        assert len(fitted.crosswise) == len(ids)


def test_without_a_net_there_is_nothing_to_follow() -> None:
    table: Any = Table.random(np.random.default_rng(0), vocab_size=6)
    with pytest.raises(UsageError, match="needs a net") as error:
        fit_mixture([table], repetitive(50), reset_lines=False, neural_caches=[NeuralCacheConfig()], report=silent)
    assert "directory of a net" in str(error.value.hint)
    with pytest.raises(UsageError, match="member 0 is not one") as error:
        fit_mixture([table, build("lstm")], repetitive(50), reset_lines=False, neural_caches=[CONFIG], report=silent)
    assert error.value.hint == "members that are nets: 1"
    with pytest.raises(UsageError, match="member 1 is not one"):  # the cache itself, and a net that comes too late
        Mixture(
            [NeuralCache(CONFIG.model_copy(update={"net": 1}), vocab_size=6), build("lstm")], np.array([[0.5, 0.5]])
        )
    with pytest.raises(UsageError, match="member 3 is not one"):
        Mixture([table, NeuralCache(CONFIG.model_copy(update={"net": 3}), vocab_size=6)], np.array([[0.5, 0.5]]))


def test_a_mixture_that_was_saved_without_its_net_is_refused() -> None:
    config = MixtureConfig(members=(UniformConfig(), CONFIG))
    with pytest.raises(UsageError, match="needs a net, and member"):
        restore_model(config, {"weights": np.array([0.5, 0.5])}, Shape(6, False))
