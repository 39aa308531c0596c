"""Texts as vectors: what is given is what the layers hold, whatever the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.tasks.encoding import nearest, pooled
from elman.testing import BrokenLawError
from elman.testing.task_laws import a_text_alone_is_encoded_as_among_others
from tests.guards.cases import train_case, write_data

TEXTS = ["the cat sat on the mat .", "", "a dog", "the"]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model of a case."""
    monkeypatch.chdir(tmp_path)
    write_data(Path())

    def train(name: str) -> Any:
        train_case(name, "model")
        return elman.load("model")

    return train


def test_pools_are_those_of_the_hand() -> None:
    values = np.array([[1.0, 5.0], [3.0, 1.0]])
    assert pooled(values, "mean").tolist() == [2.0, 3.0]
    assert pooled(values, "max").tolist() == [3.0, 5.0]
    assert pooled(values, "last").tolist() == [3.0, 1.0]
    assert pooled(values, "last", np.array([False, True])).tolist() == [3.0, 5.0]  # the second is read from the end


def test_the_nearest_are_those_with_the_smallest_angle_and_zeros_are_near_nothing() -> None:
    vectors = np.array([[0.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0]])
    found = nearest(vectors, np.array([2.0, 0.0]), 4)
    assert [row for row, _ in found] == [2, 0, 1, 3]
    assert np.allclose([cosine for _, cosine in found], [0.5**0.5, 0.0, 0.0, -1.0])


@pytest.mark.parametrize("name", ["lstm", "window", "transformer"])
def test_the_top_of_a_language_model_is_what_it_predicts_from(trained: Any, name: str) -> None:
    model = trained(name)
    ids = model.tokenizer.encode(TEXTS[0]).astype(np.int64)
    state = model.lm.start(1)
    stepwise = []
    for token in ids:
        state = model.lm.advance(np.array([token]), state)
        stepwise.append(model.lm.features(state)[0])
    (found,) = model.encode([TEXTS[0]], pool=None)
    assert model.lm.projection is None
    assert np.allclose(found, stepwise, atol=1e-5)
    words = model.encode([TEXTS[0]], pool=None, layer=0)[0]
    assert np.array_equal(words, model.lm.tensors()["embedding.weight"][ids].astype(np.float32))


def test_the_last_of_layers_that_read_both_ways_is_where_each_of_them_ends(trained: Any) -> None:
    model = trained("classify")
    ids = model._encode_row("the film was great")
    with torch.inference_mode():
        encoding = model.net.reader(torch.from_numpy(ids)[:, None], torch.tensor([len(ids)]))
    assert np.allclose(model.encode("the film was great", pool="last"), encoding.last()[0].numpy(), atol=1e-6)


def test_a_bilm_gives_the_layers_that_a_tagger_reads(trained: Any) -> None:
    model = trained("bilm")
    features = model.features(TEXTS[0])
    assert np.allclose(model.encode(TEXTS[0], pool=None), features[-1], atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "bilm", "masked", "seq2seq-attention", "tag", "classify", "qa", "qa-span"])
def test_texts_without_tokens_are_zeros_even_alone(trained: Any, name: str) -> None:
    model = trained(name)
    vectors = model.encode(["", "the"])
    assert vectors.shape == (2, vectors.shape[1]) and vectors.dtype == np.float32
    assert not vectors[0].any() and vectors[1].any()
    assert np.array_equal(model.encode([""]), vectors[:1])
    assert [len(rows) for rows in model.encode(["", "the"], pool=None)] == [0, 1]


def test_what_counts_has_no_vectors_and_says_so(trained: Any) -> None:
    model = trained("mkn-lines")
    with pytest.raises(elman.ElmanError, match="that is no net: it has no vectors"):
        model.encode(["the"])


def test_no_texts_have_no_vectors_of_the_usual_width(trained: Any) -> None:
    """numpy could not reshape an array of size 0."""
    model = trained("lstm")
    width = model.encode("the cat").shape[0]
    assert model.encode([]).shape == (0, width) and model.encode([], layer=0, pool="max").shape[0] == 0
    assert model.encode([], pool=None) == []


def test_a_layer_or_a_pool_that_is_not_there_is_refused(trained: Any) -> None:
    model = trained("lstm")
    with pytest.raises(elman.ElmanError, match="model has no layer 7") as found:
        model.encode(["the"], layer=7)
    assert "0 (the words) to" in str(found.value.hint)
    with pytest.raises(elman.ElmanError, match="there is no pool 'first'"):
        model.encode(["the"], pool="first")


def test_a_model_whose_vectors_depend_on_their_neighbours_is_found() -> None:
    class Leaky:
        def encode(self, texts: Any, *, pool: Any) -> Any:
            many = [texts] if isinstance(texts, str) else texts
            found = np.array([[float(len(text) + (len(many) > 1)) if text else 0.0] for text in many])
            return found[0] if isinstance(texts, str) else found

    with pytest.raises(BrokenLawError, match="text 1 is another among others"):
        a_text_alone_is_encoded_as_among_others(Leaky(), ["a", "bb"])  # type: ignore[arg-type]
