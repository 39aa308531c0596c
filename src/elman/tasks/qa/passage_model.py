"""Readers whose answers are marked in the context, or written."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.reading import Reading, refuse_long
from elman.lm.search import Hypothesis, beam_search
from elman.tasks.qa.metrics import answer_numbers
from elman.tasks.qa.model import Answer, QaModel, share_wrong
from elman.tasks.qa.passages import (
    Place,
    SpanBatch,
    SpanBatches,
    encode_passages,
    mark_answer,
    place_words,
    read_context,
    span_text,
)
from elman.tasks.qa.stories import Question, split_sentence
from elman.text.batches import one_pass
from elman.text.rows import like_length, pad_all
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID

READ_WORDS = 8000  # words in one batch of contexts, padding included
OTHERS = 10  # likeliest spans whose probabilities are reported
BEAM = 5


@dataclass(frozen=True)
class PassageChunk:
    """Some contexts, with their questions as ids and by themselves as sentences and as words."""

    questions: Sequence[Question]

    sources: Array
    lengths: Array
    contexts: Sequence[Sequence[str]]
    places: Sequence[Sequence[Place]]

    def surfaces(self, row: int) -> tuple[str, ...]:
        """The words of a context as they are written there."""
        context = self.contexts[row]
        return tuple(context[place.sentence][place.begin : place.end] for place in self.places[row])


class PassageAnswers(QaModel):
    """Reads contexts as running words, those of like length together."""

    def _answer_all(self, questions: Sequence[Question], *, beam: int | None) -> list[Answer]:
        contexts = [read_context(question, self.data) for question in questions]
        places = [place_words(context, self.data) for context in contexts]
        found: dict[int, Answer] = {}
        for chunk in like_length([len(words) for words in places], tokens=READ_WORDS):
            asked = [questions[i] for i in chunk]
            sources, lengths = encode_passages(asked, self.words, self.data).sources(np.arange(len(chunk)))
            read = PassageChunk(asked, sources, lengths, [contexts[i] for i in chunk], [places[i] for i in chunk])
            found |= dict(zip(chunk, self._answer(read, beam=beam), strict=True))
        return [found[i] for i in range(len(questions))]

    def _read_one(self, text: str) -> tuple[Array, list[str]]:
        """One question and its context as a source (S,), and its tokens."""
        question = self.question_in(text)
        source = encode_passages([question], self.words, self.data).sources(np.arange(1))[0][0]
        context = [place.word for place in place_words(read_context(question, self.data), self.data)]
        if not context:
            raise UsageError("the context has no words", code="unsuitable-text", hint="write CONTEXT<tab>QUESTION")
        refuse_long(source)
        return source, [*split_sentence(question.question, self.data), EOS, *context, EOS]

    @abstractmethod
    def _answer(self, read: PassageChunk, *, beam: int | None) -> list[Answer]:
        """The answers to some questions."""

    def numbers_of(self, questions: Sequence[Question], answers: Sequence[Answer]) -> dict[str, Any]:
        """Exact matches and words in common, as SQuAD counts them."""
        confidence = np.array([one.confidence for one in answers])
        wanted = [question.answer for question in questions]
        return answer_numbers([one.text for one in answers], wanted, confidence)


class MarkedAnswers(PassageAnswers):
    """Answers are parts of their contexts."""

    what = "answers that are marked in their context"

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Answer]:
        """Answers, one for each question; nothing where there is no context."""
        found = [Answer(question.question, "", {}) for question in questions]
        with_words = [
            i for i, question in enumerate(questions) if place_words(read_context(question, self.data), self.data)
        ]
        for i, one in zip(with_words, self._answer_all([questions[i] for i in with_words], beam=None), strict=True):
            found[i] = one
        return found

    def _answer(self, read: PassageChunk, *, beam: int | None) -> list[Answer]:
        spans = self.net.predict(read.sources, read.lengths, count=OTHERS)
        found = []
        for row, (context, words) in enumerate(zip(read.contexts, read.places, strict=True)):
            shares: dict[str, float] = {}
            for first, last, share in zip(spans.first[row], spans.last[row], spans.probabilities[row], strict=True):
                if share > 0:  # of those that read the same the likeliest counts
                    shares.setdefault(span_text(context, words, int(first), int(last)), float(share))
            best = span_text(context, words, int(spans.first[row, 0]), int(spans.last[row, 0]))
            size = len(words)
            found.append(
                Answer(
                    read.questions[row].question,
                    best,
                    shares,
                    words=read.surfaces(row),
                    begins=spans.begins[row, :size],
                    ends=spans.ends[row, :size],
                )
            )
        return found

    def reading(self, text: str) -> Reading:
        """Question and context as the net reads them; what is predicted is the answer's first and last word."""
        source, tokens = self._read_one(text)
        spans = self.net.predict(source[None], np.array([len(source)]))
        chosen = np.array([spans.first[0, 0], spans.last[0, 0]])
        return Reading(
            tokens=tokens,
            is_known=(source != UNK_ID).tolist(),
            rows=["first word", "last word"],
            columns=tokens[tokens.index(EOS) + 1 : -1],
            chosen=chosen,
            words=lambda: self.net.words_read(source),
            trace=lambda words: self.net.trace(source, words),
            unrecorded=lambda: self.net.log_probs(source)[[0, 1], chosen],
        )

    def numbers_of(self, questions: Sequence[Question], answers: Sequence[Answer]) -> dict[str, Any]:
        """Exact matches and words in common; and how many answers could not be right."""
        found = super().numbers_of(questions, answers)
        num_absent = sum(not mark_answer(question, self.data)[0] for question in questions)
        if num_absent:
            note = f"{num_absent:,} answers do not stand in their contexts, and so cannot be marked there"
            found |= {"absent_answers": num_absent, "notes": [note]}
        return found

    @staticmethod
    def error(net: Any, batches: SpanBatches) -> float:
        """The part of the answers that are marked wrongly."""
        return share_wrong(MarkedAnswers._are_right(net, batch) for batch in one_pass(batches))

    @staticmethod
    def _are_right(net: Any, batch: SpanBatch) -> Array:
        spans = net.predict(batch.sources, batch.source_lengths)
        first, last = spans.first[:, 0], spans.last[:, 0]
        return np.asarray((batch.starts == first[:, None]).any(1) & (last - first + 1 == batch.sizes))


class WrittenAnswers(PassageAnswers):
    """Answers are written, of the words that answers have in training."""

    what = "answers that are written"
    searches = True

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Answer]:
        """Answers, one for each question."""
        return self._answer_all(questions, beam=beam)

    def _answer(self, read: PassageChunk, *, beam: int | None) -> list[Answer]:
        width = beam or BEAM
        hypotheses = beam_search(
            self.net.pairs,
            self.net.pairs.encode(read.sources, read.lengths),
            width=width,
            n_best=width,
            stop=EOS_ID,
            max_tokens=(self.config.longest or 1) + 1,
        )
        written = [one[0].tokens for one in hypotheses]
        targets, _ = pad_all(written)
        looked = self.net.pairs.attention_weights(read.sources, read.lengths, targets)
        found = []
        for row, words in enumerate(read.places):
            shares: dict[str, float] = {}
            for one in hypotheses[row]:
                shares.setdefault(self._text(one), math.exp(-one.nats))
            weights = looked[row, : len(written[row]), : len(words) + 1]
            surfaces = (*read.surfaces(row), EOS)
            question, text = read.questions[row].question, self._text(hypotheses[row][0])
            found.append(Answer(question, text, shares, words=surfaces, attention=weights))
        return found

    def reading(self, text: str) -> Reading:
        """Question and context as the net reads them; what is predicted is the answer that is written."""
        source, tokens = self._read_one(text)
        pairs, lengths = self.net.pairs, np.array([len(source)])
        begin = pairs.encode(source[None], lengths)
        found = beam_search(pairs, begin, width=BEAM, stop=EOS_ID, max_tokens=(self.config.longest or 1) + 1)
        target = np.array(found[0][0].tokens, dtype=np.int64)
        assert self.assets.answers is not None
        return Reading(
            tokens=tokens,
            is_known=(source != UNK_ID).tolist(),
            rows=[self.assets.answers.tokens[i] for i in target],
            columns=self.assets.answers.tokens,
            chosen=target,
            words=lambda: self.net.words_read(source),
            trace=lambda words: self.net.trace(source, target, words),
            unrecorded=lambda: pairs.score(target[None], np.array([len(target)]), begin)[0][0],
        )

    def _text(self, hypothesis: Hypothesis) -> str:
        assert self.assets.answers is not None
        return self.assets.answers.decode(token for token in hypothesis.tokens if token != EOS_ID)
