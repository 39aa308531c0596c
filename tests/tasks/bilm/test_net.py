"""Two language models that share their words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.nets.inputs import NetInputs
from elman.nets.layer_mix import LayerMix
from elman.tasks.bilm.data import BilmBatches, reverse_lines, reverse_text
from elman.tasks.bilm.net import BilmModel, compute_features
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.testing import LAWS
from elman.text.batches import LineBatches, Position, StreamBatches
from elman.text.units.vocabulary import EOS_ID

VOCAB, HIDDEN = 7, 4


def build(**options: Any) -> BilmModel:
    config = RecurrentConfig(**{"hidden": HIDDEN, "layers": 2, "skip": "residual", **options})
    rng = torch.Generator().manual_seed(0)
    model = BilmModel(config, NetInputs(VOCAB, rng=rng, dtype=torch.float64), reset_lines=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.3)
    return model.eval()


def draw(num_tokens: int) -> np.ndarray[Any, Any]:
    ids = np.random.default_rng(0).integers(0, VOCAB, size=num_tokens)
    ids[-1] = EOS_ID
    return ids


def test_each_direction_alone_is_a_language_model_by_every_law() -> None:
    model = build()
    for law in LAWS:
        law(model.onward, np.random.default_rng(0), 1e-6)
        law(model.backward, np.random.default_rng(0), 1e-6)


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"initial_state": "learned"}, {"family": "gru"}])
def test_words_are_shared_and_all_comes_back_from_the_tensors(options: dict[str, Any]) -> None:
    model = build(**options)
    names = model.tensors().keys()
    assert not any(name.startswith(("backward.embedding", "backward.head")) for name in names)
    assert {"onward.embedding.weight", "onward.head.bias", "backward.stack.layers.0.weight_in"} <= names
    again = BilmModel.from_tensors(model.config, model.tensors(), vocab_size=VOCAB, reset_lines=False).eval()
    text = draw(6)[None]
    for mine, other in ((model.onward, again.onward), (model.backward, again.backward)):
        one, two = (net.score(text, np.array([6]), net.start(1))[0] for net in (mine, other))
        np.testing.assert_array_equal(one, two)


def test_the_loss_is_that_of_both_ways_through_the_text() -> None:
    model, ids = build(), draw(40)
    turned = reverse_text(ids)
    batches = BilmBatches(StreamBatches(ids, rows=2, bptt=5), StreamBatches(turned, rows=2, bptt=5))
    assert batches.tokens_per_epoch == 80 and batches.tokens_per_step == 20
    position, state, nats, tokens = Position(), None, 0.0, 0
    while position.epoch == 0:
        batch, position = batches.batch(position)
        loss, state = model.batch_loss(batch, state)
        nats, tokens = nats + loss.nats.item(), tokens + loss.tokens
    expected = 0.0
    for net, text in ((model.onward, ids), (model.backward, turned)):
        for row in range(2):
            before = net.start(1)
            if row:  # a later stream begins with the token before it, and nothing else
                before = net._step(torch.from_numpy(text[19:20]), net.start_training(1))
            expected -= net.score(text[None, 20 * row : 20 * row + 20], np.array([20]), before)[0].sum()
    assert tokens == 80 and nats == pytest.approx(expected, rel=1e-5)


@given(st.lists(st.lists(st.integers(2, VOCAB - 1), max_size=5), min_size=1, max_size=5))
def test_a_text_turned_twice_is_itself_and_every_line_ends_with_its_end(lines: list[list[int]]) -> None:
    ids = np.array([token for line in lines for token in [*line, EOS_ID]])
    turned = reverse_text(ids)
    expected = [token for line in reversed(lines) for token in [*reversed(line), EOS_ID]]
    assert turned.tolist() == expected
    assert np.array_equal(reverse_text(turned), ids)


def test_lines_read_alone_are_turned_one_by_one() -> None:
    ids = np.array([2, 3, 4, EOS_ID, 5, EOS_ID, 6, 2, EOS_ID])
    batch, _ = LineBatches(ids, tokens=20).batch(Position())
    turned = reverse_lines(batch)
    assert batch.lengths is not None and turned.lengths is not None
    rows = {tuple(row[:n]) for row, n in zip(turned.targets.tolist(), turned.lengths.tolist(), strict=True)}
    assert rows == {(4, 3, 2, EOS_ID), (5, EOS_ID), (2, 6, EOS_ID)}
    for inputs, targets, length in zip(turned.inputs, turned.targets, turned.lengths, strict=True):
        assert inputs[0] == EOS_ID and np.array_equal(inputs[1:length], targets[: length - 1])


def test_features_are_what_each_direction_has_after_reading_the_token() -> None:
    model = build()
    tokens = np.array([[3, 4, 5, 2], [6, 2, 0, 0]])
    found = compute_features(model, tokens, np.array([4, 2]))
    assert found.shape == (3, 2, 4, 2 * HIDDEN) and not found[:, 1, 2:].any()
    words = model.onward.embedding.weight.detach().numpy()
    np.testing.assert_allclose(found[0, 0, 1], np.tile(words[4], 2), atol=1e-6)
    state = model.onward.start(1)
    for place, token in enumerate(tokens[0]):  # the top layer: what the head reads
        state = model.onward.advance(np.array([token]), state)
        np.testing.assert_allclose(found[2, 0, place, :HIDDEN], model.onward.features(state)[0], atol=1e-6)
    state = model.backward.start(1)
    for place in (1, 0):
        state = model.backward.advance(tokens[1, place : place + 1], state)
        np.testing.assert_allclose(found[2, 1, place, HIDDEN:], model.backward.features(state)[0], atol=1e-6)


def test_words_of_another_width_are_no_layer_of_their_own() -> None:
    model = build(embedding=3)
    assert model.num_feature_layers == 2
    assert compute_features(model, np.array([[3, 4]]), np.array([2])).shape == (2, 1, 2, 2 * HIDDEN)


def test_a_mix_of_layers_begins_as_their_mean_and_follows_its_formula() -> None:
    mix = LayerMix(3, dtype=torch.float64)
    layers = torch.randn(3, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mix(layers), layers.mean(0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, 1.0, -1.0]))
        mix.gamma.fill_(2.0)
    total = 1 + np.e + 1 / np.e
    expected = 2 * (layers[0] + np.e * layers[1] + layers[2] / np.e) / total
    torch.testing.assert_close(mix(layers), expected)
