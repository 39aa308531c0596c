"""Attention worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from elman.core.errors import UsageError
from elman.nets.attention import Attention
from elman.nets.config import Score

# Two positions of width two, and one query.
MEMORY = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
QUERY = torch.tensor([[[1.0, 1.0]]], dtype=torch.float64)
LENGTHS = torch.tensor([2])


def attend(score: Score, **weights: Tensor) -> tuple[list[float], list[float]]:
    attention = Attention(score, query=2, memory=2, inner=2, dtype=torch.float64)
    with torch.no_grad():
        for name, value in weights.items():
            getattr(attention, name).copy_(value)
    context, shares = attention(QUERY, MEMORY, LENGTHS, attention.keys(MEMORY))
    return shares[0, 0].tolist(), context[0, 0].tolist()


def softmax(first: float, second: float) -> list[float]:
    total = math.exp(first) + math.exp(second)
    return [math.exp(first) / total, math.exp(second) / total]


def test_dot_by_hand() -> None:
    """(1, 1)·(1, 0) = 1 and (1, 1)·(0, 2) = 2: weights e/(e + e²) = .2689 and .7311; context (.2689, 1.4621)."""
    shares, context = attend("dot")
    assert shares == pytest.approx([0.2689414, 0.7310586], abs=1e-7)
    assert context == pytest.approx([0.2689414, 1.4621172], abs=1e-7)


def test_scaled_by_hand() -> None:
    shares, _ = attend("scaled")
    assert shares == pytest.approx(softmax(1 / math.sqrt(2), 2 / math.sqrt(2)))


def test_bilinear_by_hand() -> None:
    """W = ((1, 2), (3, 4)): s W = (4, 6), so the energies are 4 and 12."""
    shares, _ = attend("bilinear", weight=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert shares == pytest.approx(softmax(4, 12))


def test_additive_by_hand() -> None:
    """W s = (2, 0), U h = (1, 1) and (0, 2); v·tanh of their sums: tanh 3 - tanh 1 and tanh 2 - tanh 2 = 0."""
    shares, _ = attend(
        "additive",
        weight_query=torch.tensor([[1.0, 1.0], [1.0, -1.0]]),
        weight_memory=torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
        vector=torch.tensor([1.0, -1.0]),
    )
    assert shares == pytest.approx(softmax(math.tanh(3) - math.tanh(1), 0))


def test_what_is_padding_gets_nothing() -> None:
    attention = Attention("dot", query=2, memory=2, inner=2, dtype=torch.float64)
    context, shares = attention(QUERY, MEMORY, torch.tensor([1]), ())
    assert shares[0, 0].tolist() == [1.0, 0.0]
    assert context[0, 0].tolist() == [1.0, 0.0]


def test_vectors_of_two_widths_have_no_dot_product() -> None:
    with pytest.raises(UsageError, match="one width"):
        Attention("dot", query=2, memory=3, inner=2, dtype=torch.float64)
