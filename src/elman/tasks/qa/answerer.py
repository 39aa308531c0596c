"""A reader and its words: answers to questions about texts, and how many are right."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.tasks.base import TaskModel, refuse_beam
from elman.tasks.classify.metrics import class_numbers
from elman.tasks.qa.stories import (
    Question,
    StoryBatches,
    StoryReader,
    cut_sentences,
    encode_stories,
    look_up,
    read_stories,
    unpack_questions,
)
from elman.tasks.reading_config import ReaderConfig
from elman.text.batches import one_pass
from elman.text.readers import Sources
from elman.text.rows import begins_of, padded
from elman.text.settings import StoriesConfig
from elman.text.units.word_list import WordList

READ_SENTENCES = 4000  # at once, padding counted
LOOK_QUESTIONS = 200  # between two looks at the clock


@dataclass(frozen=True)
class Found:
    """An answer, the probabilities of it and of others, and what was seen in the context."""

    answer: str
    probabilities: Mapping[str, float]
    sentences: tuple[str, ...] = ()  # that a chosen answer looked at
    words: tuple[str, ...] = field(default=(), repr=False)  # of the context, for an answer that is marked or written
    attention: Array | None = field(default=None, repr=False)  # (hops, sentences), or (words written, words)
    begins: Array | None = field(default=None, repr=False)  # (words,): how likely an answer begins there
    ends: Array | None = field(default=None, repr=False)  # (words,)

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return self.probabilities.get(self.answer, 0.0)


class Answerer(TaskModel):
    """A net, its words and its story. A kind of answers says how it finds them and what it is measured by."""

    def __init__(self, record: store.TaskRecord, words: WordList, net: Any, directory: Path | None = None) -> None:
        assert isinstance(record.data, StoriesConfig) and isinstance(record.model, ReaderConfig)
        self.record = record
        self.words = words
        self.net = net
        self.directory = directory
        self.data: StoriesConfig = record.data
        self.config: ReaderConfig = record.model

    @abstractmethod
    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Found]:
        """Answers, one for each question. A beam is for those that are written."""

    @abstractmethod
    def mark(self, questions: Sequence[Question], answers: Sequence[Found]) -> dict[str, Any]:
        """How good some answers are."""

    def predict(self, context: str | Sequence[str], question: str) -> str:
        """The answer to a question about a text, or a list of sentences."""
        sentences = cut_sentences(context) if isinstance(context, str) else tuple(context)
        return self.answer([Question(sentences, question, "")])[0].answer

    def answer_lines(self, data: Sources, *, beam: int | None = None) -> Iterator[tuple[list[Question], list[Found]]]:
        """Questions and their answers, as many at a time as were there to read."""
        for questions in StoryReader(data, self.data, needs_answers=False).blocks():
            yield questions, self.answer(questions, beam=beam)

    def evaluate(self, data: Sources, *, beam: int | None = None, seed: int = 1) -> dict[str, Any]:
        """The part of the answers that are right, and what else is said of them."""
        questions, num_dropped = read_stories(data, self.data)
        found = self._numbers(questions, beam=beam, should_stop=lambda: False)
        assert found is not None
        extra: dict[str, Any] = {"dropped_lines": num_dropped} if num_dropped else {}
        return found | extra | {"seed": seed}

    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """The same of the held-out questions among a run's tensors, of a part of them where time is short."""
        if "valid_text" not in tensors:
            return None
        questions = unpack_questions(tensors["valid_text"].tobytes())
        found = self._numbers(questions, beam=None, should_stop=should_stop)
        return None if found is None else {key: value for key, value in found.items() if key != "confusions"}

    def _numbers(
        self, questions: Sequence[Question], *, beam: int | None, should_stop: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Numbers of questions in chance order, until there is no more time; None where there was none at all."""
        order = np.random.default_rng(0).permutation(len(questions)).tolist()
        seen: list[Question] = []
        answers: list[Found] = []
        while len(seen) < len(questions) and not should_stop():
            chunk = [questions[i] for i in order[len(seen) : len(seen) + LOOK_QUESTIONS]]
            answers += self.answer(chunk, beam=beam)
            seen += chunk
        return self.mark(seen, answers) if seen else None


class Chooser(Answerer):
    """Answers are chosen from those of training."""

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Found]:
        """Answers, one for each question."""
        refuse_beam("answers that are chosen", beam)
        labels = self.record.labels
        found: dict[int, Found] = {}
        order = sorted(range(len(questions)), key=lambda i: len(questions[i].context))
        while order:
            most = max(1, READ_SENTENCES // max(1, len(questions[order[-1]].context)))
            chunk, order = order[-most:], order[:-most]
            (rows,), table = encode_stories([[questions[i] for i in chunk]], self.words, self.data)
            contexts, lengths = padded(rows.contexts, begins_of(rows.contexts), np.arange(len(chunk)))
            stories = look_up(table, begins_of(table), contexts[:, :-1], lengths - 1, rows.questions)
            shares, looked = self.net.predict(stories)
            for row, i in enumerate(chunk):
                probabilities = dict(zip(labels, shares[row].tolist(), strict=True))
                label = labels[int(shares[row].argmax())]
                size = int(lengths[row]) - 1
                sentences = questions[i].context[len(questions[i].context) - size :]
                found[i] = Found(label, probabilities, sentences, attention=looked[row, :, :size])
        return [found[i] for i in range(len(questions))]

    def mark(self, questions: Sequence[Question], answers: Sequence[Found]) -> dict[str, Any]:
        """The part that is right, and a report by answer."""
        confidence = np.array([one.confidence for one in answers])
        wanted = [question.answer for question in questions]
        found = class_numbers([one.answer for one in answers], wanted, confidence)
        unseen = sorted(set(wanted) - set(self.record.labels))
        if unseen:
            note = f"answers that were never seen in training, and so are never right: {', '.join(unseen[:10])}"
            found |= {"unseen_labels": unseen, "notes": [note]}
        return found

    @staticmethod
    def error(net: Any, batches: StoryBatches) -> float:
        """The part of the answers that are wrong."""
        wrong, total = 0, 0
        for batch in one_pass(batches):
            shares, _ = net.predict(batch.stories)
            wrong += int((shares.argmax(axis=1) != batch.answers).sum())
            total += len(shares)
        return wrong / total
