"""Families: each is found by its names, and restores what it fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.arrays import Array
from elman.core.settings import make
from elman.counts.scratch import Scratch
from elman.tasks.lm.families import FAMILIES, find_family, restore_model
from elman.tasks.lm.family import CountingFamily, Family, Shape
from elman.text.units.vocabulary import EOS_ID

COUNTING: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("unigram", {}),
    ("bigram", {"smoothing": "ml"}),
    *[("ngram", {"smoothing": name}) for name in ("ml", "add", "interpolated", "witten-bell", "absolute")],
    ("kn", {"order": 3}),
    ("mkn", {"order": 3}),
    ("snm", {"order": 3}),
]


def random_text(num_lines: int = 60) -> Array:
    rng = np.random.default_rng(3)
    lines = [np.append(rng.integers(2, 6, size=rng.integers(1, 9)), EOS_ID) for _ in range(num_lines)]
    return np.concatenate(lines).astype(np.uint16)


@pytest.mark.parametrize("reset_lines", [False, True])
@pytest.mark.parametrize(("name", "settings"), COUNTING, ids=str)
def test_what_was_counted_survives_its_tensors(name: str, settings: dict[str, Any], reset_lines: bool) -> None:
    family, shape = find_family(name), Shape(6, reset_lines)
    assert isinstance(family, CountingFamily)
    config = make(family.record, {"family": name, **settings}, section="model")
    with Scratch() as scratch:
        model = family.fit(
            config, random_text(), shape, heldout_ids=None, scratch=scratch, report=lambda sentence: None
        )
    again = restore_model(config, model.tensors(), shape)
    assert type(again) is type(model)
    state = model.advance(np.array([2, 3]), model.start(2))
    np.testing.assert_array_equal(again.predict(state), model.predict(state))


def test_snm_is_fitted_on_the_training_text_alone_and_the_validation_text_only_judges_it(tmp_path: Path) -> None:
    """Of its thousands of weights, the text that it is measured on must have seen none."""
    rng = np.random.default_rng(0)
    for name, letters in (("train", "abcd"), ("one", "abcd"), ("other", "aaab")):
        lines = [" ".join(rng.choice(list(letters), size=8)) for _ in range(100)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    one, other = (
        elman.train("lm", tmp_path / "train", model="snm", units="space", valid=tmp_path / valid)
        for valid in ("one", "other")
    )
    assert one.record.valid != other.record.valid
    tensors = one.tensors()
    assert other.tensors().keys() == tensors.keys()
    for name, array in other.tensors().items():
        np.testing.assert_array_equal(array, tensors[name])
    assert any(
        note.startswith("adjustment fitted on") and "end of the training text" in note for note in one.record.notes
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
def test_a_family_is_found_by_each_of_its_names_and_by_no_other(family: Family[Any]) -> None:
    assert family.names
    for name in family.names:
        assert find_family(name) is family
