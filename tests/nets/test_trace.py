"""Recording changes nothing: a traced layer gives what the fast one gives, and its parts add up."""

from __future__ import annotations

import pytest
import torch

from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.cells import DenseLayer
from elman.nets.encoder import BidirectionalStack
from elman.nets.layer import Layer
from elman.nets.lstm import LstmLayer
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import LayerTrace, join_traces
from elman.nets.transformer import BlockShape, CausalStack
from elman.nets.transformer_decoder import DecoderStack
from elman.nets.unidirectional import UnidirectionalStack
from tests.nets.test_cells import F64, HIDDEN, INPUTS, LAYERS, build, normal, states

SHAPE = BlockShape(hidden=8, num_heads=2, feed_forward=12, window=5)


@pytest.mark.parametrize("name", LAYERS)
def test_a_traced_layer_gives_what_the_layer_gives(name: str) -> None:
    layer = build(name)
    inputs, state = normal(7, 2, INPUTS), states(layer, 2)
    outputs, after = layer(inputs, state)
    traced = layer.trace(inputs, state)
    torch.testing.assert_close(traced.output(), outputs)
    torch.testing.assert_close(traced.after, after)
    for steps in (*traced.states.values(), *traced.gates.values()):
        assert [tuple(step.shape) for step in steps] == [(2, HIDDEN)] * 7


@pytest.mark.parametrize("name", LAYERS)
def test_the_gradient_of_a_recurrent_weight_is_the_sum_over_its_uses(name: str) -> None:
    layer = build(name)
    traced = layer.trace(normal(6, 2, INPUTS), states(layer, 2))
    loss = (traced.output() * normal(6, 2, HIDDEN, seed=9)).sum()
    weight = dict(layer.named_parameters())["weight_back"]
    products = [use.product for step in traced.uses for use in step]
    *by_use, whole = torch.autograd.grad(loss, [*products, weight])
    added = torch.zeros_like(weight)
    for use, grad in zip((use for step in traced.uses for use in step), by_use, strict=True):
        added[use.rows] += grad.t() @ use.operand
    torch.testing.assert_close(added, whole)


def test_the_gates_of_an_lstm_are_its_formula() -> None:
    layer = build("lstm")
    traced = layer.trace(normal(3, 1, INPUTS), states(layer, 1))
    gates, c = traced.gates, traced.states["c"]
    for t in (1, 2):
        kept = gates["forget"][t] * c[t - 1] + gates["input"][t] * gates["candidate"][t]
        torch.testing.assert_close(c[t], kept)
        torch.testing.assert_close(traced.outputs[t], gates["output"][t] * c[t].tanh())


def test_a_dense_layer_has_no_state() -> None:
    layer = DenseLayer(INPUTS, HIDDEN, activation="relu", dtype=F64)
    layer.initialise(torch.Generator().manual_seed(0))
    traced = layer.trace(normal(4, 2, INPUTS), ())
    torch.testing.assert_close(traced.output(), layer(normal(4, 2, INPUTS), ())[0])
    assert traced.after == () and not traced.states


def make_lstm(width: int) -> Layer:
    return LstmLayer(width, HIDDEN, forget_bias=1.0, dtype=F64)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("skip", ["none", "residual", "highway", "dense"])
def test_a_traced_stack_gives_what_the_stack_gives(skip: str, layer_norm: bool) -> None:
    widths = layer_inputs(skip, INPUTS, [HIDDEN] * 3)  # type: ignore[arg-type]
    stack = Stack(
        [make_lstm(width) for width in widths[:-1]], inputs=INPUTS, skip=skip, layer_norm=layer_norm, dtype=F64
    )  # type: ignore[arg-type]
    stack.initialise(torch.Generator().manual_seed(0))
    carried = [normal(2, HIDDEN, seed=30 + i) for i in range(6)]
    inputs = normal(5, 2, INPUTS)
    outputs, after = stack(inputs, carried)
    traces, vectors, traced_after = stack.trace(inputs, carried)
    torch.testing.assert_close(vectors[-1], outputs)
    torch.testing.assert_close(vectors, stack.vectors(inputs, carried)[0])
    torch.testing.assert_close(traced_after, after)
    assert len(traces) == 3


@pytest.mark.parametrize("kind", [BidirectionalStack, UnidirectionalStack])
def test_traced_readers_of_whole_texts_give_what_they_give(kind: type) -> None:
    stack = kind(make_lstm, inputs=INPUTS, hidden=HIDDEN, num_layers=2, dtype=F64)
    stack.initialise(torch.Generator().manual_seed(0))
    inputs, lengths = normal(5, 1, INPUTS), torch.tensor([5])
    wanted = stack(inputs, lengths)
    traces, vectors, encoding = stack.trace(inputs, lengths)
    torch.testing.assert_close(vectors[-1], wanted.outputs)
    torch.testing.assert_close(encoding.forward, wanted.forward)
    torch.testing.assert_close(encoding.backward, wanted.backward)
    if kind is BidirectionalStack:  # steps stand at their token's place in both directions
        half = torch.stack(list(traces[0].states["backward.h"]))
        torch.testing.assert_close(half, traces[0].output()[:, :, HIDDEN:])


def test_a_traced_transformer_gives_what_it_gives_from_any_state() -> None:
    stack = CausalStack(INPUTS, SHAPE, num_layers=2, dtype=F64)
    stack.initialise(torch.Generator().manual_seed(0))
    carried = stack.start(1)
    for steps in (3, 11, 1):  # with an empty window, a half and a full one
        inputs = normal(steps, 1, INPUTS, seed=steps)
        outputs, after = stack(inputs, carried)
        traces, vectors, traced_after = stack.trace(inputs, carried)
        torch.testing.assert_close(vectors[-1], outputs)
        torch.testing.assert_close(traced_after, after)
        for traced in traces:
            weights = traced.attention["self"]
            torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, steps, dtype=F64))
            assert int((weights > 0).sum(-1).max()) <= SHAPE.window
        carried = after


def test_a_traced_encoder_and_decoder_give_what_they_give() -> None:
    encoder = AttentionEncoder(INPUTS, SHAPE, num_layers=2, dtype=F64)
    decoder = DecoderStack(INPUTS, SHAPE, memory=8, num_layers=2, dtype=F64)
    for part in (encoder, decoder):
        part.initialise(torch.Generator().manual_seed(0))
    lengths = torch.tensor([6])
    memory = encoder(normal(6, 1, INPUTS), lengths)
    torch.testing.assert_close(encoder.trace(normal(6, 1, INPUTS), lengths)[2], memory)
    carried = decoder.start(memory.transpose(0, 1), lengths)
    outputs, after, weights = decoder(normal(4, 1, INPUTS, seed=5), carried)
    traces, vectors, traced_after = decoder.trace(normal(4, 1, INPUTS, seed=5), carried)
    torch.testing.assert_close(vectors[-1], outputs)
    torch.testing.assert_close(traced_after, after)
    torch.testing.assert_close(traces[-1].attention["source"].mean(1), weights)


def test_parts_of_a_text_are_joined_as_if_they_were_read_at_once() -> None:
    layer = build("lstm")
    inputs, state = normal(5, 1, INPUTS), states(layer, 1)
    first = layer.trace(inputs[:2], state)
    joined = join_traces([first, layer.trace(inputs[2:], first.after)])
    whole: LayerTrace = layer.trace(inputs, state)
    torch.testing.assert_close(joined.output(), whole.output())
    torch.testing.assert_close(joined.gates["forget"], whole.gates["forget"])
    assert len(joined.uses) == 5
