"""Rows as batches: every row once a pass, and no two passes alike."""

from __future__ import annotations

import numpy as np

from elman.core.arrays import Array
from elman.text.batches import Position
from elman.text.rows import RowBatches


class Numbers(RowBatches[list[int]]):
    """The numbers of the rows themselves."""

    def rows(self, rows: Array) -> list[int]:
        return [int(row) for row in rows]


def one_pass(data: Numbers, epoch: int) -> list[list[int]]:
    position, found = Position(epoch), []
    while position.epoch == epoch:
        batch, position = data.batch(position)
        found.append(batch)
    return found


def test_rows_come_once_a_pass_and_rows_of_one_length_are_grouped_anew() -> None:
    data = Numbers(np.full(60, 3), np.full(60, 4), tokens=40, seed=1)
    passes = [one_pass(data, epoch) for epoch in (0, 1)]
    for found in passes:
        assert sorted(row for batch in found for row in batch) == list(range(60))
    groups = [{frozenset(batch) for batch in found} for found in passes]
    assert len(groups[0]) == 6 and not groups[0] & groups[1]


def test_batches_come_in_another_order_in_every_pass_and_for_every_seed() -> None:
    """Rows of different lengths, one a batch."""
    lengths = np.arange(1, 40)
    data, other = (Numbers(lengths, lengths, tokens=1, seed=seed) for seed in (1, 2))
    first = one_pass(data, 0)
    assert one_pass(data, 1) != first
    assert one_pass(other, 0) != first
    assert one_pass(data, 0) == first
