"""Numbers about labels, whatever was labelled: worked by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.tasks.label_metrics import calibration_error, class_numbers, confusions


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=20))
def test_macro_f1_is_that_of_scikit_learn(rows: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    given_labels, wanted = [one for one, _ in rows], [other for _, other in rows]
    found = class_numbers(given_labels, wanted, np.full(len(rows), 0.5))
    assert found["f1"] == pytest.approx(metrics.f1_score(wanted, given_labels, average="macro", zero_division=0))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(wanted, given_labels))


def test_confidence_that_is_right_as_often_as_it_says_is_calibrated() -> None:
    confidence = np.array([0.75] * 4 + [1.0] * 2)
    assert calibration_error(confidence, np.array([1, 1, 1, 0, 1, 1])) == pytest.approx(0.0)
    # four at 0.75 all wrong: a gap of 0.75 on 4 of 6
    assert calibration_error(confidence, np.array([0, 0, 0, 0, 1, 1])) == pytest.approx(0.5)


def test_confusions_have_the_right_label_downwards() -> None:
    labels, table = confusions(["A", "B", "A"], ["A", "A", "B"])
    assert labels == ["A", "B"]
    assert table == [[1, 1], [1, 0]]
