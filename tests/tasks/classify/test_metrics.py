"""Numbers about sets of labels and about numbers, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from elman.tasks.classify.metrics import number_numbers, set_numbers


def test_sets_of_labels() -> None:
    found = set_numbers([{"a"}, {"a", "b"}, set()], [{"a"}, {"a"}, {"b"}])
    assert found["accuracy"] == pytest.approx(1 / 3)
    assert found["micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert found["f1"] == pytest.approx((1.0 + 0.0) / 2)


def test_errors_of_numbers() -> None:
    found = number_numbers(np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 5.0]))
    assert found["mae"] == pytest.approx(1 / 3)
    assert found["r2"] == pytest.approx(1 - 1 / 8)
    assert number_numbers(np.array([1.0]), np.array([1.0]))["r2"] is None
