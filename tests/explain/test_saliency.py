"""Saliency equals captum's, for language models, classifiers, taggers, readers and translators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import UsageError
from elman.explain import explain
from elman.explain.reading import Reading
from elman.explain.saliency import attributions

TINY = {"model.hidden": 8, "model.embedding": 6}
WORDS = ["the cat sat on the mat", "a dog ran in the park", "the dog sat in a park", "a cat ran on the mat"]


def make_lm(folder: Path, model: str, **settings: Any) -> Any:
    data = folder / "lm.txt"
    data.write_text("\n".join(WORDS * 20) + "\n")
    return elman.train("lm", data, model=model, valid="none", epochs=1, settings=TINY | settings)


def make_classifier(folder: Path) -> Any:
    data = folder / "labels.tsv"
    data.write_text("".join(f"{'cat' if 'cat' in line else 'dog'}\t{line}\n" for line in WORDS * 10))
    return elman.train("classify", data, valid="none", epochs=2, settings=TINY)


def make_tagger(folder: Path) -> Any:
    data = folder / "tags.txt"
    data.write_text(
        "".join("".join(f"{w} {'N' if len(w) == 3 else 'X'}\n" for w in line.split()) + "\n" for line in WORDS * 10)
    )
    return elman.train("tag", data, valid="none", epochs=1, settings=TINY)


def make_translator(folder: Path) -> Any:
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in WORDS * 10))
    return elman.train("seq2seq", data, valid="none", epochs=1, settings=TINY)


def make_reader(folder: Path) -> Any:
    data = folder / "qa.jsonl"
    data.write_text(
        "".join(
            f'{{"context": "The {a} is in the {b}.", "question": "Where is the {a}?", "answer": "{b}"}}\n'
            for a in ("cat", "dog", "cow")
            for b in ("park", "house", "barn")
        )
        * 4
    )
    return elman.train("qa", data, valid="none", epochs=1, settings=TINY)


def shaken(model: Any) -> Any:
    """The same model with large weights drawn by chance, so that every token has a part that can be seen."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in (model.lm if isinstance(model, elman.Model) else model.net).parameters():
            weight.normal_(0, 0.4, generator=rng)
    return model


MODELS = {
    "lstm": (lambda folder: make_lm(folder, "lstm"), WORDS[0]),
    "gru, deep": (lambda folder: make_lm(folder, "gru", **{"model.layers": 2, "model.skip": "residual"}), WORDS[0]),
    "window": (lambda folder: make_lm(folder, "window"), WORDS[0]),
    "transformer": (lambda folder: make_lm(folder, "transformer"), WORDS[0]),
    "classify": (make_classifier, WORDS[1]),
    "tag": (make_tagger, WORDS[2]),
    "seq2seq": (make_translator, WORDS[3]),
    "qa": (make_reader, "The cat is in the barn.\tWhere is the cat?"),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_equals_captum(tmp_path: Path, name: str) -> None:
    captum = pytest.importorskip("captum.attr", reason="pip install captum")
    make, text = MODELS[name]
    reading: Reading = shaken(make(tmp_path)).reading(text)
    rows = np.arange(len(reading.rows))
    words = reading.words().detach().requires_grad_()
    for row in rows[:3].tolist():

        def score(batch: torch.Tensor, row: int = row) -> torch.Tensor:
            return torch.stack([reading.trace(one)[1][row, int(reading.chosen[row])] for one in batch])

        simple = captum.InputXGradient(score).attribute(words[None])[0].sum((1, 2)).detach().numpy()
        ours, _ = attributions(reading, rows, len(words), steps=None)
        np.testing.assert_allclose(ours[row], simple, atol=1e-4)
        assert np.abs(simple).max() > 0.01
        whole = captum.IntegratedGradients(score).attribute(words[None], n_steps=20)[0].sum((1, 2)).detach().numpy()
        ours, _ = attributions(reading, rows, len(words), steps=20)
        np.testing.assert_allclose(ours[row], whole, atol=1e-4)


def test_integrated_parts_add_up_to_what_the_prediction_gains(tmp_path: Path) -> None:
    reading = shaken(make_lm(tmp_path, "lstm")).reading(WORDS[0])
    parts, change = attributions(reading, np.arange(7), 7, steps=50)
    np.testing.assert_allclose(parts.sum(axis=1), change, atol=1e-4)
    assert np.abs(change).max() > 0.01


def test_what_comes_later_has_no_part_in_a_prediction(tmp_path: Path) -> None:
    found = make_lm(tmp_path, "gru").explain(WORDS[0], kind="saliency").data
    for place, row in enumerate(found["rows"]):
        assert not any(row["parts"][place + 1 :]) and any(row["parts"])


def test_a_classifier_shows_its_label_and_an_unknown_word_as_such(tmp_path: Path) -> None:
    model = make_classifier(tmp_path)
    found = model.explain("the zebra sat")
    assert found.kind == "saliency"
    assert [row["answer"] for row in found.data["rows"]] == [model.predict("the zebra sat")]
    assert "zebra (unknown)" in str(found)


def test_one_prediction_can_be_asked_for(tmp_path: Path) -> None:
    model = make_tagger(tmp_path)
    found = model.explain(WORDS[0], kind="saliency", row=2, method="integrated", steps=5)
    assert [row["about"] for row in found.data["rows"]] == ["cat"]
    assert any("add up" in note for note in found.notes)
    with pytest.raises(UsageError, match="no prediction 9"):
        model.explain(WORDS[0], kind="saliency", row=9)
    with pytest.raises(UsageError, match="no words"):
        model.explain("  ", kind="saliency")


def test_a_long_text_is_cut_and_it_is_said(tmp_path: Path) -> None:
    found = make_lm(tmp_path, "rnn").explain("the cat sat " * 20, kind="saliency", tokens=10)
    assert len(found.data["tokens"]) == len(found.data["rows"]) == 10
    assert any("first 10 of 61" in note for note in found.notes)


def test_integrated_gradients_say_how_much_is_done_and_quick_ones_say_nothing(tmp_path: Path) -> None:
    model = make_lm(tmp_path, "rnn")
    shares: list[float] = []
    explain([model], [WORDS[0]], kind="saliency", report=shares.append)
    assert not shares
    explain([model], [WORDS[0]], kind="saliency", options={"method": "integrated", "steps": 5}, report=shares.append)
    assert len(shares) == 5 and shares == sorted(shares) and 0 < shares[0] < shares[-1] < 1
