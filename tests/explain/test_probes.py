"""Probes: sentences whose last word depends on one exactly so far before it."""

from __future__ import annotations

import numpy as np
import pytest

from elman.core.errors import UsageError
from elman.explain import probes

DISTANCES = (1, 2, 5, 13, 20, 50)


def made(name: str, count: int = 40) -> list[probes.Item]:
    return list(probes.items(name, distances=DISTANCES, count=count, rng=np.random.default_rng(1)))


@pytest.mark.parametrize("name", probes.PROBES)
def test_the_word_that_decides_stands_so_far_back(name: str) -> None:
    for item in made(name):
        decisive = item.before.split()[-item.distance]
        if name == "agreement":
            number = [decisive in pair for pair in zip(*probes.Agreement.subjects, strict=True)]
            assert number[item.right] and not number[1 - item.right]
        else:
            assert decisive == item.choices[item.right]


@pytest.mark.parametrize("name", probes.PROBES)
def test_nothing_but_that_word_tells_which_choice_is_right(name: str) -> None:
    """Of everything else in the sentence, the right choice is independent: no choice stands there by itself."""
    for item in made(name):
        words = item.before.split()
        words[-item.distance] = ""
        assert not set(words) & set(item.choices)
    rights = np.array([item.right for item in made(name, 200)])
    shares = np.bincount(rights) / len(rights)
    assert shares == pytest.approx(probes.probe_named(name).chance, abs=0.05)


@pytest.mark.parametrize("name", probes.PROBES)
def test_no_choice_is_the_beginning_of_another(name: str) -> None:
    """Else the shorter one would always be likelier, letter by letter."""
    for choices in {item.choices for item in made(name)}:
        assert not any(a != b and b.startswith(a) for a in choices for b in choices)


@pytest.mark.parametrize("name", probes.PROBES)
def test_lines_to_train_on_are_whole_and_the_same_for_a_seed(name: str) -> None:
    first = list(probes.lines(name, longest=40, count=300, seed=3))
    assert first == list(probes.lines(name, longest=40, count=300, seed=3))
    assert first != list(probes.lines(name, longest=40, count=300, seed=4))
    known = {word for item in made(name) for word in item.line.split()}
    assert {word for line in first for word in line.split()} <= known
    lengths = [len(line.split()) for line in first]
    assert min(lengths) <= 20 and 35 < max(lengths) < 50


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="probe"):
        probes.probe_named("recal")
    with pytest.raises(UsageError, match="begins at a distance of 13"):
        list(probes.lines("recall", longest=5, count=1, seed=1))
