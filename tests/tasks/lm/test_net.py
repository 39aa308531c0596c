"""What all nets do alike: the loss is what `score` says, states carry on exactly, noise stays in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elman.core.errors import DataError, UsageError
from elman.lm.protocol import leaves, score_by_steps
from elman.nets import neural_lm as neural
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.tasks.lm.families.window import WindowConfig
from elman.tasks.lm.families.window_net import WindowModel
from elman.tasks.lm.net import NeuralModel
from elman.text.units.vocabulary import EOS_ID
from tests.tasks.lm.zoo import NAMES, build


def texts(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(6, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def shifted(targets: Tensor) -> Tensor:
    """What is read before each target: the end of a line, then the targets but the last."""
    return torch.cat([torch.full((len(targets), 1), EOS_ID), targets[:, :-1]], dim=1)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_what_score_says(name: str) -> None:
    model = build(name).eval()
    targets = texts(3, 8)
    loss, _ = model.loss(shifted(targets), targets, None, model.start_training(3))
    scored, _ = model.score(targets.numpy(), np.full(3, 8), model.start(3))
    assert float(loss.nats) == pytest.approx(-scored.sum(dtype=np.float64), rel=1e-6)
    assert loss.nats.dtype == torch.float64
    assert loss.tokens == 24
    assert loss.total.item() == pytest.approx(float(loss.nats) / 24, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_a_batch_are_read_alone_and_padding_costs_nothing(name: str) -> None:
    model = build(name).eval()
    targets = texts(3, 8)
    lengths = np.array([8, 1, 5])
    for filler in (0, 4):
        padded = torch.where(torch.arange(8) < torch.from_numpy(lengths)[:, None], targets, filler)
        loss, carried = model.loss(shifted(padded), padded, torch.from_numpy(lengths), model.start_training(3))
        scored, _ = model.score(targets.numpy(), lengths, model.start(3))
        assert loss.tokens == 14
        assert float(loss.nats) == pytest.approx(-scored.sum(dtype=np.float64), rel=1e-6)
        for found, expected in zip(carried, model.start_training(3), strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_cut_into_steps_has_the_same_loss_and_carries_no_gradient(name: str) -> None:
    model = build(name).eval()
    targets = texts(2, 12)
    inputs = shifted(targets)
    whole, _ = model.loss(inputs, targets, None, model.start_training(2))
    state, nats = model.start_training(2), 0.0
    for cut in (slice(0, 5), slice(5, 6), slice(6, 12)):
        loss, state = model.loss(inputs[:, cut], targets[:, cut], None, state)
        nats += float(loss.nats)
        assert not any(leaf.requires_grad for leaf in leaves(state))
        assert all(len(leaf) == 2 for leaf in leaves(state))
    assert nats == pytest.approx(float(whole.nats), rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_the_loss_are_its_slopes(name: str) -> None:
    """Along one direction through all parameters at once, noise frozen by its seed."""
    model = build(name)
    targets = texts(3, 5)
    lengths = torch.tensor([5, 3, 4])

    def loss() -> Tensor:
        torch.manual_seed(1)
        return model.loss(shifted(targets), targets, lengths, model.start_training(3))[0].total

    loss().backward()
    rng = torch.Generator().manual_seed(2)
    directions = [torch.randn(p.shape, generator=rng, dtype=p.dtype) for p in model.parameters()]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    expected = sum((grad * direction).sum() for grad, direction in zip(grads, directions, strict=True))
    step = 1e-6
    with torch.no_grad():
        values = []
        for sign in (1, -2):
            for parameter, direction in zip(model.parameters(), directions, strict=True):
                parameter.add_(direction, alpha=sign * step)
            values.append(loss())
    assert float((values[0] - values[1]) / (2 * step)) == pytest.approx(float(expected), rel=1e-5, abs=1e-8)


@given(
    name=st.sampled_from(["lstm", "gru", "adaptive", "learned start", "window"]),
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=7),
    at_once=st.integers(1, 40),
)
def test_however_ragged_the_rows_and_small_the_pieces_scores_are_those_of_single_steps(
    name: str, lengths: list[int], at_once: int
) -> None:
    model = build(name)
    tokens = texts(len(lengths), 20).numpy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural, "SCORE_TOKENS", at_once)
        scored, state = model.score(tokens, np.array(lengths), model.start(len(lengths)))
    expected, expected_state = score_by_steps(model, tokens, np.array(lengths), model.start(len(lengths)))
    np.testing.assert_allclose(scored, expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(state), model.predict(expected_state), atol=1e-6)


@pytest.mark.parametrize("name", ["noisy", "window vectors"])
def test_noise_is_in_training_only(name: str) -> None:
    model = build(name)
    targets = texts(4, 9)

    def nats() -> float:
        return float(model.loss(shifted(targets), targets, None, model.start_training(4))[0].nats)

    torch.manual_seed(0)
    assert len({nats() for _ in range(3)}) == 3
    before = torch.get_rng_state()
    scored, _ = model.score(targets.numpy(), np.full(4, 9), model.start(4))  # although the module is in training
    assert model.training
    model.eval()
    assert nats() == pytest.approx(-scored.sum(dtype=np.float64), rel=1e-6)
    assert torch.equal(torch.get_rng_state(), before)


def test_equal_seeds_make_equal_noise() -> None:
    model = build("noisy")
    targets = texts(4, 9)
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        losses.append(model.loss(shifted(targets), targets, None, model.start_training(4))[0].total.item())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_state_holds_only_its_own_memory(name: str) -> None:
    """A view of the last step would keep the whole text's activations alive in every session."""
    model = build(name)
    _, state = model.score(texts(2, 50).numpy(), np.array([50, 30]), model.start(2))
    for kept in (state, model.advance(np.array([1, 2]), state)):
        for leaf in leaves(kept):
            assert leaf.untyped_storage().nbytes() <= leaf.nbytes + 64 * leaf.element_size()
            assert not leaf.requires_grad


@pytest.mark.parametrize("name", ["lstm", "adaptive, tied", "frozen vectors", "learned start", "window"])
def test_tensors_that_do_not_fit_are_refused_by_name(name: str) -> None:
    model = build(name)
    good = model.tensors()

    def load(tensors: dict[str, Any]) -> NeuralModel[Any]:
        return type(model).from_tensors(model.config, tensors, vocab_size=6, reset_lines=False)

    load(good)
    for key in good:
        with pytest.raises(DataError, match=rf"{key} is missing"):
            load({name: array for name, array in good.items() if name != key})
    with pytest.raises(DataError, match=r"extra is not part of this model"):
        load({**good, "extra": np.zeros(3)})
    with pytest.raises(DataError, match=r"head.bias has shape \(9,\), not"):
        load({**good, "head.bias": np.zeros(9)})


def test_tied_words_are_saved_once_and_stay_tied() -> None:
    for name in ("tied", "adaptive, tied"):
        model = build(name)
        again = type(model).from_tensors(model.config, model.tensors(), vocab_size=6, reset_lines=False)
        for net in (model, again):
            matrices = [array for array in net.tensors().values() if array.shape == (6, 5)]
            assert len(matrices) == 1
        assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())


def test_frozen_vectors_are_no_parameter_but_are_saved() -> None:
    model = build("frozen vectors")
    assert "embedding.weight" not in dict(model.named_parameters())
    np.testing.assert_array_equal(model.tensors()["embedding.weight"][2], [1, 1])
    assert model.config.embedding == 2


def test_vectors_of_another_width_are_refused() -> None:
    config = RecurrentConfig(hidden=4, embedding=7, vectors="some.txt")
    with pytest.raises(UsageError, match="have 2 dimensions, the settings ask for 7"):
        RecurrentModel(config, NetInputs(3, vectors=np.zeros((3, 2))), reset_lines=False)


def test_a_learned_start_gets_its_gradient_from_rows_that_begin() -> None:
    model = build("learned start")
    assert isinstance(model, RecurrentModel)
    targets = texts(2, 4)
    inputs = shifted(targets)
    loss, state = model.loss(inputs, targets, None, model.start_training(2))
    loss.total.backward()
    assert model.initial.grad is not None
    assert model.initial.grad.abs().min() > 0
    model.initial.grad = None
    model.loss(inputs, targets, None, state)[0].total.backward()
    assert model.initial.grad is None or not model.initial.grad.any()


def test_penalties_are_of_large_and_of_changing_outputs() -> None:
    """AR and TAR (Merity et al. 2017), on outputs known because nothing is dropped."""
    options = {"activation_penalty": 2.0, "temporal_penalty": 3.0}
    plain = RecurrentModel(
        RecurrentConfig(hidden=4), NetInputs(6, rng=torch.Generator().manual_seed(0)), reset_lines=False
    )
    model = RecurrentModel.from_tensors(
        RecurrentConfig(hidden=4, **options), plain.tensors(), vocab_size=6, reset_lines=False
    )
    targets = texts(3, 7)
    with_penalty, _ = model.loss(shifted(targets), targets, None, model.start_training(3))
    without, _ = plain.loss(shifted(targets), targets, None, plain.start_training(3))
    outputs = plain._read(shifted(targets).t(), plain.start_training(3), is_noisy=False).features
    expected = 2 * outputs.square().mean() + 3 * (outputs[1:] - outputs[:-1]).square().sum() / outputs.numel()
    torch.testing.assert_close(with_penalty.total - without.total, expected)
    assert with_penalty.nats == without.nats
    model.eval()
    torch.testing.assert_close(
        model.loss(shifted(targets), targets, None, model.start_training(3))[0].total, without.total
    )


def test_padding_pays_no_penalty() -> None:
    model = build("noisy")
    targets = texts(2, 6)
    totals = []
    for filler in (0, 4):
        padded = torch.where(torch.arange(6) < torch.tensor([[6], [2]]), targets, filler)
        torch.manual_seed(0)
        loss, _ = model.loss(shifted(padded), padded, torch.tensor([6, 2]), model.start_training(2))
        totals.append(loss.total.item())
    assert totals[0] == pytest.approx(totals[1], rel=1e-12)


@pytest.mark.parametrize(
    ("config", "work"),
    [
        (RecurrentConfig(hidden=8), 4 * 8 * (8 + 8) + 8 * 50),
        (RecurrentConfig(family="gru", hidden=8, embedding=4, layers=2), 3 * 8 * (4 + 8) + 3 * 8 * 16 + 8 * 50),
        (RecurrentConfig(family="rnn", hidden=8, embedding=4, tied=True), 8 * 12 + 8 * 4 + 4 * 50),
        (WindowConfig(window=3, hidden=8, embedding=4), 3 * 4 * 8 + 8 * 50),
        (WindowConfig(window=3, hidden=8, embedding=4, direct=True), 3 * 4 * 8 + (8 + 12) * 50),
    ],
)
def test_work_is_that_of_all_matrices(config: RecurrentConfig | WindowConfig, work: float) -> None:
    kind: Any = RecurrentModel if isinstance(config, RecurrentConfig) else WindowModel
    model = kind(config, NetInputs(50), reset_lines=False)
    assert model.count_flops() == work


def test_the_start_is_the_end_of_a_line() -> None:
    for name in ("lstm", "learned start", "window"):
        model = build(name)
        reading = model._read(torch.tensor([[EOS_ID]]), model.start_training(1), is_noisy=False)
        np.testing.assert_allclose(model.features(model.start(1)), reading.features[0].detach(), rtol=1e-6)


def test_a_window_forgets_what_is_older() -> None:
    model = build("window")  # of three words
    one, two = (
        model.score(np.array([text]), np.array([5]), model.start(1))[1] for text in ([0, 1, 2, 3, 4], [5, 5, 2, 3, 4])
    )
    np.testing.assert_array_equal(model.predict(one), model.predict(two))
    other = model.score(np.array([[0, 1, 5, 3, 4]]), np.array([5]), model.start(1))[1]
    assert np.abs(model.predict(one) - model.predict(other)).max() > 1e-3


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "rnn gated", "window", "adaptive, tied", "highway"])
def test_every_family_learns_a_text_that_repeats(name: str) -> None:
    model = build(name)
    targets = torch.tensor([[2, 3, 3, 4, 5, 1] * 6])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    first = last = 0.0
    for _ in range(100):
        optimiser.zero_grad()
        loss, _ = model.loss(shifted(targets), targets, None, model.start_training(1))
        loss.total.backward()
        optimiser.step()
        last = float(loss.nats) / loss.tokens
        first = first or last
    assert last < 0.1 < first


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("lstm", [1.88902497, 1.79247561, 1.7191766, 1.66182069, 1.61575884]),
        ("gru", [1.7830809, 1.70425204, 1.64383021, 1.59724358, 1.56110473]),
        ("rnn", [2.00567652, 1.82397336, 1.70529966, 1.6119025, 1.52884289]),
        ("window", [1.87107681, 1.57304097, 1.39761278, 1.26425697, 1.15440962]),
    ],
)
def test_a_refactoring_does_not_change_how_a_net_learns(name: str, curve: list[float]) -> None:
    """Losses of five steps of plain descent, by ourselves: whoever means to change them changes these."""
    model = build(name)
    targets = torch.tensor([[2, 3, 3, 4, 5, 1] * 3, [1, 2] * 9])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for _ in range(5):
        optimiser.zero_grad()
        loss, _ = model.loss(shifted(targets), targets, None, model.start_training(2))
        loss.total.backward()
        optimiser.step()
        found.append(loss.total.item())
    assert found == pytest.approx(curve, rel=1e-7)
