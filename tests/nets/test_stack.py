"""What leads past layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from elman.nets.cells import DenseLayer
from elman.nets.config import Skip
from elman.nets.dropout import drop_words, locked_dropout
from elman.nets.embedding import Embedding
from elman.nets.layer import Layer
from elman.nets.lstm import LstmLayer
from elman.nets.stack import Stack, layer_inputs

F64 = torch.float64
INPUTS, HIDDEN = 3, 4


def build(skip: Skip, *, num_layers: int = 3, layer_norm: bool = False) -> Stack:
    widths = layer_inputs(skip, INPUTS, [HIDDEN] * num_layers)
    layers: list[Layer] = [DenseLayer(width, HIDDEN, activation="tanh", dtype=F64) for width in widths[:-1]]
    stack = Stack(layers, inputs=INPUTS, skip=skip, layer_norm=layer_norm, dtype=F64)
    stack.initialise(torch.Generator().manual_seed(0))
    return stack


@pytest.fixture(name="inputs")
def fixture_inputs() -> Tensor:
    return torch.randn(5, 2, INPUTS, generator=torch.Generator().manual_seed(1), dtype=F64)


def test_without_skips_each_layer_reads_the_one_below(inputs: Tensor) -> None:
    stack = build("none")
    values = inputs
    for layer in stack.parts:
        values = layer(values, ())[0]
    torch.testing.assert_close(stack(inputs, ())[0], values)


def test_residual_layers_add_to_what_they_read_from_the_second_on(inputs: Tensor) -> None:
    stack = build("residual")
    one, two, three = stack.parts
    values = one(inputs, ())[0]
    values = values + two(values, ())[0]
    values = values + three(values, ())[0]
    torch.testing.assert_close(stack(inputs, ())[0], values)


def test_highway_gates_mix_what_was_read_and_what_was_given(inputs: Tensor) -> None:
    stack = build("highway", num_layers=2)
    below = stack.parts[0](inputs, ())[0]
    given = stack.parts[1](below, ())[0]
    gate = torch.sigmoid(below @ stack.gates[0].weight.T + stack.gates[0].bias)  # type: ignore[operator]
    torch.testing.assert_close(stack(inputs, ())[0], gate * given + (1 - gate) * below)


def test_highways_begin_nearly_closed(inputs: Tensor) -> None:
    stack = build("highway", num_layers=2)
    below = stack.parts[0](inputs, ())[0]
    assert (stack(inputs, ())[0] - below).abs().max() < 0.3 * (stack.parts[1](below, ())[0] - below).abs().max()


def test_dense_layers_read_the_words_and_all_below_and_the_output_all_layers(inputs: Tensor) -> None:
    stack = build("dense")
    one = stack.parts[0](inputs, ())[0]
    two = stack.parts[1](torch.cat([inputs, one], -1), ())[0]
    three = stack.parts[2](torch.cat([inputs, one, two], -1), ())[0]
    outputs = stack(inputs, ())[0]
    assert stack.output_width == outputs.shape[-1] == 3 * HIDDEN
    torch.testing.assert_close(outputs, torch.cat([one, two, three], -1))


def test_layer_norm_is_of_what_each_layer_and_the_output_read(inputs: Tensor) -> None:
    stack = build("none", num_layers=2, layer_norm=True)
    normed = nn.functional.layer_norm
    values = stack.parts[0](normed(inputs, [INPUTS]), ())[0]
    values = stack.parts[1](normed(values, [HIDDEN]), ())[0]
    torch.testing.assert_close(stack(inputs, ())[0], normed(values, [HIDDEN]))


def test_states_are_dealt_out_and_collected_in_order(inputs: Tensor) -> None:
    layers: list[Layer] = [
        LstmLayer(INPUTS, HIDDEN, forget_bias=1.0, dtype=F64),
        LstmLayer(HIDDEN, HIDDEN, forget_bias=1.0, dtype=F64),
    ]
    stack = Stack(layers, inputs=INPUTS, skip="none", layer_norm=False, dtype=F64)
    stack.initialise(torch.Generator().manual_seed(0))
    carried = tuple(torch.randn(2, HIDDEN, dtype=F64) for _ in range(4))
    outputs, after = stack(inputs, carried)
    below, first = layers[0](inputs, carried[:2])
    expected, second = layers[1](below, carried[2:])
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, (*first, *second))


def test_dropout_between_layers_spares_the_first_and_the_last(inputs: Tensor) -> None:
    torch.manual_seed(0)
    alone = build("none", num_layers=1)
    torch.testing.assert_close(alone(inputs, (), dropout=0.9)[0], alone(inputs, ())[0])
    several = build("none")
    assert not torch.equal(several(inputs, (), dropout=0.5)[0], several(inputs, ())[0])


def test_locked_dropout_hits_the_same_features_at_every_step_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    dropped = locked_dropout(torch.ones(7, 50, 40), 0.3)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert sorted(dropped.unique().tolist()) == pytest.approx([0, 1 / 0.7])
    assert not torch.equal(dropped[0, 0], dropped[0, 1])  # rows lose different features
    assert dropped.mean().item() == pytest.approx(1, abs=0.06)


def test_a_dropped_word_is_gone_wherever_it_occurs() -> None:
    torch.manual_seed(0)
    weight = torch.ones(100, 3)
    tokens = torch.arange(100).repeat(4, 1)
    dropped = drop_words(weight, tokens, 0.4)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert sorted(dropped.unique().tolist()) == pytest.approx([0, 1 / 0.6])
    assert torch.equal(dropped.amin(-1), dropped.amax(-1))  # all of the word or nothing


def test_a_rate_of_zero_changes_nothing_and_draws_nothing() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert locked_dropout(values, 0.0) is values
    assert torch.equal(drop_words(values[0], torch.tensor([1, 0]), 0.0), values[0][[1, 0]])
    assert torch.equal(torch.get_rng_state(), before)


def test_words_without_a_given_vector_get_a_small_one_of_their_own() -> None:
    vectors = torch.full((3, 2), 5.0).numpy()
    vectors[1] = float("nan")
    for is_frozen in (False, True):
        embedding = Embedding(3, 2, is_frozen=is_frozen, dtype=torch.float32)
        embedding.initialise(torch.Generator().manual_seed(0), vectors)
        assert embedding.weight[[0, 2]].eq(5).all()
        assert 0 < embedding.weight[1].abs().max() <= 0.05
        assert len(list(embedding.parameters())) == (0 if is_frozen else 1)
