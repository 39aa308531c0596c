"""A tagger reads what trained language models make of its words; they stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from elman.nets.inputs import NetInputs
from elman.tasks.bilm.net import BilmFeatures, BilmModel, compute_features
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.tag.bilm_words import BilmWords
from elman.tasks.tag.config import SentencesConfig, TaggerConfig
from elman.tasks.tag.conll import Sentence
from elman.tasks.tag.data import FormTable, TagBatch, Words, encode_sentences, learn_lexicon
from elman.tasks.tag.net import TaggerModel
from elman.text.rows import begins_of, padded
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, UNK

SENTENCES = [("a", "bb", "a", "ccc"), ("BB",), ("dd", "a")]
LABELS = ["X", "Y"]
FOREIGN = BilmWords(Tokenizer(TokenizerSpec("space", [UNK, EOS, "a", "bb", "zz"])))
LEXICON = learn_lexicon([Sentence(words, ()) for words in SENTENCES], SentencesConfig(), foreign=FOREIGN)
IDS = np.array([[2, 3, 2, 0], [3, 0, 0, 0], [0, 2, 0, 0]])  # BB is bb; ccc and dd are not known
LENGTHS = np.array([4, 1, 2])
BILMS: list[dict[str, Any]] = [{}, {"embedding": 5, "layers": 1}, {"family": "gru", "tied": True, "skip": "residual"}]


def make_bilm(**more: Any) -> BilmModel:
    config = RecurrentConfig.model_validate({"hidden": 4, "layers": 2, **more})
    rng = torch.Generator().manual_seed(1)
    return BilmModel(config, NetInputs(5, rng=rng, dtype=torch.float64), reset_lines=False).eval()


def features_of(bilm: BilmModel) -> BilmFeatures:
    tensors = {name: array for name, array in bilm.tensors().items() if ".head." not in name}
    return BilmFeatures(bilm.config, tensors, dtype=torch.float64)


def make_tagger(bilm: BilmFeatures, **more: Any) -> TaggerModel:
    settings = {"hidden": 5, "embedding": 4, "character_hidden": 2, "output": "softmax", "bilm": "there", **more}
    return TaggerModel(
        TaggerConfig.model_validate(settings),
        NetInputs(LEXICON.words.vocab_size, rng=torch.Generator().manual_seed(0), dtype=torch.float64),
        num_characters=LEXICON.characters.vocab_size,
        labels=LABELS,
        bilm=bilm,
    ).eval()


def words_of(sentences: list[tuple[str, ...]]) -> Words:
    (ids,), forms = encode_sentences([sentences], LEXICON)
    rows, lengths = padded(ids, begins_of(ids), np.arange(len(sentences)))
    return FormTable(forms).look_up(rows[:, :-1], lengths - 1)


@pytest.mark.parametrize("kind", BILMS, ids=str)
def test_features_are_those_of_the_language_models(kind: dict[str, Any]) -> None:
    bilm = make_bilm(**kind)
    features = features_of(bilm)
    words = words_of(SENTENCES)
    assert words.foreign is not None
    is_word = np.arange(4) < LENGTHS[:, None]
    np.testing.assert_array_equal(words.foreign[is_word], IDS[is_word])
    found = features(torch.from_numpy(IDS), torch.from_numpy(LENGTHS))
    assert found.shape[-1] == features.width and found.shape[0] == features.num_feature_layers
    np.testing.assert_array_equal(found.to(torch.float32).numpy(), compute_features(bilm, IDS, LENGTHS))
    assert not found.requires_grad
    assert not any(".head." in name for name in features.tensors())


def test_a_sentence_alone_is_tagged_as_in_a_batch() -> None:
    model = make_tagger(features_of(make_bilm()))
    together = model.predict(words_of(SENTENCES), with_probabilities=True).probabilities
    for row, sentence in enumerate(SENTENCES):
        alone = model.predict(words_of([sentence]), with_probabilities=True).probabilities
        assert alone is not None and together is not None
        np.testing.assert_allclose(alone[0], together[row, : len(sentence)], rtol=1e-6)


def test_tags_depend_on_what_the_language_models_know() -> None:
    model = make_tagger(features_of(make_bilm()), characters="none")
    words = words_of(SENTENCES)
    other = replace(words, foreign=np.full_like(words.forms, 4))
    one, two = (model.predict(text, with_probabilities=True).probabilities for text in (words, other))
    assert not np.allclose(one, two)


def test_only_the_mix_of_layers_learns() -> None:
    model = make_tagger(features_of(make_bilm())).train()
    loss, _ = model.batch_loss(TagBatch(words_of(SENTENCES), np.zeros((3, 4), dtype=np.int64)), None)
    loss.total.backward()
    assert model.bilm is not None and model.mix is not None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in model.bilm.parameters())
    assert model.mix.scores.grad is not None and bool(model.mix.scores.grad.any())
    assert model.mix.gamma.grad is not None and bool(model.mix.gamma.grad.any())


@pytest.mark.parametrize("kind", BILMS, ids=str)
def test_what_was_saved_tags_the_same(kind: dict[str, Any]) -> None:
    model = make_tagger(features_of(make_bilm(**kind)))
    assert model.bilm is not None
    again = TaggerModel.from_tensors(model.config, model.tensors(), labels=LABELS, bilm=model.bilm.config).eval()
    one, other = (m.predict(words_of(SENTENCES), with_probabilities=True) for m in (model, again))
    assert np.array_equal(one.probabilities, other.probabilities)  # type: ignore[arg-type]
