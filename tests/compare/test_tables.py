"""Numbers worked by hand on texts of a few tokens; the bootstrap against one written as its definition says it."""

from __future__ import annotations

import numpy as np
import pytest

from elman.compare import tables
from elman.text.units.vocabulary import EOS_ID, UNK_ID

# three lines: "a b </s>", "<unk> </s>", "a a a c </s>"
IDS = np.array([2, 3, EOS_ID, UNK_ID, EOS_ID, 2, 2, 2, 4, EOS_ID])
ONE = np.arange(10, dtype=np.float32)
TWO = np.full(10, 4.0, dtype=np.float32)


def test_words_are_told_apart_by_how_often_they_are_in_the_training_text() -> None:
    counts = np.array([50, 500, 10, 11, 3])  # <unk> </s> a b c
    found = tables.by_frequency({"one": ONE, "two": TWO}, IDS, counts)
    assert [(row["from"], row["to"], row["tokens"]) for row in found] == [
        (0, 0, 1),
        (1, 10, 5),
        (11, 100, 1),
        (101, 1000, 3),
    ]
    assert found[0]["nats"] == {"one": 3.0, "two": 4.0}  # the unknown word, though <unk> is in the text 50 times
    assert found[1]["nats"]["one"] == (0 + 5 + 6 + 7 + 8) / 5  # a and c: 10 is in the first bin
    assert found[2]["nats"]["one"] == 1.0
    assert found[3]["nats"]["one"] == (2 + 4 + 9) / 3


def test_places_are_counted_from_the_beginning_of_the_line() -> None:
    found = tables.by_position({"one": ONE}, IDS)
    assert [(row["from"], row["to"], row["tokens"]) for row in found] == [(1, 1, 3), (2, 2, 3), (3, 5, 4)]
    assert [row["nats"]["one"] for row in found] == [(0 + 3 + 5) / 3, (1 + 4 + 6) / 3, (2 + 7 + 8 + 9) / 4]


def test_every_token_is_in_one_bin() -> None:
    rng = np.random.default_rng(0)
    ids = np.append(rng.integers(0, 50, 4000), EOS_ID)
    nats = {"one": rng.random(4001).astype(np.float32)}
    for found in (tables.by_position(nats, ids), tables.by_frequency(nats, ids, rng.integers(0, 5000, 50))):
        assert sum(row["tokens"] for row in found) == 4001
        total = sum(row["tokens"] * row["nats"]["one"] for row in found)
        assert total == pytest.approx(nats["one"].sum(dtype=np.float64))


def test_a_line_is_shown_for_the_model_that_likes_it_most() -> None:
    found = tables.telling_lines({"one": ONE, "two": TWO, "three": TWO + 1}, IDS)
    # the second line is too short, and the first has three tokens: only the last has enough
    assert [(line, row["best"]) for line, row in found] == [(2, "two")]
    assert found[0][1]["nats"] == {"one": 7.0, "two": 4.0, "three": 5.0}


def test_the_largest_lead_comes_first() -> None:
    ids = np.tile([2, 3, 4, EOS_ID], 5)
    one, two = np.ones(20, dtype=np.float32), np.ones(20, dtype=np.float32)
    two[[4, 8, 12]] = (5, 9, 1)  # the first model leads by 1 nat on line 1, by 2 on line 2
    one[16] = 2.0  # the second leads on line 4
    found = tables.telling_lines({"one": one, "two": two}, ids)
    assert [(line, row["best"]) for line, row in found] == [(2, "one"), (1, "one"), (4, "two")]


def _lines(seed: int, shift: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Sixty lines that are hard or easy for both models; the second is better by `shift`, give or take."""
    rng = np.random.default_rng(seed)
    ids = np.tile([2, 3, EOS_ID], 60)
    hard = np.repeat(rng.normal(5, 2, 60), 3)
    return {"a": hard, "b": hard - shift + np.repeat(rng.normal(0, 0.3, 60), 3)}, ids


def test_a_difference_that_every_line_shows_is_sure_however_much_lines_differ() -> None:
    nats, ids = _lines(1, shift=0.3)
    (found,) = tables.differences(nats, ids, seed=1)
    assert (found["a"], found["b"], found["significant"]) == ("a", "b", True)
    assert found["ratio"] == pytest.approx(np.exp(nats["a"].mean() - nats["b"].mean()))
    assert 1.0 < found["low"] < found["ratio"] < found["high"]


def test_a_difference_of_chance_is_not_sure() -> None:
    nats, ids = _lines(2, shift=0.0)
    (found,) = tables.differences(nats, ids, seed=1)
    assert not found["significant"]
    assert found["low"] < 1.0 < found["high"]


def test_the_interval_is_that_of_drawing_lines_and_is_the_same_for_a_seed() -> None:
    nats, ids = _lines(3, shift=0.1)
    lines = {name: column.reshape(60, 3).sum(axis=1) for name, column in nats.items()}
    rng = np.random.default_rng(99)
    drawn = []
    for _ in range(4000):
        which = rng.integers(0, 60, 60)
        drawn.append((lines["a"][which].sum() - lines["b"][which].sum()) / 180)
    (found,) = tables.differences(nats, ids, seed=1)
    assert [found["low"], found["high"]] == pytest.approx(np.exp(np.quantile(drawn, [0.025, 0.975])), rel=0.01)
    assert tables.differences(nats, ids, seed=1) == [found]
    assert tables.differences(nats, ids, seed=2) != [found]


def test_a_few_lines_say_nothing_for_sure() -> None:
    (found,) = tables.differences({"a": TWO, "b": TWO + 9}, IDS, seed=1)
    assert (found["low"], found["high"], found["significant"]) == (None, None, False)


def test_one_model_alone_differs_from_none() -> None:
    assert tables.differences({"a": ONE}, IDS, seed=1) == []
    assert tables.telling_lines({"a": ONE}, IDS) == []
