"""Attention maps: rows that sum to one, those of `predict --json`, and what there is where there is no attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import UsageError
from tests.commands import Run
from tests.explain.test_saliency import TINY, WORDS, make_lm, make_reader

PAIRS = "".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in WORDS * 10)


def make_translator(folder: Path, **settings: Any) -> Any:
    data = folder / "pairs.tsv"
    data.write_text(PAIRS)
    more = {f"model.{key}": value for key, value in settings.items()}
    return elman.train("seq2seq", data, valid="none", epochs=1, settings=TINY | more, out=folder / "m", overwrite=True)


@pytest.mark.parametrize("score", ["dot", "scaled", "bilinear", "additive"])
def test_the_map_of_a_translator_is_what_predict_says(tmp_path: Path, score: str) -> None:
    model = make_translator(tmp_path, score=score)
    lines = tmp_path / "lines.txt"
    lines.write_text(WORDS[0] + "\n")
    options = elman.api.PredictOptions(details=True)
    wanted = next(iter(model.predict_lines([lines], options))).as_json()["predictions"][0]
    target = " ".join(wanted["tokens"][:-1])
    found = model.explain(WORDS[0], target=target)
    assert found.kind == "attention" and found.title == "Where m looked"
    shown = found.data["maps"][0]
    assert shown["rows"] == wanted["tokens"] and shown["columns"] == [*WORDS[0].split(), "</s>"]
    np.testing.assert_allclose(shown["weights"], wanted["attention"], atol=2e-4)


def test_rows_sum_to_one_and_a_transformer_shows_every_head(tmp_path: Path) -> None:
    model = make_translator(tmp_path, family="transformer", layers=2, attention_heads=2)
    found = model.explain(WORDS[1], kind="attention")
    names = [one["name"] for one in found.data["maps"]]
    assert len(names) == 1 + 2 * 2 + 2 * 2 and "decoder to source, layer 2, head 1" in names
    for one in found.data["maps"]:
        np.testing.assert_allclose(np.sum(one["weights"], axis=1), 1, atol=2e-3)
    assert len(found.picture["concat"]) == 9


@pytest.mark.parametrize(
    ("context", "name"), [("initial", "ends"), ("every", "ends"), ("fixed", "W_k h_k"), ("all", "W_k h_k")]
)
def test_a_model_without_attention_draws_what_it_has(tmp_path: Path, context: str, name: str) -> None:
    model = make_translator(tmp_path, context=context)
    (one,) = model.explain(WORDS[0], kind="attention").data["maps"]
    assert name in one["name"]
    weights = np.array(one["weights"])
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=2e-3)
    assert (weights == weights[0]).all()  # the same at every step


def test_the_shares_of_a_fixed_sum_are_its_formula(tmp_path: Path) -> None:
    import torch

    model = make_translator(tmp_path, context="fixed")
    pair = model.pair_reading(WORDS[0])
    with torch.no_grad():
        outputs = pair.trace().source.features[:, 0]
        weight = model.net.summary.weight
        width = outputs.shape[1]
        sizes = [float((weight[:, k * width : (k + 1) * width] @ outputs[k]).norm()) for k in range(len(outputs))]
    shown = model.explain(WORDS[0], kind="attention", target="mat the").data["maps"][0]["weights"][0]
    np.testing.assert_allclose(shown, np.array(sizes) / sum(sizes), atol=2e-4)


def test_a_language_model_looks_back_only(tmp_path: Path) -> None:
    model = make_lm(tmp_path, "transformer", **{"model.attention_heads": 2, "model.hidden": 8})
    found = model.explain(WORDS[0], kind="attention")
    for one in found.data["maps"]:
        weights = np.array(one["weights"])
        assert one["rows"][0] == "<s>" and not np.triu(weights, 1).any()
    with pytest.raises(UsageError, match="no map 99"):
        model.explain(WORDS[0], kind="attention", map=99)
    assert len(model.explain(WORDS[0], kind="attention", map=2).data["maps"]) == 1


def test_readers_show_where_they_looked_and_others_are_refused(tmp_path: Path) -> None:
    reader = make_reader(tmp_path)
    (one,) = reader.explain(
        "The cat is in the barn. The dog is in the park.\tWhere is the cat?", kind="attention"
    ).data["maps"]
    assert len(one["columns"]) == 2 and one["rows"][0] == "look 1"
    with pytest.raises(UsageError, match="has no attention"):
        make_lm(tmp_path, "lstm").explain(WORDS[0], kind="attention")


def test_a_classifier_with_attention_shows_the_words_that_counted(tmp_path: Path) -> None:
    data = tmp_path / "labels.tsv"
    data.write_text("".join(f"{'cat' if 'cat' in line else 'dog'}\t{line}\n" for line in WORDS * 10))
    model = elman.train("classify", data, valid="none", epochs=1, settings=TINY | {"model.pool": "attention"})
    (one,) = model.explain(WORDS[0], kind="attention").data["maps"]
    assert one["columns"] == WORDS[0].split() and sum(one["weights"][0]) == pytest.approx(1, abs=2e-3)
    drawing = str(model.explain(WORDS[0], kind="attention"))
    assert "columns: the cat sat" in drawing


def test_predict_draws_it_on_the_way(tmp_path: Path, run: Run) -> None:
    make_translator(tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{WORDS[0]}\n{WORDS[1]}\n")
    drawn = tmp_path / "looked.json"
    found = run("predict", tmp_path / "m", lines, "--picture", drawn)
    assert found.code == 0 and len(found.out.splitlines()) == 2
    (one,) = json.loads(drawn.read_text())["maps"]
    assert one["columns"] == [*WORDS[0].split(), "</s>"]
    assert run("predict", tmp_path / "m", lines, "--picture", drawn).code == 74  # it is there
    assert run("predict", tmp_path / "m", lines, "--picture", drawn, "--overwrite").code == 0


def test_predict_refuses_a_picture_where_there_is_no_attention(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "tags.txt"
    data.write_text("a X\nb Y\n\n" * 20)
    elman.train("tag", data, valid="none", epochs=1, settings=TINY, out=tmp_path / "t")
    found = run("predict", tmp_path / "t", "--picture", tmp_path / "p.svg", stdin=b"a b\n")
    assert found.code == 2 and "has none" in found.err and found.out == ""
