"""A validation file that is a training file too is told of, whatever is trained, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import elman

DATA = {
    "lm": "the cat sat\na dog ran\n" * 10,
    "tag": "a X\nb Y\n\n" * 10,
    "classify": "x\tthe cat\ny\ta dog\n" * 10,
    "seq2seq": "a b\tb a\nc d\td c\n" * 10,
}


@pytest.mark.parametrize("task", DATA)
def test_it_is_said_once(task: str, tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text(DATA[task])
    (tmp_path / "other.tsv").write_text(DATA[task] * 2)
    said: list[str] = []
    model = elman.train(
        task,
        tmp_path / "data.tsv",
        valid=tmp_path / "data.tsv",
        epochs=1,
        settings={"model.hidden": 4},
        report=said.append,
        model="gru",
    )
    assert sum("learned by heart" in sentence for sentence in said) == 1
    assert any("learned by heart" in note for note in model.record.notes)
    said.clear()
    elman.train(
        task,
        tmp_path / "data.tsv",
        valid=tmp_path / "other.tsv",
        epochs=1,
        settings={"model.hidden": 4},
        report=said.append,
        model="gru",
    )
    assert not any("learned by heart" in sentence for sentence in said)


def test_texts_from_python_are_told_apart() -> None:
    """All of them have one name: other validation texts were said to be training text too."""
    said: list[str] = []
    texts, others = ["the cat sat", "a dog ran"] * 10, ["the dog sat", "a cat ran"] * 10
    elman.train("lm", elman.texts(texts), valid=elman.texts(others), model="mkn", report=said.append)
    assert not any("learned by heart" in sentence for sentence in said)
    elman.train("lm", elman.texts(texts), valid=elman.texts(texts), model="mkn", report=said.append)
    assert sum("learned by heart" in sentence for sentence in said) == 1
