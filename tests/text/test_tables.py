"""Rows of two sides."""

from __future__ import annotations

from elman.text.tables import Pairs


def test_rows_of_one_source_are_its_references() -> None:
    pairs = Pairs(["a", "b", "a", "b"], ["x", "y", "z", "y"])
    assert pairs.by_source() == (["a", "b"], [["x", "z"], ["y"]])
