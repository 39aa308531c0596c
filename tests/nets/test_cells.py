"""Recurrent layers against PyTorch's own, against plain arithmetic, and against their own slopes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from elman.nets.cells import DenseLayer, ElmanLayer, GruLayer
from elman.nets.layer import Layer
from elman.nets.lstm import MIN_FUSED_STEPS, LstmLayer

F64 = torch.float64
INPUTS, HIDDEN = 3, 4

LAYERS: dict[str, Any] = {
    "lstm": lambda dtype: LstmLayer(INPUTS, HIDDEN, forget_bias=1.0, dtype=dtype),
    "gru": lambda dtype: GruLayer(INPUTS, HIDDEN, dtype=dtype),
    "gru, reset first": lambda dtype: GruLayer(INPUTS, HIDDEN, reset="before", dtype=dtype),
    **{
        f"rnn {recurrence} {activation}": lambda dtype, r=recurrence, a=activation: ElmanLayer(
            INPUTS, HIDDEN, recurrence=r, activation=a, dtype=dtype
        )
        for recurrence in ("plain", "additive", "gated")
        for activation in ("tanh", "sigmoid", "relu")
    },
}


def build(name: str, dtype: torch.dtype = F64, seed: int = 0) -> Layer:
    layer: Layer = LAYERS[name](dtype)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5, generator=rng)
    return layer


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def states(layer: Layer, rows: int, dtype: torch.dtype = F64) -> tuple[Tensor, ...]:
    return tuple(normal(rows, layer.hidden, seed=10 + i, dtype=dtype) for i in range(layer.num_states))


def run_with_gradients(layer: Layer, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and final states; and the gradients of their weighted sum by inputs, states and parameters."""
    leaves = [inputs.clone().requires_grad_(), *(s.clone().requires_grad_() for s in state)]
    outputs, after = layer(leaves[0], tuple(leaves[1:]))
    found = [outputs, *after]
    total = sum((normal(*tensor.shape, seed=20 + i) * tensor).sum() for i, tensor in enumerate(found))
    grads = torch.autograd.grad(total, [*leaves, *layer.parameters()])  # type: ignore[arg-type]
    return [tensor.detach() for tensor in found], list(grads)


@pytest.mark.parametrize("steps", [1, 2, MIN_FUSED_STEPS + 3])
def test_our_lstm_is_pytorchs(steps: int) -> None:
    ours = build("lstm")
    theirs = nn.LSTM(INPUTS, HIDDEN, dtype=F64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight_in)
        theirs.weight_hh_l0.copy_(ours.weight_back)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.zero_()
    inputs, (h, c) = normal(steps, 2, INPUTS), states(ours, 2)
    outputs, (h_after, c_after) = ours(inputs, (h, c))
    expected, (h_expected, c_expected) = theirs(inputs, (h[None], c[None]))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close((h_after, c_after), (h_expected[0], c_expected[0]))


@pytest.mark.parametrize(("name", "kind"), [("gru", nn.GRU), ("rnn plain tanh", nn.RNN), ("rnn plain relu", nn.RNN)])
def test_our_other_layers_and_their_gradients_are_pytorchs(name: str, kind: Any) -> None:
    ours = build(name)
    options = {"nonlinearity": "relu"} if "relu" in name else {}
    theirs = kind(INPUTS, HIDDEN, dtype=F64, **options)
    bias_back = torch.zeros_like(theirs.bias_hh_l0)
    if isinstance(ours, GruLayer):
        bias_back[2 * HIDDEN :] = ours.bias_back.detach()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight_in)
        theirs.weight_hh_l0.copy_(ours.weight_back)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.copy_(bias_back)
    inputs, state = normal(6, 2, INPUTS).requires_grad_(), states(ours, 2)[0].requires_grad_()
    outputs, (after,) = ours(inputs, (state,))
    expected, expected_after = theirs(inputs, state[None])
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, expected_after[0])
    weights = normal(*outputs.shape, seed=5)
    found = torch.autograd.grad((outputs * weights).sum(), [inputs, state, ours.weight_in, ours.weight_back, ours.bias])
    wanted = torch.autograd.grad(
        (expected * weights).sum(), [inputs, state, theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0]
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_the_slopes_of_the_outputs(name: str) -> None:
    layer = build(name)
    inputs, state = normal(4, 2, INPUTS), states(layer, 2)
    names = list(dict(layer.named_parameters()))
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs, *state, *layer.parameters())]

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        first = 1 + len(state)
        parameters = dict(zip(names, tensors[first:], strict=True))
        found, after = torch.func.functional_call(layer, parameters, (tensors[0], tensors[1:first]))
        return (found, *after)

    assert torch.autograd.gradcheck(outputs, leaves)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reading_at_once_or_in_pieces_is_the_same(name: str, dtype: torch.dtype) -> None:
    """Long pieces go through the fused kernel, short ones step by step."""
    layer = build(name, dtype)
    inputs, state = normal(MIN_FUSED_STEPS + 5, 2, INPUTS, dtype=dtype), states(layer, 2, dtype)
    with torch.no_grad():
        whole, whole_after = layer(inputs, state)
        pieces = []
        for piece in inputs.split([1, 2, MIN_FUSED_STEPS, 2]):
            outputs, state = layer(piece, state)
            pieces.append(outputs)
    torch.testing.assert_close(torch.cat(pieces), whole)
    torch.testing.assert_close(state, whole_after)


def test_one_lstm_step_in_plain_floats() -> None:
    """Hidden 1, input 1: every weight is a number of its own, and the four gates are worked out by hand."""
    layer = LstmLayer(1, 1, forget_bias=1.0, dtype=F64)
    with torch.no_grad():
        layer.weight_in.copy_(torch.tensor([[0.5], [-1.0], [2.0], [0.25]], dtype=F64))
        layer.weight_back.copy_(torch.tensor([[1.0], [0.5], [-0.5], [-2.0]], dtype=F64))
        layer.bias.copy_(torch.tensor([0.1, 1.0, 0.0, -0.3], dtype=F64))
    x, h, c = 0.8, -0.4, 0.6

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    input_gate = sigmoid(0.5 * x + 1.0 * h + 0.1)  # 0.1 -> 0.52498
    forget_gate = sigmoid(-1.0 * x + 0.5 * h + 1.0)  # 0.0 -> 0.5
    candidate = math.tanh(2.0 * x - 0.5 * h + 0.0)  # 1.8 -> 0.94681
    output_gate = sigmoid(0.25 * x - 2.0 * h - 0.3)  # 0.7 -> 0.66819
    c_after = forget_gate * c + input_gate * candidate  # 0.3 + 0.49706
    h_after = output_gate * math.tanh(c_after)
    assert c_after == pytest.approx(0.79706, abs=1e-5)
    outputs, state = layer(
        torch.tensor([[[x]]], dtype=F64), (torch.tensor([[h]], dtype=F64), torch.tensor([[c]], dtype=F64))
    )
    assert outputs.item() == pytest.approx(h_after, rel=1e-12)
    assert [tensor.item() for tensor in state] == pytest.approx([h_after, c_after], rel=1e-12)


def test_the_steps_from_elman_to_the_gru_in_plain_floats() -> None:
    """x = 0.5, h = 0.2, W = 1, U = -2, b = 0.3: the sum is 0.4; the gate's own W = 0, U = 1, b = -0.2: its sum is 0."""
    new = math.tanh(0.4)
    expected = {"plain": new, "additive": 0.2 + new, "gated": 0.5 * 0.2 + 0.5 * new}
    for recurrence, value in expected.items():
        layer = ElmanLayer(1, 1, recurrence=recurrence, activation="tanh", dtype=F64)  # type: ignore[arg-type]
        gate = recurrence == "gated"
        with torch.no_grad():
            layer.weight_in.copy_(torch.tensor([[0.0]] * gate + [[1.0]], dtype=F64))
            layer.weight_back.copy_(torch.tensor([[1.0]] * gate + [[-2.0]], dtype=F64))
            layer.bias.copy_(torch.tensor([-0.2] * gate + [0.3], dtype=F64))
        outputs, (after,) = layer(torch.tensor([[[0.5]]], dtype=F64), (torch.tensor([[0.2]], dtype=F64),))
        assert outputs.item() == pytest.approx(value, rel=1e-12)
        assert after.item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_steps_in_plain_floats(reset: Any) -> None:
    """Two steps of hidden 2, input 1. The candidate reads U (r h) as Cho et al. (2014) write it, or r (U h + b)."""
    layer = GruLayer(1, 2, reset=reset, dtype=F64)
    w, b = [0.5, -1.0, 2.0, 0.25, 0.7, -0.3], [0.1, 0.2, 0.0, -0.3, 0.4, -0.1]  # reset, update, candidate: two each
    u = [[1.0, 0.5], [-0.5, -2.0], [0.3, 0.8], [1.2, -0.7], [0.9, -1.1], [0.6, 1.4]]
    inner = [0.0, 0.0] if reset == "before" else [0.2, -0.6]
    with torch.no_grad():
        layer.weight_in.copy_(torch.tensor(w, dtype=F64)[:, None])
        layer.weight_back.copy_(torch.tensor(u, dtype=F64))
        layer.bias.copy_(torch.tensor(b, dtype=F64))
        if reset == "after":
            layer.bias_back.copy_(torch.tensor(inner, dtype=F64))
    h = [-0.4, 0.6]
    expected = []
    for x in (0.8, -0.5):

        def product(row: int, h: list[float]) -> float:
            return u[row][0] * h[0] + u[row][1] * h[1]

        r, z = ([1 / (1 + math.exp(-(w[i] * x + b[i] + product(i, h)))) for i in rows] for rows in ((0, 1), (2, 3)))
        if reset == "before":
            back = [product(4 + i, [r[0] * h[0], r[1] * h[1]]) for i in (0, 1)]
        else:
            back = [r[i] * (product(4 + i, h) + inner[i]) for i in (0, 1)]
        new = [math.tanh(w[4 + i] * x + b[4 + i] + back[i]) for i in (0, 1)]
        h = [(1 - z[i]) * new[i] + z[i] * h[i] for i in (0, 1)]
        expected += h
    inputs, start = torch.tensor([[[0.8]], [[-0.5]]], dtype=F64), torch.tensor([[-0.4, 0.6]], dtype=F64)
    outputs, (after,) = layer(inputs, (start,))
    assert outputs.flatten().tolist() == pytest.approx(expected, rel=1e-12)
    assert after[0].tolist() == pytest.approx(h, rel=1e-12)


def test_a_reset_before_the_product_has_no_second_bias() -> None:
    """b of W x + b is the only one there is: an inner one would be added to it."""
    assert set(dict(build("gru, reset first").named_parameters())) == {"weight_in", "weight_back", "bias"}


@pytest.mark.parametrize("name", ["lstm", "gru", "gru, reset first", "rnn plain tanh", "rnn gated tanh"])
def test_weight_drop_leaves_recurrent_weights_out_for_the_whole_step_and_gives_them_no_gradient(name: str) -> None:
    layer = build(name)
    inputs, state = normal(MIN_FUSED_STEPS + 2, 2, INPUTS), states(layer, 2)
    torch.manual_seed(7)
    dropped, _ = layer(inputs, state, 0.5)
    dropped.sum().backward()
    grad = layer.weight_back.grad
    assert isinstance(grad, Tensor)
    torch.manual_seed(7)
    mask = nn.functional.dropout(torch.ones_like(layer.weight_back), 0.5)  # 0 or 2
    assert 0 < (mask == 0).sum() < mask.numel()
    assert not grad[mask == 0].any()

    same = build(name)
    with torch.no_grad():
        same.weight_back.mul_(mask)  # type: ignore[operator]
    expected, _ = same(inputs, state)
    expected.sum().backward()
    torch.testing.assert_close(dropped, expected)
    torch.testing.assert_close(grad, same.weight_back.grad * mask)  # type: ignore[operator]


def test_weight_drop_does_not_change_the_weights_themselves() -> None:
    layer = build("lstm")
    before = layer.weight_back.clone()  # type: ignore[operator]
    layer(normal(3, 2, INPUTS), states(layer, 2), 0.9)
    torch.testing.assert_close(layer.weight_back, before, rtol=0, atol=0)


def test_a_forget_gate_begins_open() -> None:
    layer = LstmLayer(INPUTS, HIDDEN, forget_bias=1.5, dtype=F64)
    layer.initialise(torch.Generator().manual_seed(0))
    assert layer.bias.tolist() == [0.0] * HIDDEN + [1.5] * HIDDEN + [0.0] * 2 * HIDDEN


@pytest.mark.parametrize("activation", ["tanh", "relu"])  # sigmoid never takes away, so it has to grow
def test_an_additive_layer_does_not_grow_with_the_text(activation: Any) -> None:
    layer = ElmanLayer(16, 64, recurrence="additive", activation=activation, dtype=F64)
    layer.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs, _ = layer(normal(2000, 2, 16), (torch.zeros(2, 64, dtype=F64),))
    assert outputs[1000:].abs().max() <= 2 * outputs[:1000].abs().max()
    assert outputs.abs().max() < 30


def test_a_rectified_layer_begins_by_remembering() -> None:
    layer = ElmanLayer(INPUTS, HIDDEN, recurrence="plain", activation="relu", dtype=F64)
    layer.initialise(torch.Generator().manual_seed(0))
    outputs, _ = layer(torch.zeros(5, 1, INPUTS, dtype=F64), (torch.full((1, HIDDEN), 0.7, dtype=F64),))
    torch.testing.assert_close(outputs, torch.full((5, 1, HIDDEN), 0.7, dtype=F64))


@given(st.sampled_from(sorted(LAYERS)), st.integers(1, 20), st.integers(1, 4), st.integers(0, 99))
def test_rows_do_not_see_each_other(name: str, steps: int, rows: int, seed: int) -> None:
    layer = build(name)
    inputs, state = normal(steps, rows, INPUTS, seed=seed), states(layer, rows)
    with torch.no_grad():
        together, _ = layer(inputs, state)
        alone, _ = layer(inputs[:, -1:], tuple(leaf[-1:] for leaf in state))
    torch.testing.assert_close(together[:, -1:], alone)


@pytest.mark.parametrize(
    ("activation", "function"), [("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", torch.relu)]
)
def test_a_dense_layer_is_an_activation_of_a_linear_one(activation: Any, function: Any) -> None:
    layer = DenseLayer(INPUTS, HIDDEN, activation=activation, dtype=F64)
    layer.initialise(torch.Generator().manual_seed(0))
    inputs = normal(5, 2, INPUTS)
    outputs, state = layer(inputs, ())
    assert state == ()
    torch.testing.assert_close(outputs, function(inputs @ layer.weight.T + layer.bias))


@pytest.mark.parametrize(
    ("name", "gates"), [("lstm", 4), ("gru", 3), ("gru, reset first", 3), ("rnn plain tanh", 1), ("rnn gated tanh", 2)]
)
def test_work_is_counted_by_gates(name: str, gates: int) -> None:
    assert build(name).multiply_adds() == gates * HIDDEN * (INPUTS + HIDDEN)


def test_equal_seeds_draw_equal_weights() -> None:
    for name, make in LAYERS.items():
        drawn = []
        for _ in range(2):
            layer = make(torch.float32)
            layer.initialise(torch.Generator().manual_seed(3))
            drawn.append(torch.cat([parameter.flatten() for parameter in layer.parameters()]))
        torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=0, msg=name)
