"""The Transformer against a plain computation, and how far it sees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elman.core.arrays import Array
from elman.nets.inputs import NetInputs
from elman.nets.transformer import MIN_STRIDE, POSITION_GAIN, BlockShape, CausalBlock
from elman.tasks.lm.families.transformer import TransformerConfig
from elman.tasks.lm.families.transformer_net import TransformerModel
from elman.text.units.vocabulary import EOS_ID

F64 = torch.float64
VOCAB = 9


def build(*, window: int, layers: int = 2, dtype: torch.dtype = F64, seed: int = 0) -> TransformerModel:
    config = TransformerConfig(hidden=8, layers=layers, window=window, attention_heads=2, feed_forward=12)
    rng = torch.Generator().manual_seed(seed)
    model = TransformerModel(config, NetInputs(VOCAB, rng=rng, dtype=dtype), reset_lines=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=dtype), alpha=0.3)
    return model.eval()


def draw_text(rows: int, num_tokens: int) -> Array:
    return np.random.default_rng(2).integers(0, VOCAB, size=(rows, num_tokens))


def plain_log_probs(model: TransformerModel, text: list[int]) -> Tensor:
    """Every token after the first from all before it, by the formulas, one token and one head at a time. -> (T - 1, V)"""
    config, width = model.config, 4
    values = [functional.layer_norm(model.embedding.weight[word], [8]) for word in text]
    values = [value * model.stack.reader.norm.weight + model.stack.reader.norm.bias for value in values]
    for block in model.stack.parts:
        queries, keys, contents = [], [], []
        for value in values:
            parts = block.attention_in(block.attention_norm(value)).split(8)
            queries.append(parts[0].view(2, width))
            keys.append(parts[1].view(2, width))
            contents.append(parts[2].view(2, width))
        after = []
        for here, value in enumerate(values):
            found = []
            for head in range(2):
                places = range(max(0, here - config.window + 1), here + 1)
                energies = [
                    queries[here][head] @ keys[place][head] / math.sqrt(width)
                    + POSITION_GAIN * block.distances[here - place, head]
                    for place in places
                ]
                shares = torch.stack(energies).softmax(0)
                found.append(sum(share * contents[place][head] for share, place in zip(shares, places, strict=True)))
            value = value + block.attention_out(torch.cat(found))  # type: ignore[arg-type]
            inner = functional.gelu(block.feed_forward_in(block.feed_forward_norm(value)))
            after.append(value + block.feed_forward_out(inner))
        values = after
    return model.head.log_probs(model.stack.norm(torch.stack(values[:-1])))


@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_it_is_the_plain_computation_of_its_formulas(window: int) -> None:
    model = build(window=window)
    text = draw_text(1, 12)
    expected = plain_log_probs(model, [EOS_ID, *text[0]])[torch.arange(12), torch.from_numpy(text[0])]
    scored, _ = model.score(text, np.array([12]), model.start(1))
    np.testing.assert_allclose(scored[0], expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(("window", "layers"), [(1, 3), (2, 1), (3, 2), (4, 3)])
def test_a_token_reaches_back_exactly_as_far_as_the_windows_say(window: int, layers: int) -> None:
    """(window - 1) * layers tokens before the last one read, and no further."""
    model = build(window=window, layers=layers)
    text = torch.from_numpy(draw_text(1, 16)).t()
    words = model.embedding(text).detach().requires_grad_()
    outputs, _ = model.stack(words, model.start_training(1))
    outputs[-1, 0].square().sum().backward()
    assert words.grad is not None
    reached = words.grad[:, 0].abs().sum(-1) > 1e-12
    reach = (window - 1) * layers
    assert reached.tolist() == [False] * (15 - reach) + [True] * (reach + 1)


@pytest.mark.parametrize("window", [3, 50])
def test_a_text_longer_than_a_block_of_queries_reads_as_step_by_step(window: int) -> None:
    model = build(window=window)
    num_tokens = 3 * max(MIN_STRIDE, window) + 5
    text = draw_text(2, num_tokens)
    scored, state = model.score(text, np.array([num_tokens, num_tokens - 40]), model.start(2))
    stepping, stepped = model.start(2), []
    for tokens in text.T:
        stepped.append(model.predict(stepping)[[0, 1], tokens])
        stepping = model.advance(tokens, stepping)
    stepped_BT = np.stack(stepped, axis=1)
    stepped_BT[1, num_tokens - 40 :] = 0
    np.testing.assert_allclose(scored, stepped_BT, atol=1e-6)
    np.testing.assert_allclose(model.predict(state)[0], model.predict(stepping)[0], atol=1e-6)


def test_training_attends_to_what_was_carried() -> None:
    """The losses of a text read in pieces are those of the text read whole: only gradients end at the cuts."""
    model = build(window=4).eval()
    text = torch.from_numpy(draw_text(3, 21))
    whole, _ = model.loss(text[:, :-1], text[:, 1:], None, model.start_training(3))
    state, nats = model.start_training(3), 0.0
    for first in range(0, 20, 5):
        piece, state = model.loss(text[:, first : first + 5], text[:, first + 1 : first + 6], None, state)
        nats += piece.nats.item()
        assert not any(leaf.requires_grad for leaf in state)
    assert nats == pytest.approx(whole.nats.item(), rel=1e-9)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    block = CausalBlock(BlockShape(4, num_heads=2, feed_forward=3, window=3), dtype=F64)
    block.initialise(torch.Generator().manual_seed(0), num_blocks=1)
    rng = torch.Generator().manual_seed(1)
    values = torch.randn(5, 2, 4, generator=rng, dtype=F64, requires_grad=True)
    seen = torch.randn(2, 2, 2, 2, 2, generator=rng, dtype=F64).unbind(0)
    count = torch.tensor([2, 1])
    weights = [parameter.detach().requires_grad_() for parameter in block.parameters()]
    names = [name for name, _ in block.named_parameters()]

    def run(values: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(block, dict(zip(names, weights, strict=True)), (values, seen, count))[0]

    assert torch.autograd.gradcheck(run, (values, *weights))


def test_heads_begin_by_looking_nearer_and_farther() -> None:
    """Slopes of 2^-4 and 2^-8 for two heads (Press et al. 2022)."""
    block = CausalBlock(BlockShape(4, num_heads=2, feed_forward=3, window=3, activation="relu"), dtype=F64)
    block.initialise(torch.Generator().manual_seed(0), num_blocks=1)
    assert (POSITION_GAIN * block.distances).tolist() == [[0, 0], [-1 / 16, -1 / 256], [-2 / 16, -2 / 256]]


@pytest.mark.parametrize(("hidden", "heads"), [(256, 4), (512, 8), (100, 2), (64, 1), (40, 1), (97, 1)])
def test_the_number_of_heads_divides_the_width(hidden: int, heads: int) -> None:
    assert TransformerConfig(hidden=hidden).num_heads == heads
