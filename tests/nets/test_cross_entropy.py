"""The chunked cross-entropy against the plain one, which is PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elman.nets import cross_entropy as module
from elman.nets.cross_entropy import cross_entropy, target_log_probs


def problem(rows: int, words: int, features: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shapes = [(rows, features), (words, features), (words,)]
    values = [torch.randn(shape, generator=rng, dtype=dtype).requires_grad_() for shape in shapes]
    return [*values, torch.randint(words, (rows,), generator=rng)]


def plain(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: float, divisor: int) -> Tensor:
    return F.cross_entropy(F.linear(features, weight, bias) * scale, targets, reduction="sum") / divisor


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that a small problem has many chunks, the last of them odd."""
    for name, value in {"MIN_ROWS": 4, "MAX_ROWS": 4, "CACHE_LINE": 2}.items():
        monkeypatch.setattr(module, name, value)
    yield


@given(
    rows=st.integers(1, 40),
    words=st.integers(1, 9),
    features=st.integers(1, 5),
    scale=st.floats(0.3, 3),
    chunk=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_value_and_gradients_are_those_of_the_plain_way(
    rows: int, words: int, features: int, scale: float, chunk: int, seed: int
) -> None:
    given_tensors = problem(rows, words, features, seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_ROWS": chunk, "MAX_ROWS": chunk, "CACHE_LINE": 2}.items():
            patch.setattr(module, name, value)
        loss, nats = cross_entropy(*given_tensors, scale=scale, divisor=rows)
    found = torch.autograd.grad(loss * 3, given_tensors[:3])  # the factor: gradients from above are not always 1
    expected_loss = plain(*given_tensors, scale, rows)
    expected = torch.autograd.grad(expected_loss * 3, given_tensors[:3])
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(nats.sum() / rows, expected_loss)
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("small_chunks")
def test_gradients_are_the_slopes_of_the_loss() -> None:
    """gradcheck would take the gradient several times, which cannot be done; so along directions, by hand."""
    *tensors, targets = problem(11, 5, 3)
    *directions, _ = problem(11, 5, 3, seed=1)
    loss = cross_entropy(*tensors, targets, scale=0.7, divisor=11)[0]
    grads = torch.autograd.grad(loss, tensors)
    with torch.no_grad():
        for place, (grad, direction) in enumerate(zip(grads, directions, strict=True)):

            def at(step: float, place: int = place, direction: Tensor = direction) -> Tensor:
                moved = [t + step * direction if i == place else t for i, t in enumerate(tensors)]
                return cross_entropy(*moved, targets, scale=0.7, divisor=11)[0]

            slope = (at(1e-6) - at(-1e-6)) / 2e-6
            torch.testing.assert_close((grad * direction).sum(), slope, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("small_chunks")
def test_without_gradients_the_loss_is_the_same() -> None:
    tensors = problem(11, 5, 3)
    loss, nats = cross_entropy(*tensors, scale=1.0, divisor=11)
    with torch.no_grad():
        again, again_nats = cross_entropy(*tensors, scale=1.0, divisor=11)
    assert not again.requires_grad
    torch.testing.assert_close(again, loss.detach())
    torch.testing.assert_close(again_nats, nats)


def test_a_probability_too_small_for_a_float_keeps_its_logarithm() -> None:
    """softmax gives 0 for a word 200 nats away, whose logarithm would be -inf: it is taken from the logits instead."""
    features = torch.tensor([[1.0], [1.0]], requires_grad=True)
    weight = torch.tensor([[0.0], [200.0], [75.0]])
    nats = cross_entropy(features, weight, torch.zeros(3), torch.tensor([0, 2]), scale=1.0, divisor=1)[1]
    torch.testing.assert_close(nats, torch.tensor([200.0, 125.0]))
    scored = target_log_probs(features, weight, torch.zeros(3), torch.tensor([0, 2]), scale=1.0)
    torch.testing.assert_close(scored, torch.tensor([-200.0, -125.0]))


def test_only_what_needs_a_gradient_gets_one() -> None:
    features, weight, bias, targets = problem(6, 5, 3)
    loss, _ = cross_entropy(features.detach(), weight, bias.detach(), targets, scale=1.0, divisor=6)
    loss.backward()
    expected = torch.autograd.grad(plain(features, weight, bias, targets, 1.0, 6), weight)[0]
    torch.testing.assert_close(weight.grad, expected)
    assert features.grad is None
    assert bias.grad is None


def test_the_gradient_is_handed_on_without_a_copy_and_so_only_once() -> None:
    features, weight, bias, targets = problem(6, 5, 3)
    loss, _ = cross_entropy(features, weight, bias, targets, scale=1.0, divisor=6)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()


@given(rows=st.integers(0, 20_000), words=st.integers(1, 10_000_000))
def test_chunks_cover_every_row_once_and_are_of_one_size_but_for_the_last(rows: int, words: int) -> None:
    chunks = module._chunks(rows, words)
    assert [row for first, last in chunks for row in (first, last)][1:-1:2] == [first for first, _ in chunks[1:]]
    assert sum(last - first for first, last in chunks) == rows
    assert len({last - first for first, last in chunks[:-1]}) <= 1
    assert all(last - first <= module.MAX_ROWS + module.CACHE_LINE for first, last in chunks)


def test_no_rows_have_no_scores() -> None:
    _, weight, bias, _ = problem(1, 5, 3)
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert target_log_probs(empty, weight, bias, torch.zeros(0, dtype=torch.int64), scale=1.0).shape == (0,)
