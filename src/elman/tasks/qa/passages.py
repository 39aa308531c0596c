"""Contexts as running words, and where in them an answer stands: for readers that mark or write an answer.

As ids, questions and contexts are rows of words. A net reads them as one source: the question, EOS_ID, the context, EOS_ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.qa.config import StoriesConfig
from elman.tasks.qa.stories import Question, split_sentence
from elman.tasks.seq2seq.data import PairBatch
from elman.text.rows import RowBatches, begins_of, lengths_of, padded, select_rows
from elman.text.units.letters import SPACE_MARK, split_words
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList

AnswerKind = Literal["word", "span", "generated"]

FIRST = 2  # offset of word positions in a row of ids: 0 and 1 are reserved in every row
REPEATED = 4  # mean number of times an answer must occur for answers to be chosen from those of training
MARKED = 0.95  # share of answers that must stand in their contexts for answers to be marked there


@dataclass(frozen=True)
class Place:
    """A word of a context: as a net knows it, and which characters of which sentence it is."""

    word: str
    sentence: int
    begin: int
    end: int


def place_words(sentences: Sequence[str], data: StoriesConfig) -> list[Place]:
    """The words of some sentences, one after the other."""
    found = []
    for number, text in enumerate(sentences):
        end = -1  # the first word has a space of its own before it
        for piece in split_words(text):
            begin, end = end + piece.startswith(SPACE_MARK), end + len(piece)
            word = piece.replace(SPACE_MARK, "")
            if word:
                found.append(Place(word.lower() if data.lower_case else word, number, begin, end))
    return found


def span_text(sentences: Sequence[str], places: Sequence[Place], first: int, last: int) -> str:
    """What stands from one word to another, as it was written."""
    one, other = places[first], places[last]
    if one.sentence == other.sentence:
        return sentences[one.sentence][one.begin : other.end]
    between = sentences[one.sentence + 1 : other.sentence]
    return " ".join([sentences[one.sentence][one.begin :], *between, sentences[other.sentence][: other.end]])


def find_answer(answer: Sequence[str], words: Sequence[str]) -> list[int]:
    """Every place at which the words of an answer stand in a context; none for an answer without words."""
    size = len(answer)
    if not size:
        return []
    last = len(words) - size
    return [i for i in range(last + 1) if words[i] == answer[0] and list(words[i : i + size]) == list(answer)]


def read_context(question: Question, data: StoriesConfig) -> tuple[str, ...]:
    """The sentences of a context that are read."""
    return question.context[-data.max_sentences :]


def choose_kind(questions: Sequence[Question], data: StoriesConfig) -> tuple[AnswerKind, str]:
    """How answers are best given, by the look of those of training; and why."""
    num_answers = len({question.answer for question in questions})
    if num_answers * REPEATED <= len(questions):
        return "word", f"there are only {num_answers:,} different ones"
    num_marked = sum(bool(mark_answer(question, data)[0]) for question in questions)
    share = f"{num_marked:,} of {len(questions):,} stand in their contexts"
    return ("span" if num_marked >= MARKED * len(questions) else "generated"), share


def mark_answer(question: Question, data: StoriesConfig) -> tuple[list[int], int]:
    """Where in its context the answer to a question begins, every time, and how many words it has."""
    words = [place.word for place in place_words(read_context(question, data), data)]
    answer = split_sentence(question.answer, data)
    return find_answer(answer, words), len(answer)


@dataclass(frozen=True)
class PassageRows:
    """Questions and their contexts as rows of words, each with EOS_ID behind it."""

    contexts: Array
    questions: Array

    @cached_property
    def _context_begins(self) -> Array:
        return begins_of(self.contexts)

    @cached_property
    def _question_begins(self) -> Array:
        return begins_of(self.questions)

    def select(self, keep: Array) -> PassageRows:
        """Some of the rows. keep (N,) bool"""
        return PassageRows(select_rows(self.contexts, keep), select_rows(self.questions, keep))

    def sources(self, rows: Array) -> tuple[Array, Array]:
        """Some of the rows as a net reads them, and their lengths. -> (B, S), (B,)"""
        contexts, context_lengths = padded(self.contexts, self._context_begins, rows)
        questions, question_lengths = padded(self.questions, self._question_begins, rows)
        return _joined(questions, question_lengths, contexts, context_lengths)


def _joined(questions: Array, question_lengths: Array, contexts: Array, context_lengths: Array) -> tuple[Array, Array]:
    lengths = question_lengths + context_lengths
    found = np.full((len(lengths), int(lengths.max(initial=0))), EOS_ID, dtype=np.int64)
    times = np.arange(found.shape[1])
    is_question = times < question_lengths[:, None]
    is_context = ~is_question & (times < lengths[:, None])
    found[is_question] = questions[np.arange(questions.shape[1]) < question_lengths[:, None]]
    found[is_context] = contexts[np.arange(contexts.shape[1]) < context_lengths[:, None]]
    return found, lengths


def encode_passages(questions: Sequence[Question], words: WordList, data: StoriesConfig) -> PassageRows:
    """Questions and contexts as rows of words; a question without a word is an unknown one."""
    contexts: list[int] = []
    asked: list[int] = []
    for question in questions:
        contexts += [words.number(place.word) for place in place_words(read_context(question, data), data)]
        contexts.append(EOS_ID)
        asked += [words.number(word) for word in split_sentence(question.question, data)] or [UNK_ID]
        asked.append(EOS_ID)
    return PassageRows(np.array(contexts, dtype=np.int32), np.array(asked, dtype=np.int32))


def encode_marks(questions: Sequence[Question], data: StoriesConfig) -> tuple[Array, Array]:
    """Where answers begin, as rows of places (FIRST more) with EOS_ID behind; and how many words each has, (N,)."""
    starts: list[int] = []
    sizes = []
    for question in questions:
        found, size = mark_answer(question, data)
        starts += [FIRST + place for place in found]
        starts.append(EOS_ID)
        sizes.append(size)
    return np.array(starts, dtype=np.int32), np.array(sizes, dtype=np.int64)


def encode_answers(questions: Sequence[Question], answers: Tokenizer) -> Array:
    """Answers as rows of their own words, each with EOS_ID behind it."""
    rows: list[Array] = []
    for question in questions:
        try:
            ids = answers.encode(plain_spaces(question.answer))
        except DataError as error:
            raise DataError(f"{question.place}: {error.what}", code=error.code, hint=error.hint) from None
        rows.append(np.append(ids, EOS_ID))
    return np.concatenate(rows).astype(np.int32)


def plain_spaces(text: str) -> str:
    """A text on one line, with single spaces."""
    return " ".join(text.split())


@dataclass(frozen=True)
class SpanBatch:
    """B sources, and the places in their contexts at which the answers stand: (B, K), -1 behind the last of a row."""

    sources: Array
    source_lengths: Array
    starts: Array
    sizes: Array  # (B,), words of the answer
    scale: float = 1.0


class PassageBatches(RowBatches[Any]):
    """Batches of questions about contexts of like length. What is counted is questions."""

    def __init__(self, passages: PassageRows, *, rows_per_step: int, seed: int) -> None:
        self._passages = passages
        lengths = lengths_of(passages.contexts)
        if not len(lengths):
            raise DataError("there is nothing to train on: there are no questions", code="empty-data")
        super().__init__(lengths, lengths, tokens=max(1, round(rows_per_step * float(lengths.mean()))), seed=seed)
        self._rows_per_step = rows_per_step
        self.tokens_per_epoch = len(lengths)

    @property
    def tokens_per_step(self) -> int:
        """About how many questions a batch has."""
        return min(self._rows_per_step, self.num_rows)


class SpanBatches(PassageBatches):
    """Batches of questions whose answers are marked in their contexts."""

    def __init__(
        self, passages: PassageRows, starts: Array, sizes: Array, *, rows_per_step: int, seed: int = 0
    ) -> None:
        super().__init__(passages, rows_per_step=rows_per_step, seed=seed)
        self._starts, self._begins, self._sizes = starts, begins_of(starts), sizes

    def rows(self, rows: Array) -> SpanBatch:
        """The given questions as a batch."""
        starts, counts = padded(self._starts, self._begins, rows)
        starts = np.where(np.arange(starts.shape[1]) < counts[:, None] - 1, starts - FIRST, -1)[:, :-1]
        return SpanBatch(*self._passages.sources(rows), starts, self._sizes[rows])


class WrittenBatches(PassageBatches):
    """Batches of questions whose answers are rows of words to be written. What is counted is these words."""

    def __init__(self, passages: PassageRows, answers: Array, *, rows_per_step: int, seed: int = 0) -> None:
        super().__init__(passages, rows_per_step=rows_per_step, seed=seed)
        self._answers, self._begins = answers, begins_of(answers)
        self.tokens_per_epoch = len(answers)

    @property
    def tokens_per_step(self) -> int:
        """About how many words of answers a batch has."""
        return max(1, round(self._rows_per_step * self.tokens_per_epoch / self.num_rows))

    def rows(self, rows: Array) -> PairBatch:
        """The given questions as a batch."""
        return PairBatch(*self._passages.sources(rows), *padded(self._answers, self._begins, rows))
