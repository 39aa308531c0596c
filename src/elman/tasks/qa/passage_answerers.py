"""Readers whose answers are marked in the context, or written."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.lm.search import Hypothesis, beam_search
from elman.tasks.base import refuse_beam
from elman.tasks.qa.answerer import Answerer, Found
from elman.tasks.qa.metrics import answer_numbers
from elman.tasks.qa.passages import (
    Place,
    SpanBatches,
    encode_passages,
    mark_answer,
    place_words,
    read_context,
    span_text,
)
from elman.tasks.qa.stories import Question
from elman.text.batches import one_pass
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID
from elman.text.units.word_list import WordList

READ_WORDS = 8000  # of contexts at once, padding counted
OTHERS = 10  # spans that are told of, the best among them
BEAM = 5


@dataclass(frozen=True)
class Read:
    """Some contexts, with their questions as ids and by themselves as sentences and as words."""

    sources: Array
    lengths: Array
    contexts: Sequence[Sequence[str]]
    places: Sequence[Sequence[Place]]

    def surfaces(self, row: int) -> tuple[str, ...]:
        """The words of a context as they are written there."""
        context = self.contexts[row]
        return tuple(context[place.sentence][place.begin : place.end] for place in self.places[row])


class PassageAnswerer(Answerer):
    """Reads contexts as running words, those of like length together."""

    def _answer_all(self, questions: Sequence[Question], *, beam: int | None) -> list[Found]:
        contexts = [read_context(question, self.data) for question in questions]
        places = [place_words(context, self.data) for context in contexts]
        found: dict[int, Found] = {}
        order = sorted(range(len(questions)), key=lambda i: len(places[i]))
        while order:
            most = max(1, READ_WORDS // max(1, len(places[order[-1]])))
            chunk, order = order[-most:], order[:-most]
            rows = encode_passages([questions[i] for i in chunk], self.words, self.data)
            sources, lengths = rows.sources(np.arange(len(chunk)))
            read = Read(sources, lengths, [contexts[i] for i in chunk], [places[i] for i in chunk])
            answers = self._answer(read, beam=beam)
            found |= dict(zip(chunk, answers, strict=True))
        return [found[i] for i in range(len(questions))]

    @abstractmethod
    def _answer(self, read: Read, *, beam: int | None) -> list[Found]:
        """The answers to some questions."""

    def mark(self, questions: Sequence[Question], answers: Sequence[Found]) -> dict[str, Any]:
        """Exact matches and words in common, as SQuAD counts them."""
        confidence = np.array([one.confidence for one in answers])
        wanted = [question.answer for question in questions]
        return answer_numbers([one.answer for one in answers], wanted, confidence)


class Marker(PassageAnswerer):
    """Answers are parts of their contexts."""

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Found]:
        """Answers, one for each question; nothing where there is no context."""
        refuse_beam("answers that are marked in their context", beam)
        found = [Found("", {}) for _ in questions]
        with_words = [
            i for i, question in enumerate(questions) if place_words(read_context(question, self.data), self.data)
        ]
        for i, one in zip(with_words, self._answer_all([questions[i] for i in with_words], beam=None), strict=True):
            found[i] = one
        return found

    def _answer(self, read: Read, *, beam: int | None) -> list[Found]:
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
                Found(
                    best,
                    shares,
                    words=read.surfaces(row),
                    begins=spans.begins[row, :size],
                    ends=spans.ends[row, :size],
                )
            )
        return found

    def mark(self, questions: Sequence[Question], answers: Sequence[Found]) -> dict[str, Any]:
        """Exact matches and words in common; and how many answers could not be right."""
        found = super().mark(questions, answers)
        num_absent = sum(not mark_answer(question, self.data)[0] for question in questions)
        if num_absent:
            note = f"{num_absent:,} answers do not stand in their contexts, and so cannot be marked there"
            found |= {"absent_answers": num_absent, "notes": [note]}
        return found

    @staticmethod
    def error(net: Any, batches: SpanBatches) -> float:
        """The part of the answers that are marked wrongly."""
        wrong, total = 0, 0
        for batch in one_pass(batches):
            spans = net.predict(batch.sources, batch.source_lengths)
            first, last = spans.first[:, 0], spans.last[:, 0]
            is_right = (batch.starts == first[:, None]).any(1) & (last - first + 1 == batch.sizes)
            wrong += int((~is_right).sum())
            total += len(is_right)
        return wrong / total


class Writer(PassageAnswerer):
    """Answers are written, of the words that answers have in training."""

    def __init__(
        self, record: store.TaskRecord, words: WordList, answers: Tokenizer, net: Any, directory: Path | None = None
    ) -> None:
        super().__init__(record, words, net, directory)
        self.answers = answers

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Found]:
        """Answers, one for each question."""
        return self._answer_all(questions, beam=beam)

    def _answer(self, read: Read, *, beam: int | None) -> list[Found]:
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
        targets = np.full((len(written), max(map(len, written))), EOS_ID)
        for row, tokens in enumerate(written):
            targets[row, : len(tokens)] = tokens
        looked = self.net.pairs.attention_weights(read.sources, read.lengths, targets)
        found = []
        for row, words in enumerate(read.places):
            shares: dict[str, float] = {}
            for one in hypotheses[row]:
                shares.setdefault(self._text(one), math.exp(-one.nats))
            weights = looked[row, : len(written[row]), : len(words) + 1]
            surfaces = (*read.surfaces(row), EOS)
            found.append(Found(self._text(hypotheses[row][0]), shares, words=surfaces, attention=weights))
        return found

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.answers.decode(token for token in hypothesis.tokens if token != EOS_ID)
