"""Sizes of nets that read texts, and when they have read enough."""

from __future__ import annotations

from typing import Any

from elman.training.plan import Means, Plan
from elman.training.plan_rows import plan_rows


def plan(
    seconds: float, *, enough_passes: float | None = None, num_rows: int = 7000, max_nets: int = 1, **train: Any
) -> Plan:
    return plan_rows(
        Means(seconds, 5e10, {}, train),
        num_rows=num_rows,
        num_tokens=20 * num_rows,
        rows="texts",
        dropout=0.5,
        word_width=200,
        enough_passes=enough_passes,
        max_nets=max_nets,
    )


def test_more_time_makes_wider_nets() -> None:
    widths = [plan(seconds).model["hidden"] for seconds in (10, 60, 300, 3000)]
    assert widths == sorted(widths) and widths[0] == 64 and widths[-1] == 300


def test_nets_are_more_before_they_are_wider() -> None:
    plans = [plan(seconds, enough_passes=8, max_nets=3).model for seconds in (5, 130, 200, 3000)]
    assert [found.get("nets", 1) for found in plans] == [1, 2, 3, 3]
    assert [found["hidden"] for found in plans] == [64, 64, 64, 300]
    assert "nets" not in plan(300, enough_passes=8).model


def test_a_run_ends_when_its_texts_were_read_often_enough() -> None:
    assert plan(300, enough_passes=8).train["epochs"] == 8
    assert "about 8.0 passes" in plan(3000, enough_passes=8).sentences(seconds=3000)[1]
    assert "epochs" not in plan(300).train


def test_few_texts_are_read_more_often() -> None:
    found = plan(300, enough_passes=8, num_rows=100)
    steps = found.train["epochs"] * 100 / found.train["batch"]
    assert found.train["epochs"] > 8 and 990 <= steps <= 1010


def test_the_number_of_passes_is_the_users_where_it_is_given() -> None:
    assert "epochs" not in plan(300, enough_passes=8, epochs=3).train
    assert "epochs" not in plan(300, enough_passes=8, steps=3).train


def test_a_short_run_has_smaller_batches_and_so_enough_steps() -> None:
    short, long = plan(40, num_rows=15_000), plan(3000, num_rows=15_000)
    assert short.train["batch"] < long.train["batch"] == 75
    assert 900 <= short.passes * 15_000 / short.train["batch"] <= 1100
