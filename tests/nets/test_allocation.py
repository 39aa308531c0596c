"""A net that cannot be trained in the memory there is, is refused before its weights are allocated."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Linear

from elman.core.errors import UsageError
from elman.nets import allocation
from elman.nets.allocation import LimitedMemory


def test_a_net_is_refused_when_its_copies_exceed_the_memory_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = (1000 * 500 + 500) * 4  # bytes, of float32
    monkeypatch.setattr(allocation, "free_memory", lambda: 4 * weights)
    with LimitedMemory(4):
        net = Linear(1000, 500)
    assert net.weight.device.type == "cpu"
    monkeypatch.setattr(allocation, "free_memory", lambda: 4 * weights - 1)
    with pytest.raises(UsageError, match="needs at least"), LimitedMemory(4):
        Linear(1000, 500)


def test_nothing_of_what_is_too_large_is_allocated() -> None:
    with pytest.raises(UsageError, match=r"needs at least 4.0 TB of memory to be trained"), LimitedMemory(1):
        torch.empty(1_000_000, 1_000_000)


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "free_memory", lambda: None)
    with LimitedMemory(10**9):
        assert torch.ones(3).sum() == 3
