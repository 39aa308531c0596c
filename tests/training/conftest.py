"""Trainings in tests are small: how fast the machine could be is not measured before each of them."""

from __future__ import annotations

import pytest

from elman.training import loop as trainer_module


@pytest.fixture(autouse=True)
def known_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "measure_peak", lambda **_: 1e11)
