"""LayerOutputs in both directions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elman.nets.config import Skip
from elman.nets.encoder import BidirectionalStack, Cell, make_cell, reverse

F64 = torch.float64
INPUTS, HIDDEN = 3, 4
CELLS: list[Cell] = ["rnn", "gru", "lstm"]


def build(
    cell: Cell, *, num_layers: int = 2, skip: Skip = "none", layer_norm: bool = False, dtype: torch.dtype = F64
) -> BidirectionalStack:
    stack = BidirectionalStack(
        lambda inputs: make_cell(cell, inputs, HIDDEN, dtype=dtype),
        inputs=INPUTS,
        hidden=HIDDEN,
        num_layers=num_layers,
        skip=skip,
        layer_norm=layer_norm,
        dtype=dtype,
    )
    stack.initialise(torch.Generator().manual_seed(0))
    return stack


def draw(num_steps: int, lengths: list[int], dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    values = torch.randn(num_steps, len(lengths), INPUTS, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return values, torch.tensor(lengths)


def as_torch(cell: Cell, stack: BidirectionalStack) -> nn.RNNBase:
    """PyTorch's own module with the same weights."""
    num_layers = len(stack.stack.parts)
    kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    module: nn.RNNBase = kind(INPUTS, HIDDEN, num_layers, bidirectional=True, dtype=F64)
    with torch.no_grad():
        for index, both in enumerate(stack.stack.parts):
            for suffix, layer in (("", both.onward), ("_reverse", both.backward)):
                tail = f"l{index}{suffix}"
                getattr(module, f"weight_ih_{tail}").copy_(layer.weight_in)  # type: ignore[union-attr]
                getattr(module, f"weight_hh_{tail}").copy_(layer.weight_back)  # type: ignore[union-attr]
                getattr(module, f"bias_ih_{tail}").copy_(layer.bias)  # type: ignore[union-attr]
                back = getattr(module, f"bias_hh_{tail}").zero_()
                if cell == "gru":
                    back[2 * HIDDEN :] = layer.bias_back  # type: ignore[union-attr]
    return module


@pytest.mark.parametrize("lengths", [[6, 2, 5, 1], [6, 6, 6, 6], [3, 3, 2, 3]])
@pytest.mark.parametrize("cell", CELLS)
def test_it_reads_as_pytorch_reads_packed_sequences(cell: Cell, lengths: list[int]) -> None:
    stack = build(cell)
    for parameter in stack.parameters():
        parameter.data += torch.randn(parameter.shape, dtype=F64, generator=torch.Generator().manual_seed(3)) * 0.3
    values, lengths_B = draw(6, lengths)
    encoding = stack(values, lengths_B)
    packed = pack_padded_sequence(values, lengths_B, enforce_sorted=False)
    outputs, last = as_torch(cell, stack)(packed)
    expected, _ = pad_packed_sequence(outputs, total_length=6)
    torch.testing.assert_close(encoding.outputs, expected)
    for place, state in enumerate(last if cell == "lstm" else [last]):  # (layers x directions, B, H)
        torch.testing.assert_close(torch.stack([layer[place] for layer in encoding.forward]), state[0::2])
        torch.testing.assert_close(torch.stack([layer[place] for layer in encoding.backward]), state[1::2])
    torch.testing.assert_close(encoding.last(), torch.cat([encoding.forward[1][0], encoding.backward[1][0]], -1))


@pytest.mark.parametrize("num_steps", [6, 20])  # an LSTM without gradient has another way for a few steps
@pytest.mark.parametrize("cell", CELLS)
def test_with_and_without_gradient_it_reads_the_same(cell: Cell, num_steps: int) -> None:
    stack = build(cell, dtype=torch.float32)
    values, lengths_B = draw(num_steps, [num_steps, 2, 5], torch.float32)
    learning = stack(values, lengths_B)
    with torch.no_grad():
        reading = stack(values, lengths_B)
    torch.testing.assert_close(learning.outputs, reading.outputs)
    torch.testing.assert_close(learning.forward, reading.forward)
    torch.testing.assert_close(learning.backward, reading.backward)


@pytest.mark.parametrize("skip", ["none", "residual", "highway", "dense"])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_changes_neither_outputs_nor_states_nor_gradients(cell: Cell, layer_norm: bool, skip: Skip) -> None:
    stack = build(cell, skip=skip, layer_norm=layer_norm)
    values, lengths_B = draw(5, [5, 2, 3])
    values[2:, 1], values[3:, 2] = 0, 0
    results = []
    for filler in (0.0, 7.0):
        padded = values.clone()
        padded[2:, 1], padded[3:, 2] = filler, filler
        encoding = stack(torch.cat([padded, torch.full((2, 3, INPUTS), filler, dtype=F64)]), lengths_B)
        total = encoding.outputs.square().sum() + sum(
            leaf.sin().sum() for state in (*encoding.forward, *encoding.backward) for leaf in state
        )
        gradients = torch.autograd.grad(total, list(stack.parameters()))
        results.append((encoding.outputs, encoding.forward, encoding.backward, gradients))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    assert not results[0][0][5:].any() and not results[0][0][2:, 1].any()
    for row, length in enumerate([5, 2, 3]):
        alone = stack(values[:length, row : row + 1], torch.tensor([length]))
        torch.testing.assert_close(alone.outputs, results[0][0][:length, row : row + 1])
        for mine, batch in zip(alone.forward + alone.backward, results[0][1] + results[0][2], strict=True):
            torch.testing.assert_close(mine, tuple(leaf[row : row + 1] for leaf in batch))


@pytest.mark.parametrize("cell", CELLS)
def test_an_empty_row_has_a_state_of_zeros(cell: Cell) -> None:
    values, lengths_B = draw(3, [3, 0])
    encoding = build(cell)(values, lengths_B)
    assert not encoding.outputs[:, 1].any()
    assert not any(leaf[1].any() for state in (*encoding.forward, *encoding.backward) for leaf in state)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_reversing_twice_is_nothing_and_padding_stays_where_it_is(lengths: list[int]) -> None:
    values, lengths_B = draw(6, lengths)
    turned = reverse(values, lengths_B)
    for row, length in enumerate(lengths):
        assert torch.equal(turned[:length, row], values[:length, row].flip(0))
        assert torch.equal(turned[length:, row], values[length:, row])
    assert torch.equal(reverse(turned, lengths_B), values)
