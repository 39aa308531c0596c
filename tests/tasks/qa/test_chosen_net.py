"""A reader looks at sentences, never at padding; the order of sentences matters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from elman.nets.inputs import NetInputs
from elman.tasks.qa.chosen_net import ChoosingNet
from elman.tasks.qa.config import ReaderConfig, StoriesConfig
from elman.tasks.qa.stories import Question, Stories, StoryBatch, encode_stories, look_up
from elman.text.rows import begins_of, padded
from elman.text.units.word_list import learn_words

QUESTIONS = [
    Question(("a b.", "b c.", "c."), "a?", ""),
    Question(("c.",), "b?", ""),
    Question((), "a?", ""),
    Question(("b c.", "a b.", "c."), "a?", ""),
]
WORDS = learn_words(Counter(["a", "b", "c", ".", "?"]), min_count=1, max_words=10)


def make(**settings: Any) -> ChoosingNet:
    usual = {"hidden": 4, "embedding": 3, "hops": 2, "positions": 3}
    return ChoosingNet(
        ReaderConfig.model_validate({**usual, **settings}),
        NetInputs(WORDS.tokenizer.vocab_size, rng=torch.Generator().manual_seed(0), dtype=torch.float64),
        num_labels=3,
    ).eval()


def stories_of(questions: list[Question]) -> Stories:
    (rows,), table = encode_stories([questions], WORDS, StoriesConfig())
    contexts, lengths = padded(rows.contexts, begins_of(rows.contexts), np.arange(len(questions)))
    return look_up(table, begins_of(table), contexts[:, :-1], lengths - 1, rows.questions)


@pytest.mark.parametrize("settings", [{}, {"family": "lstm", "bidirectional": False, "hops": 1}], ids=str)
def test_a_question_alone_is_the_question_in_a_batch(settings: dict[str, Any]) -> None:
    model = make(**settings)
    shares, looked = model.predict(stories_of(QUESTIONS))
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-6)
    answers = np.array([0, 1, 2, 0])
    together, _ = model.batch_loss(StoryBatch(stories_of(QUESTIONS), answers), None)
    nats = 0.0
    for row, question in enumerate(QUESTIONS):
        if not question.context:
            assert not looked[row].any()
            continue
        alone, _ = model.predict(stories_of([question]))
        np.testing.assert_allclose(alone[0], shares[row], rtol=1e-6)
        np.testing.assert_allclose(looked[row].sum(-1), 1.0, rtol=1e-6)
        assert not looked[row][:, len(question.context) :].any()
        nats -= float(np.log(shares[row, answers[row]]))
    nats -= float(np.log(shares[2, 2]))
    assert float(together.nats) == pytest.approx(nats, rel=1e-5)


def test_the_order_of_sentences_matters() -> None:
    shares, _ = make().predict(stories_of(QUESTIONS))
    assert not np.allclose(shares[0], shares[3])


def test_answers_are_those_of_the_formulas_and_sentences_age_from_the_question_back() -> None:
    """The last sentence has the first vector of `positions`, the one before it the second, and so on to the last vector."""
    model = make(positions=2)
    with torch.no_grad():
        rng = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.3)
    found, looked = model.predict(stories_of(QUESTIONS))
    for row, question in enumerate(QUESTIONS):
        if not question.context:
            continue
        stories = stories_of([question])
        with torch.no_grad():
            read = model.reader(torch.from_numpy(stories.sentences).t(), torch.from_numpy(stories.sentence_lengths))
            sentences = read.last()
            told = sentences[torch.from_numpy(stories.contexts[0])]
            memory = model.order(told[:, None], torch.tensor([len(told)])).outputs[:, 0]
            asked = model.question(sentences[torch.from_numpy(stories.questions)])[0].numpy()
            positions, hops = model.positions.numpy(), list(model.hops)
            ages = [min(len(told) - 1 - place, 1) for place in range(len(told))]  # 0: just before the question
            seen = memory.numpy() + np.stack([positions[age] for age in ages])
            for number, hop in enumerate(hops):
                energies = seen @ asked / asked.size**0.5
                weights = np.exp(energies) / np.exp(energies).sum()
                np.testing.assert_allclose(looked[row, number, : len(told)], weights, rtol=1e-5)
                memo = weights @ seen
                asked = asked + np.tanh(hop(torch.from_numpy(np.concatenate([asked, memo, asked * memo]))).numpy())
            scores = model.output(torch.from_numpy(asked)).numpy()
        np.testing.assert_allclose(found[row], np.exp(scores) / np.exp(scores).sum(), rtol=1e-5)


def test_what_was_saved_answers_the_same() -> None:
    model = make()
    again = ChoosingNet.from_tensors(model.config, model.tensors()).eval()
    assert np.array_equal(model.predict(stories_of(QUESTIONS))[0], again.predict(stories_of(QUESTIONS))[0])
