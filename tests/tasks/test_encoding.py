"""Texts as vectors: what is given is what the layers hold, whatever the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.tasks import encoding
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


LONG = " ".join(["the cat sat on the mat .", "a dog ran to the river"] * 400)  # 5,200 words: more than are read at once


@pytest.mark.parametrize("name", ["lstm", "window", "transformer"])
def test_a_long_line_in_pieces_is_the_line_as_a_whole_where_the_state_is_carried(
    trained: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(name)
    monkeypatch.setattr(encoding, "WINDOW", 10**6)
    whole = {pool: model.encode(LONG, pool=pool) for pool in (None, "mean", "max", "last")}
    monkeypatch.setattr(encoding, "WINDOW", 1000)
    for pool, wanted in whole.items():
        assert np.allclose(model.encode(LONG, pool=pool), wanted, atol=1e-5), pool


@pytest.mark.parametrize("name", ["bilm", "masked", "masked-transformer", "tag", "qa"])
def test_windows_of_a_long_line_have_the_vectors_of_what_stands_around_each_token(
    trained: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(name)
    monkeypatch.setattr(encoding, "WINDOW", 2000)
    monkeypatch.setattr(encoding, "MARGIN", 300)
    (found,) = model.encode([LONG], pool=None)
    assert found.shape[0] == len(LONG.split())
    row = model._encode_row(LONG)[2800 - 300 : 4200 + 300]  # a piece of 1,400 tokens with its margins
    around = model._vectors([row], None, is_whole=False).values[0]
    assert np.array_equal(found[2800:4200], around[300:1700])
    assert np.allclose(model.encode(LONG), found.mean(axis=0), atol=1e-5)
    assert np.array_equal(model.encode(LONG, pool="max"), found.max(axis=0))
    ends = model.encode(LONG, pool="last")
    assert (np.isclose(ends, found[0]) | np.isclose(ends, found[-1])).all()


@pytest.mark.parametrize("name", ["lstm", "masked-transformer"])
def test_no_batch_of_a_long_line_is_longer_than_a_window(
    trained: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 50 MB was read whole, and the machine ran out of memory."""
    model = trained(name)
    monkeypatch.setattr(encoding, "WINDOW", 1200)
    seen: list[int] = []
    stack = model.net.stack
    read = type(stack).vectors

    def watched(self: Any, values: Any, *rest: Any) -> Any:
        seen.append(len(values))
        return read(self, values, *rest)

    monkeypatch.setattr(type(stack), "vectors", watched)
    assert np.isfinite(model.encode(LONG)).all()
    assert len(seen) > 4 and max(seen) <= 1200 + 1  # the end of a line is read too


def test_files_are_encoded_as_predict_reads_them(trained: Any, tmp_path: Path) -> None:
    """The raw JSON, or the label in front of a text, was taken for text."""
    model = trained("classify")
    (tmp_path / "texts.txt").write_text("a great film\n\nan awful film\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "a great film"}\n\n{"text": "an awful film", "label": "neg"}\n')
    (tmp_path / "texts.csv").write_text('label,text\npos,"a great film"\nneg,\nneg,an awful film\n')
    (tmp_path / "texts.tsv").write_text("pos\ta great film\n\nneg\tan awful film\n")
    wanted = model.encode(["a great film", "", "an awful film"])
    for name in ("txt", "jsonl", "tsv"):
        texts, vectors = zip(*model.encode_lines([tmp_path / f"texts.{name}"]), strict=True)
        assert texts == ("a great film", "", "an awful film"), name
        assert np.array_equal(vectors, wanted), name
    texts, vectors = zip(*model.encode_lines([tmp_path / "texts.csv"], errors="skip"), strict=True)
    assert texts == ("a great film", "", "an awful film") and np.array_equal(vectors, wanted)


def test_translators_and_taggers_encode_sources_and_words_alone(trained: Any, tmp_path: Path) -> None:
    translator = trained("seq2seq-attention")
    (tmp_path / "pairs.tsv").write_text("rot\tred\nblau\tblue\n")
    assert np.array_equal(
        [v for _, v in translator.encode_lines([tmp_path / "pairs.tsv"])], translator.encode(["rot", "blau"])
    )
    shutil.rmtree("model")
    tagger = trained("tag")
    (tmp_path / "words.jsonl").write_text('{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n{"tokens": 3}\n')
    (first, second) = tagger.encode_lines([tmp_path / "words.jsonl"], errors="skip")
    assert first[0] == "the cat" and np.array_equal(first[1], tagger.encode("the cat"))
    assert second[0] == "" and not second[1].any()


def test_bad_records_and_reserved_symbols_are_empty_lines_in_their_place(trained: Any, tmp_path: Path) -> None:
    """A record that was passed over was left out, and all lines after it were one off."""
    model = trained("lstm")
    (tmp_path / "texts.jsonl").write_text('{"text": "the cat"}\nnothing\n{"text": "a\\ndog"}\n\n{"text": "a </s> b"}\n')
    found = list(model.encode_lines([tmp_path / "texts.jsonl"], errors="skip"))
    assert [text for text, _ in found] == ["the cat", "", "a\ndog", "", ""]
    assert np.array_equal([vector for _, vector in found], model.encode(["the cat", "", "a\ndog", "", ""]))
    with pytest.raises(elman.ElmanError, match=r"line 2 of .* is not JSON"):
        list(model.encode_lines([tmp_path / "texts.jsonl"]))
