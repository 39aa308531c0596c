"""Every token is learned once a pass, whatever the shape of the corpus; a position is all there is to remember."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.text import batches
from elman.text.batches import Batch, LineBatches, Position, StreamBatches
from elman.text.units.vocabulary import EOS_ID


def one_pass(data: StreamBatches | LineBatches, epoch: int = 0) -> list[Batch]:
    position, found = Position(epoch), []
    while position.epoch == epoch:
        batch, position = data.batch(position)
        found.append(batch)
    assert position == Position(epoch + 1)
    return found


def corpus(lengths: list[int]) -> np.ndarray:
    """Lines of numbered tokens, all different, so that it can be seen where each of them goes."""
    parts, token = [], 2
    for length in lengths:
        parts.append([*range(token, token + length), EOS_ID])
        token += length
    return np.array([token for part in parts for token in part], dtype=np.int32)


line_lengths = st.lists(st.integers(0, 12), min_size=1, max_size=40)


def test_streams_by_hand() -> None:
    ids = np.array([5, 6, 1, 7, 8, 9, 1, 4, 3, 1], dtype=np.uint16)
    data = StreamBatches(ids, rows=2, bptt=3)
    first, position = data.batch(Position())
    assert first.inputs.tolist() == [[EOS_ID, 5, 6], [8, 9, 1]]
    assert first.targets.tolist() == [[5, 6, 1], [9, 1, 4]]
    assert first.is_start and first.lengths is None and first.num_tokens == 6
    second, position = data.batch(position)  # two tokens are left, too few for a window of their own kind
    assert second.inputs.tolist() == [[1, 7], [4, 3]]
    assert second.targets.tolist() == [[7, 8], [3, 1]]
    assert not second.is_start
    assert position == Position(epoch=1)


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 40), st.sampled_from([0.0, 5.0]))
def test_streams_read_every_token_once_and_in_order(size: int, rows: int, bptt: int, spread: float) -> None:
    ids = np.arange(100, 100 + size)
    data = StreamBatches(ids, rows=rows, bptt=bptt, spread=spread, seed=3)
    found = one_pass(data)
    targets = np.concatenate([batch.targets for batch in found], axis=1)
    inputs = np.concatenate([batch.inputs for batch in found], axis=1)
    assert (np.diff(targets, axis=1) == 1).all()
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    assert (inputs[1:, 0] == targets[1:, 0] - 1).all() and inputs[0, 0] == EOS_ID
    assert len(set(targets.flatten().tolist())) == targets.size == data.tokens_per_epoch
    assert size - targets.size < data.rows
    assert [batch.is_start for batch in found] == [True] + [False] * (len(found) - 1)


def test_a_batch_is_a_function_of_its_position() -> None:
    ids = np.arange(2000)
    data = StreamBatches(ids, rows=4, bptt=20, spread=5.0, seed=1)
    seen, position = [], Position()
    for _ in range(30):
        batch, after = data.batch(position)
        seen.append((position, batch.targets.copy()))
        position = after
    again = StreamBatches(ids, rows=4, bptt=20, spread=5.0, seed=1)
    for position, targets in reversed(seen):
        assert (again.batch(position)[0].targets == targets).all()


def test_a_shorter_window_is_a_smaller_step() -> None:
    data = StreamBatches(np.arange(100_000), rows=8, bptt=70, spread=5.0, seed=1)
    found = one_pass(data)
    lengths = np.array([batch.targets.shape[1] for batch in found])
    assert all(batch.scale == pytest.approx(batch.targets.shape[1] / 70) for batch in found)
    assert lengths.min() >= 5 and 60 < lengths.mean() < 72 and lengths.std() > 3
    other = StreamBatches(np.arange(100_000), rows=8, bptt=70, spread=5.0, seed=2)
    assert [batch.targets.shape for batch in one_pass(other)] != [batch.targets.shape for batch in found]
    assert [batch.targets.shape for batch in one_pass(data, epoch=1)] != [batch.targets.shape for batch in found]


def test_a_corpus_shorter_than_a_batch_shrinks_the_batch_and_says_so() -> None:
    data = StreamBatches(np.arange(100), rows=64, bptt=35)
    assert (data.rows, data.bptt) == (2, 35)
    assert "100 tokens" in data.notes[0] and "2 streams" in data.notes[0]
    tiny = StreamBatches(np.arange(3), rows=64, bptt=35)
    assert (tiny.rows, tiny.bptt) == (1, 3) and "1 stream of 3" in tiny.notes[0]
    assert StreamBatches(np.arange(64 * 35), rows=64, bptt=35).notes == ()
    assert "one batch a pass" in LineBatches(corpus([3, 4]), tokens=1000).notes[0]


def test_an_empty_corpus_is_refused() -> None:
    for make in (lambda ids: StreamBatches(ids, rows=1, bptt=1), lambda ids: LineBatches(ids, tokens=10)):
        with pytest.raises(DataError, match="nothing to train on"):
            make(np.zeros(0, dtype=np.int32))


def lines_of(found: list[Batch]) -> list[list[int]]:
    """The lines that were read, put together from their pieces."""
    rows: list[list[int]] = []
    for batch in found:
        lengths = batch.lengths if batch.lengths is not None else [batch.targets.shape[1]] * len(batch.targets)
        pieces = [row[:length].tolist() for row, length in zip(batch.targets, lengths, strict=True)]
        inputs = [row[:length].tolist() for row, length in zip(batch.inputs, lengths, strict=True)]
        if batch.is_start:
            assert all(line[0] == EOS_ID for line in inputs)
            assert all(line[1:] == piece[:-1] for line, piece in zip(inputs, pieces, strict=True))
            rows += pieces
        else:
            begun = rows[-len(pieces) :]
            assert all(
                line == [before[-1], *piece[:-1]] for before, line, piece in zip(begun, inputs, pieces, strict=True)
            )
            rows[-len(pieces) :] = [before + piece for before, piece in zip(begun, pieces, strict=True)]
    return rows


@given(line_lengths, st.integers(1, 60), st.integers(1, 50), st.booleans())
def test_lines_come_once_a_pass_each_from_its_start(
    lengths: list[int], tokens: int, pool: int, ends_open: bool
) -> None:
    ids = corpus(lengths)
    if ends_open and lengths[-1]:
        ids = ids[:-1]
    wanted = sorted(line.tolist() for line in np.split(ids, np.flatnonzero(ids == EOS_ID) + 1) if len(line))
    data = LineBatches(ids, tokens=tokens, seed=5, pool_tokens=pool)
    for epoch in (0, 1):
        found = one_pass(data, epoch)
        assert sorted(lines_of(found)) == wanted
        assert sum(batch.num_tokens for batch in found) == len(ids) == data.tokens_per_epoch


@given(line_lengths, st.integers(1, 60), st.integers(1, 6))
def test_long_lines_come_in_pieces_that_follow_each_other(lengths: list[int], tokens: int, longest: int) -> None:
    ids = corpus(lengths)
    before = batches.MAX_LINE
    batches.MAX_LINE = longest
    try:
        found = one_pass(LineBatches(ids, tokens=tokens, seed=5))
    finally:
        batches.MAX_LINE = before
    assert max(batch.targets.shape[1] for batch in found) <= longest
    assert all(batch.lengths is None for batch, after in itertools.pairwise(found) if not after.is_start)
    assert sorted(lines_of(found)) == sorted(
        line.tolist() for line in np.split(ids, np.flatnonzero(ids == EOS_ID) + 1) if len(line)
    )


def test_padding_is_end_of_line_in_inputs_and_targets() -> None:
    data = LineBatches(corpus([3, 1, 2]), tokens=100, seed=0)
    (batch,) = one_pass(data)
    assert batch.lengths is not None and batch.lengths.tolist() == [4, 3, 2]
    assert batch.inputs.tolist() == [[1, 2, 3, 4], [1, 6, 7, 1], [1, 5, 1, 1]]
    assert batch.targets.tolist() == [[2, 3, 4, 1], [6, 7, 1, 1], [5, 1, 1, 1]]


def test_lines_of_like_length_share_a_batch_and_little_is_padding() -> None:
    rng = np.random.default_rng(0)
    ids = corpus(rng.integers(1, 60, 2000).tolist())
    found = one_pass(LineBatches(ids, tokens=1000, seed=1))
    cells = sum(batch.targets.size for batch in found)
    assert len(ids) / cells > 0.95
    assert max(batch.targets.size for batch in found) <= 1000


def test_passes_differ_and_seeds_differ_and_equal_ones_are_equal() -> None:
    ids = corpus(np.random.default_rng(0).integers(1, 9, 300).tolist())

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [
            batch.targets[0].tolist()
            for batch in one_pass(LineBatches(ids, tokens=30, seed=seed, pool_tokens=200), epoch)
        ]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def first_tokens(data: LineBatches, epoch: int) -> list[list[int]]:
    """What each batch of a pass begins its lines with: every line has tokens of its own."""
    return [batch.targets[:, 0].tolist() for batch in one_pass(data, epoch)]


def test_lines_of_one_length_are_grouped_anew_in_every_pass() -> None:
    data = LineBatches(corpus([3] * 60), tokens=40, seed=1)
    groups = [{frozenset(group) for group in first_tokens(data, epoch)} for epoch in (0, 1)]
    assert len(groups[0]) == 6 and not groups[0] & groups[1]


def test_batches_come_in_another_order_in_every_pass() -> None:
    """One line a batch, all of them in one pool."""
    data = LineBatches(corpus(list(range(1, 40))), tokens=1, seed=1)
    passes = [first_tokens(data, epoch) for epoch in (0, 1)]
    assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]


def test_pools_come_in_another_order_in_every_pass() -> None:
    """One line a pool, so that within a pool there is nothing to shuffle."""
    data = LineBatches(corpus([4] * 40), tokens=5, seed=1, pool_tokens=5)
    assert data.num_pools == 40
    passes = [first_tokens(data, epoch) for epoch in (0, 1)]
    assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]


def test_the_part_of_a_pass_that_is_done_rises_from_0_to_1() -> None:
    ids = corpus(np.random.default_rng(0).integers(1, 9, 300).tolist())
    for data in (StreamBatches(ids, rows=3, bptt=7), LineBatches(ids, tokens=30, pool_tokens=200)):
        position, seen = Position(), []
        while position.epoch == 0:
            seen.append(data.fraction(position))
            position = data.batch(position)[1]
        assert seen[0] == 0.0 and seen == sorted(seen) and 0.9 < seen[-1] < 1.0
        assert data.fraction(position) == 0.0


@pytest.mark.parametrize("kind", ["streams", "lines"])
def test_resident_memory_does_not_grow_with_the_corpus(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.bin"
    ids = np.memmap(path, dtype=np.int32, mode="w+", shape=(100_000_000,))
    ids[500::10_000] = EOS_ID
    del ids
    mapped = np.memmap(path, dtype=np.int32, mode="r")
    data: StreamBatches | LineBatches = StreamBatches(mapped, rows=64, bptt=2000)
    if kind == "lines":
        data = LineBatches(mapped, tokens=128_000)
    before, most, position = resident(), 0, Position()
    while position.epoch == 0:
        _, position = data.batch(position)
        most = max(most, resident() - before)

    assert most < 200e6  # of 400


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
