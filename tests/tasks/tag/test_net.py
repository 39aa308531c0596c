"""A tagger reads words and spelling, never padding; what is saved is what is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elman.nets.inputs import NetInputs
from elman.tasks.tag.config import SentencesConfig, TaggerConfig
from elman.tasks.tag.conll import Sentence
from elman.tasks.tag.data import FormTable, TagBatch, Words, encode_sentences, learn_lexicon
from elman.tasks.tag.net import TaggerModel
from elman.text.rows import begins_of, padded

SENTENCES = [("a", "bb", "a", "ccc"), ("bb",), ("dd", "a")]
LABELS = ["O", "B-X", "I-X"]
LEXICON = learn_lexicon([Sentence(words, ()) for words in SENTENCES], SentencesConfig())


def make(**settings: Any) -> TaggerModel:
    usual = {"hidden": 5, "embedding": 4, "character_embedding": 3, "character_hidden": 2, "output": "softmax"}
    return TaggerModel(
        TaggerConfig.model_validate({**usual, **settings}),
        NetInputs(LEXICON.words.vocab_size, rng=torch.Generator().manual_seed(0), dtype=torch.float64),
        num_characters=LEXICON.characters.vocab_size,
        labels=LABELS,
    ).eval()


def words_of(sentences: list[tuple[str, ...]]) -> Words:
    (ids,), forms = encode_sentences([sentences], LEXICON)
    rows, lengths = padded(ids, begins_of(ids), np.arange(len(sentences)))
    return FormTable(forms).look_up(rows[:, :-1], lengths - 1)


KINDS = [
    {"output": output, "characters": characters, "bidirectional": both, "layers": layers}
    for output, characters, both, layers in [
        ("softmax", "rnn", True, 1),
        ("softmax", "cnn", False, 2),
        ("crf", "none", True, 2),
        ("crf", "cnn", True, 1),
    ]
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sentence_alone_is_tagged_as_in_a_batch(kind: dict[str, Any]) -> None:
    model = make(**kind)
    together = model.predict(words_of(SENTENCES), with_probabilities=True)
    assert together.probabilities is not None
    for row, sentence in enumerate(SENTENCES):
        alone = model.predict(words_of([sentence]), with_probabilities=True)
        assert alone.probabilities is not None
        size = len(sentence)
        assert np.array_equal(alone.best[0], together.best[row, :size])
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[row, :size], rtol=1e-6)
        np.testing.assert_allclose(alone.probabilities[0].sum(-1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_loss_of_a_batch_is_that_of_its_sentences(kind: dict[str, Any]) -> None:
    model = make(**kind)
    tags = np.array([[0, 1, 2, 0], [1, 0, 0, 0], [1, 2, 0, 0]])
    together, _ = model.batch_loss(TagBatch(words_of(SENTENCES), tags), None)
    alone = [
        model.batch_loss(TagBatch(words_of([words]), tags[row : row + 1, : len(words)]), None)[0]
        for row, words in enumerate(SENTENCES)
    ]
    assert together.tokens == 7
    assert float(together.nats) == pytest.approx(sum(float(loss.nats) for loss in alone))
    assert float(together.total.detach()) == pytest.approx(float(together.nats) / 7)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_saved_tags_the_same(kind: dict[str, Any]) -> None:
    model = make(**kind)
    again = TaggerModel.from_tensors(model.config, model.tensors(), labels=LABELS).eval()
    one, other = (m.predict(words_of(SENTENCES), with_probabilities=True) for m in (model, again))
    assert one.probabilities is not None and other.probabilities is not None
    assert np.array_equal(one.probabilities, other.probabilities)


def test_the_spelling_of_an_unknown_word_matters() -> None:
    model = make(characters="cnn")
    one, other = (model.predict(words_of([(word, "a")]), with_probabilities=True) for word in ("aab", "dda"))
    assert one.probabilities is not None and not np.allclose(one.probabilities[0, 0], other.probabilities[0, 0])
    blind = make(characters="none")
    one, other = (blind.predict(words_of([(word, "a")]), with_probabilities=True) for word in ("aab", "dda"))
    assert np.array_equal(one.probabilities, other.probabilities)


def test_forbidden_tags_are_never_chosen() -> None:
    model = make(output="crf", scheme="bio")
    with torch.no_grad():
        model.output.bias.copy_(torch.tensor([0.0, 0.0, 50.0]))  # as much as it would like to write I-X
    best = model.predict(words_of([("a", "bb", "a")])).best[0].tolist()
    assert [LABELS[label] for label in best] == ["B-X", "I-X", "I-X"]


def test_rare_words_are_sometimes_unknown_in_training_and_never_else() -> None:
    counts = np.zeros(LEXICON.words.vocab_size)
    counts[2:] = 1
    model = TaggerModel(
        TaggerConfig(hidden=4, embedding=3, characters="none", output="softmax", rare=3.0),
        NetInputs(LEXICON.words.vocab_size, rng=torch.Generator().manual_seed(0), counts=counts),
        num_characters=2,
        labels=LABELS,
    )
    words = words_of([("a",) * 400])
    torch.manual_seed(0)
    model.train()
    read = model.reader.embedding.weight.grad
    assert read is None
    loss, _ = model.batch_loss(TagBatch(words, np.zeros((1, 400), dtype=np.int64)), None)
    loss.total.backward()
    grad = model.reader.embedding.weight.grad
    assert grad is not None and bool(grad[0].any()) and bool(grad[LEXICON.word("a")].any())
    share = float(model.reader._unknown[LEXICON.word("a")])
    assert share == pytest.approx(0.75)
