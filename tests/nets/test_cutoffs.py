"""Cut-offs of an adaptive softmax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.nets.cutoffs import MAX_COST_RATIO, choose_cutoffs, cluster_width, multiply_adds


def zipf(words: int) -> np.ndarray:
    return 1e7 / np.arange(1, words + 1)


def work(counts: np.ndarray, cutoffs: tuple[int, ...], features: int, shrink: float) -> float:
    covered = np.concatenate([[0], np.cumsum(-np.sort(-counts))]) / counts.sum()
    return float(multiply_adds(np.array(cutoffs[0]), np.array(cutoffs[1]), len(counts), covered, features, shrink))


def test_work_is_the_head_and_the_clusters_as_often_as_they_are_reached() -> None:
    # 8 words, half of the text in the first two, a quarter each in the next two and the last four; 16 features.
    counts = np.array([2, 2, 1, 1, 0.5, 0.5, 0.5, 0.5])
    head = 16 * (2 + 2)
    first = 0.25 * (16 * 4 + 4 * 2)
    second = 0.25 * (16 * 1 + 1 * 4)
    assert work(counts, (2, 4), 16, 4.0) == pytest.approx(head + first + second)
    tied = head + 0.25 * 16 * 2 + 0.25 * 16 * 4  # no narrower space, so no way into it
    assert work(counts, (2, 4), 16, 1.0) == pytest.approx(tied)


@pytest.mark.parametrize("words", [10_000, 33_278, 60_000])
def test_the_head_is_larger_than_the_cheapest_but_the_work_stays_small(words: int) -> None:
    counts = zipf(words)
    cutoffs = choose_cutoffs(counts, 512, shrink=4.0)
    assert 500 <= cutoffs[0] < cutoffs[1] < words
    assert work(counts, cutoffs, 512, 4.0) < 0.13 * words * 512
    cheapest = min(
        work(counts, (first, second), 512, 4.0) for first in (100, 200, 400) for second in (1000, 2000, 4000)
    )
    assert cheapest < work(counts, cutoffs, 512, 4.0) <= MAX_COST_RATIO * cheapest * 1.01


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=300),
    st.integers(1, 600),
    st.sampled_from([1.0, 1.5, 2.0, 4.0, 100.0]),
)
def test_whatever_the_counts_the_cutoffs_are_ranks_that_rise(counts: list[int], features: int, shrink: float) -> None:
    cutoffs = choose_cutoffs(np.array(counts), features, shrink=shrink)
    assert len(cutoffs) in (0, 2)
    assert all(low < high for low, high in zip((0, *cutoffs), (*cutoffs, len(counts)), strict=True))


def test_a_cluster_is_never_without_width() -> None:
    assert [cluster_width(512, index, 4.0) for index in range(2)] == [128, 32]
    assert cluster_width(3, 1, 4.0) == 1
