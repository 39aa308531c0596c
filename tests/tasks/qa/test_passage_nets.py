"""Readers that mark an answer or write one: exact spans, no padding, what is saved is what is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.lm.search import beam_search
from elman.nets.inputs import NetInputs
from elman.tasks.qa.config import ReaderConfig
from elman.tasks.qa.passage_net import split_source
from elman.tasks.qa.passages import SpanBatch
from elman.tasks.qa.span_net import SpanNet, best_spans
from elman.tasks.qa.written_net import WritingNet
from elman.tasks.seq2seq.data import PairBatch
from elman.text.units.vocabulary import EOS_ID

VOCAB, ANSWERS = 8, 6
# question, end, context, end: the words are 2 .. 7
ROWS = [[2, 3, 1, 4, 5, 3, 6, 4, 1], [7, 1, 2, 1], [5, 2, 6, 1, 3, 3, 3, 1]]
LENGTHS = np.array([len(row) for row in ROWS])
SOURCES = np.array([row + [EOS_ID] * (int(LENGTHS.max()) - len(row)) for row in ROWS])
KINDS: list[dict[str, Any]] = [{}, {"family": "lstm", "bidirectional": False, "layers": 2}]


def config_of(kind: str, **more: Any) -> ReaderConfig:
    return ReaderConfig.model_validate({"answer": kind, "hidden": 4, "embedding": 3, "longest": 3, **more})


def make_span(**more: Any) -> SpanNet:
    rng = torch.Generator().manual_seed(0)
    return SpanNet(config_of("span", **more), NetInputs(VOCAB, rng=rng, dtype=torch.float64)).eval()


def make_writer(**more: Any) -> WritingNet:
    return WritingNet(
        config_of("generated", **more),
        NetInputs(VOCAB, rng=torch.Generator().manual_seed(0), dtype=torch.float64),
        answer_vocab_size=ANSWERS,
    ).eval()


def test_the_best_span_is_worked_by_hand() -> None:
    begins = torch.tensor([[0.5, 0.1, 0.4]]).log()
    ends = torch.tensor([[0.1, 0.3, 0.6]]).log()
    # 0-0 .05  0-1 .15  0-2 .30  1-1 .03  1-2 .06  2-2 .24: in all .83
    first, last, shares = best_spans(begins, ends, longest=3, count=2)
    assert (first.tolist(), last.tolist()) == ([[0, 2]], [[2, 2]])
    torch.testing.assert_close(shares, torch.tensor([[0.30 / 0.83, 0.24 / 0.83]]))
    # not longer than two words: .30 is out, .24 is best of .53
    first, last, shares = best_spans(begins, ends, longest=2, count=1)
    assert (int(first), int(last)) == (2, 2)
    assert float(shares) == pytest.approx(0.24 / 0.53)


@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 1000))
def test_the_best_span_is_the_best_of_all(num_words: int, longest: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    begins, ends = (torch.randn(2, num_words, generator=rng, dtype=torch.float64).log_softmax(1) for _ in range(2))
    spans = [(i, j) for i in range(num_words) for j in range(i, min(num_words, i + longest))]
    first, last, shares = best_spans(begins, ends, longest=longest, count=1000)
    for row in range(2):
        scores = {(i, j): float(torch.exp(begins[row, i] + ends[row, j])) for i, j in spans}
        order = sorted(spans, key=lambda span: -scores[span])
        found = list(zip(first[row].tolist(), last[row].tolist(), strict=True))[: len(spans)]
        assert found == order
        total = sum(scores.values())
        np.testing.assert_allclose(shares[row, : len(spans)], [scores[span] / total for span in order], rtol=1e-9)
        assert not shares[row, len(spans) :].any()


def test_question_and_context_are_told_apart() -> None:
    source = split_source(torch.from_numpy(SOURCES).t(), torch.from_numpy(LENGTHS))
    for row, words in enumerate(ROWS):
        middle = words.index(EOS_ID)
        assert source.questions[: int(source.question_lengths[row]), row].tolist() == words[:middle]
        assert source.contexts[: int(source.context_lengths[row]), row].tolist() == words[middle + 1 :]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_question_alone_is_marked_as_in_a_batch(kind: dict[str, Any]) -> None:
    model = make_span(**kind)
    together = model.predict(SOURCES, LENGTHS, count=2)
    starts, sizes = np.array([[0, 4], [0, -1], [1, -1]]), np.array([1, 1, 2])
    loss, _ = model.batch_loss(SpanBatch(SOURCES, LENGTHS, starts, sizes), None)
    nats = 0.0
    for row, words in enumerate(ROWS):
        alone = model.predict(np.array([words]), LENGTHS[row : row + 1], count=2)
        num_words = len(words) - words.index(EOS_ID) - 2
        np.testing.assert_allclose(alone.begins[0], together.begins[row, :num_words], rtol=1e-5)
        assert not together.ends[row, num_words:].any()
        assert alone.first[0, 0] == together.first[row, 0] and alone.last[0, 0] == together.last[row, 0]
        assert alone.probabilities[0, 0] == pytest.approx(together.probabilities[row, 0], rel=1e-5)
        # of an answer that stands there twice both places count
        places = [int(place) for place in starts[row] if place >= 0]
        last = int(sizes[row]) - 1
        nats -= np.log(sum(float(alone.begins[0, place]) * float(alone.ends[0, place + last]) for place in places))
    assert float(loss.nats) == pytest.approx(nats, rel=1e-5)
    assert loss.tokens == 3


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_answer_alone_is_written_as_in_a_batch(kind: dict[str, Any]) -> None:
    model = make_writer(**kind)
    targets = np.array([[2, 3, EOS_ID], [4, EOS_ID, EOS_ID], [EOS_ID, EOS_ID, EOS_ID]])
    lengths = np.array([3, 2, 1])
    loss, _ = model.batch_loss(PairBatch(SOURCES, LENGTHS, targets, lengths), None)
    scores, _ = model.pairs.score(targets, lengths, model.pairs.encode(SOURCES, LENGTHS))
    assert float(loss.nats) == pytest.approx(-float(scores.sum()), rel=1e-5)
    weights = model.pairs.attention_weights(SOURCES, LENGTHS, targets)
    for row, words in enumerate(ROWS):
        source, length = np.array([words]), LENGTHS[row : row + 1]
        state = model.pairs.encode(source, length)
        alone, _ = model.pairs.score(targets[row : row + 1], lengths[row : row + 1], state)
        np.testing.assert_allclose(alone[0], scores[row], rtol=1e-5)
        num_places = len(words) - words.index(EOS_ID) - 1  # of the context, its end among them
        np.testing.assert_allclose(weights[row, :, :num_places].sum(-1), 1.0, rtol=1e-5)
    best = beam_search(model.pairs, model.pairs.encode(SOURCES, LENGTHS), width=3, stop=EOS_ID, max_tokens=4, n_best=3)
    assert [len(hypotheses) for hypotheses in best] == [3, 3, 3]


def test_the_question_matters_to_every_word() -> None:
    other = SOURCES.copy()
    other[0, 0] = 7
    for model in (make_span(), make_span(bidirectional=False)):
        one, two = (model.predict(sources, LENGTHS).begins for sources in (SOURCES, other))
        assert not np.isclose(one[0, :5], two[0, :5]).all()
        np.testing.assert_array_equal(one[1:], two[1:])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_saved_answers_the_same(kind: dict[str, Any]) -> None:
    model = make_span(**kind)
    again = SpanNet.from_tensors(model.config, model.tensors()).eval()
    assert np.array_equal(model.predict(SOURCES, LENGTHS).begins, again.predict(SOURCES, LENGTHS).begins)
    writer = make_writer(**kind)
    twin = WritingNet.from_tensors(writer.config, writer.tensors()).eval()
    one, other = (net.pairs.predict(net.pairs.encode(SOURCES, LENGTHS)) for net in (writer, twin))
    assert np.array_equal(one, other)


def test_dropout_is_for_training_only() -> None:
    model = make_span(dropout=0.5)
    batch = SpanBatch(SOURCES, LENGTHS, np.array([[0], [0], [0]]), np.array([1, 1, 1]))
    calm = [float(model.batch_loss(batch, None)[0].nats) for _ in range(2)]
    torch.manual_seed(0)
    model.train()
    noisy = [float(model.batch_loss(batch, None)[0].nats) for _ in range(2)]
    assert calm[0] == calm[1] and noisy[0] != noisy[1]
