"""Attention over whole rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.transformer import POSITION_GAIN, BlockShape

F64 = torch.float64
INPUTS, HIDDEN = 3, 4


def build(*, window: int = 2, num_layers: int = 2) -> AttentionEncoder:
    shape = BlockShape(HIDDEN, num_heads=2, feed_forward=5, window=window)
    encoder = AttentionEncoder(INPUTS, shape, num_layers=num_layers, dtype=F64)
    rng = torch.Generator().manual_seed(0)
    encoder.initialise(rng)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=F64), alpha=0.3)
    return encoder


def draw(num_steps: int, rows: int) -> Tensor:
    return torch.randn(num_steps, rows, INPUTS, generator=torch.Generator().manual_seed(1), dtype=F64)


def test_one_block_is_the_plain_computation_of_its_formulas() -> None:
    encoder = build(num_layers=1)
    words = draw(5, 1)
    block = encoder.parts[0]
    read = encoder.reader(words)[:, 0]
    queries, keys, values = (part.view(5, 2, 2) for part in block.attention_in(block.attention_norm(read)).split(4, -1))
    found = torch.zeros(5, 2, 2, dtype=F64)
    for here in range(5):
        for head in range(2):
            energies = [
                queries[here, head] @ keys[there, head] / math.sqrt(2)
                + POSITION_GAIN * block.distances[max(-2, min(2, here - there)) + 2, head]
                for there in range(5)
            ]
            found[here, head] = torch.stack(energies).softmax(0) @ values[:, head]
    after = read + block.attention_out(found.flatten(1))
    after = after + block.feed_forward_out(functional.gelu(block.feed_forward_in(block.feed_forward_norm(after))))
    torch.testing.assert_close(encoder(words, torch.tensor([5]))[:, 0], encoder.norm(after))


@pytest.mark.parametrize("filler", [0.0, 9.0])
def test_padding_changes_neither_outputs_nor_gradients(filler: float) -> None:
    encoder = build()
    words = draw(6, 3)
    lengths = torch.tensor([6, 2, 4])
    words[2:, 1], words[4:, 2] = filler, filler
    outputs = encoder(words, lengths)
    gradients = torch.autograd.grad(outputs.square().sum(), list(encoder.parameters()))
    alone = [encoder(words[:length, row : row + 1], lengths[row : row + 1]) for row, length in enumerate([6, 2, 4])]
    expected = torch.autograd.grad(sum(part.square().sum() for part in alone), list(encoder.parameters()))  # type: ignore[arg-type]
    for row, part in enumerate(alone):
        torch.testing.assert_close(outputs[: len(part), row], part[:, 0])
        assert not outputs[len(part) :, row].any()
    torch.testing.assert_close(gradients, expected)


def test_an_empty_row_gives_zeros_and_spoils_nothing() -> None:
    encoder = build()
    words = draw(3, 2)
    outputs = encoder(words, torch.tensor([3, 0]))
    assert not outputs[:, 1].any() and outputs.isfinite().all()
    gradients = torch.autograd.grad(outputs.sum(), list(encoder.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_every_token_sees_every_other_one() -> None:
    encoder = build(window=1, num_layers=1)
    words = draw(9, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(encoder(words, torch.tensor([9]))[4].square().sum(), words)
    assert (gradient.abs().sum(-1) > 1e-9).all()
