"""Labels that a model cannot know: the error names the task that the file is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from elman.core.errors import DataError
from elman.tasks.strange import refuse_strange

SENTENCES = "the\tD\ncat\tN\nsat\tV\n\n" * 9


def test_nearly_all_labels_unknown_is_an_error_that_names_the_task_of_the_file(tmp_path: Path) -> None:
    """A classifier that was given words and their tags said only that it did not know the labels."""
    path = tmp_path / "words"
    path.write_text(SENTENCES)
    with pytest.raises(DataError, match="19 of 20 labels are none that this model knows") as caught:
        refuse_strange("labels", ["the"] * 19, 20, [path], task="classify", hint="columns are chosen in training")
    assert caught.value.hint is not None
    assert "data for elman train tag" in caught.value.hint


def test_a_file_of_the_same_task_has_other_labels(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text(SENTENCES)
    with pytest.raises(DataError) as caught:
        refuse_strange("tags", ["D"] * 20, 20, [path], task="tag", hint="data.column is chosen in training")
    assert caught.value.hint == "is this data for another task or model? data.column is chosen in training"


def test_a_few_unknown_labels_are_no_error() -> None:
    refuse_strange("labels", ["new"] * 18, 20, [], task="classify", hint="")
