"""Questions about short texts: bAbI's stories, JSONL, and lines of a context, a question and an answer between tabs.

A context is a list of sentences. As ids, every distinct sentence is spelt out only once, in a table; contexts are rows of
its numbers, from FIRST on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.qa.config import StoriesConfig
from elman.text.readers import SKIP_HINT, Fault, Reader, Sources
from elman.text.records import parser_says
from elman.text.rows import RowBatches, begins_of, padded
from elman.text.units.forms import normalize
from elman.text.units.letters import split_words
from elman.text.units.surfaces import surfaces
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList

FIRST = 2  # id of the first sentence in the table: 0 and 1 are reserved
MAX_SENTENCE = 10_000  # words of a sentence; longer ones are refused
_NUMBERED = re.compile(r"(\d{1,18}) (.+)")
_END = re.compile(r"(?<=[.!?])\s+|\n+")
_RECORD_HINT = 'a record looks like {"context": "...", "question": "...", "answer": "..."}'


@dataclass(frozen=True)
class Question:
    """A question about a context; the answer is empty where it is not known."""

    context: tuple[str, ...]  # sentences
    question: str
    answer: str
    place: str = field(default="", compare=False)
    is_bad: bool = False  # its line was not understood, and such are passed over


def _too_long(question: Question) -> Fault | None:
    """What is wrong with a sentence that no net could read."""
    for text in (*question.context, question.question):
        if len(text) > MAX_SENTENCE and (size := len(split_words(text))) > MAX_SENTENCE:
            return Fault(f"has a sentence of {size:,} words, more than {MAX_SENTENCE:,}", SKIP_HINT, "line-too-long")
    return None


class StoryReader:
    """Reads questions line by line; a story of bAbI grows with its lines, and its line 1 begins another."""

    def __init__(
        self, sources: Sources, data: StoriesConfig, *, needs_answers: bool = True, keep_bad: bool = False
    ) -> None:
        self._reader = Reader(sources, data, keep_records=True, keep_lines=keep_bad)
        self._keeps_bad = keep_bad
        self._needs_answers = needs_answers
        self._story: list[str] = []
        self._last = 0  # the number of the line before, in a story

    @property
    def num_dropped(self) -> int:
        return self._reader.num_dropped

    def blocks(self) -> Iterator[list[Question]]:
        """The questions that were there to read."""
        for lines in self._reader.blocks():
            found = []
            for index, line in enumerate(lines.split()):
                text = line.decode()
                if not text.strip():
                    continue
                parsed = self._record(text) if lines.has_records else self._line(text)
                if isinstance(parsed, Question):
                    parsed = _too_long(parsed) or parsed
                place = f"line {lines.number(index)} of {lines.source}"
                if isinstance(parsed, Fault):
                    self._reader.drop(lines, index, parsed)
                    if self._keeps_bad:
                        found.append(Question((), "", "", place, is_bad=True))
                elif parsed is not None:
                    found.append(replace(self._in_form(parsed, lines.source), place=place))
            if found:
                yield found

    def _in_form(self, question: Question, source: str) -> Question:
        """A question as it is to be read."""
        context = tuple(self._reader.read_text(sentence, source) for sentence in question.context)
        asked, answer = (self._reader.read_text(text, source) for text in (question.question, question.answer))
        return Question(context, asked, answer)

    def _line(self, text: str) -> Question | Fault | None:
        """A question, or None for a sentence that only tells."""
        numbered = _NUMBERED.fullmatch(text.strip())
        columns = [column.strip() for column in (numbered[2] if numbered else text).split("\t")]
        if numbered is None:
            needed = 3 if self._needs_answers else 2
            if len(columns) < needed or not all(columns[:needed]):
                what = "context, question and answer" if needed == 3 else "context and question"
                return Fault(f"has no {what} with tabs between", f"bAbI's lines begin with numbers; {SKIP_HINT}")
            return Question(cut_sentences(columns[0]), columns[1], columns[2] if len(columns) > 2 else "")
        number = int(numbered[1])
        if number <= self._last or number == 1:
            self._story = []
        self._last = number
        if len(columns) == 1 and not columns[0].endswith("?"):
            self._story.append(columns[0])
            return None
        if not columns[0] or (self._needs_answers and (len(columns) < 2 or not columns[1])):
            return Fault("has a question without an answer", f"a tab stands between them; {SKIP_HINT}")
        return Question(tuple(self._story), columns[0], columns[1] if len(columns) > 1 else "")

    def _record(self, text: str) -> Question | Fault:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            return Fault("is not JSON", f"{parser_says(error)}; {SKIP_HINT}")
        if not isinstance(record, dict):
            return Fault("is not a JSON object", f"{_RECORD_HINT}; {SKIP_HINT}")
        context, question, answer = (record.get(name) for name in ("context", "question", "answer"))
        if isinstance(context, str):
            context = list(cut_sentences(context))
        if not isinstance(context, list) or not all(isinstance(sentence, str) for sentence in context):
            return Fault("has no `context` of text or sentences", f"{_RECORD_HINT}; {SKIP_HINT}")
        if not isinstance(question, str) or not question.strip():
            return Fault("has no `question`", f"{_RECORD_HINT}; {SKIP_HINT}")
        if not isinstance(answer, str) or not answer.strip():
            if self._needs_answers:
                return Fault("has no `answer`", f"{_RECORD_HINT}; {SKIP_HINT}")
            answer = ""
        return Question(tuple(context), question, answer.strip())


def read_stories(sources: Sources, data: StoriesConfig) -> tuple[list[Question], int]:
    """All questions, and how many bad lines were dropped."""
    reader = StoryReader(sources, data)
    found = [question for block in reader.blocks() for question in block]
    if not found:
        raise DataError(
            "there are no questions in the input",
            code="empty-data",
            hint="bAbI, JSONL, or context TAB question TAB answer",
        )
    return found, reader.num_dropped


def cut_sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text: it is cut behind full stops, question marks and exclamation marks."""
    return tuple(sentence for sentence in (part.strip() for part in _END.split(text)) if sentence)


def split_sentence(text: str, data: StoriesConfig) -> list[str]:
    """A sentence as words."""
    words = [word for word in surfaces(normalize(text, data.normalize), "word") or () if word]
    return [word.lower() for word in words] if data.lower_case else words


@dataclass(frozen=True)
class StoryRows:
    """Questions as ids: contexts as rows of sentences, each with EOS_ID behind it; the questions' own sentences."""

    contexts: Array
    questions: Array  # (N,)


def encode_stories(
    groups: Sequence[Sequence[Question]], words: WordList, data: StoriesConfig
) -> tuple[list[StoryRows], Array]:
    """Rows of some groups of questions, and the table of all sentences: rows of words, the first two empty."""
    numbers: dict[str, int] = {}
    rows = []
    for questions in groups:
        ids: list[int] = []
        for one in questions:
            ids += [numbers.setdefault(text, FIRST + len(numbers)) for text in one.context[-data.max_sentences :]]
            ids.append(EOS_ID)
        asked = [numbers.setdefault(one.question, FIRST + len(numbers)) for one in questions]
        rows.append(StoryRows(np.array(ids, dtype=np.int32), np.array(asked, dtype=np.int64)))
    table: list[int] = [EOS_ID] * FIRST
    for text in numbers:
        table += [words.number(word) for word in split_sentence(text, data)] or [UNK_ID]
        table.append(EOS_ID)
    return rows, np.array(table, dtype=np.int32)


@dataclass(frozen=True)
class Stories:
    """B questions about contexts of up to S sentences; `contexts` and `questions` say which row of `sentences` each is."""

    sentences: Array  # (U, T) words
    sentence_lengths: Array  # (U,)
    contexts: Array  # (B, S)
    context_lengths: Array  # (B,)
    questions: Array  # (B,)


@dataclass(frozen=True)
class StoryBatch:
    """Questions and the numbers of their answers, (B,)."""

    stories: Stories
    answers: Array
    scale: float = 1.0


class StoryBatches(RowBatches[StoryBatch]):
    """Batches of questions about contexts of like length. What is counted is questions."""

    def __init__(self, rows: StoryRows, table: Array, answers: Array, *, rows_per_step: int, seed: int = 0) -> None:
        self._rows, self._begins, self._answers = rows, begins_of(rows.contexts), answers
        self._table = table
        self._table_begins = begins_of(table)
        lengths = np.diff(self._begins)
        if not len(lengths):
            raise DataError("there is nothing to train on: there are no questions", code="empty-data")
        tokens = max(1, round(rows_per_step * float(lengths.mean())))
        super().__init__(lengths, lengths, tokens=tokens, seed=seed)
        self._rows_per_step = rows_per_step
        self.tokens_per_epoch = len(lengths)

    @property
    def tokens_per_step(self) -> int:
        """About how many questions a batch has."""
        return min(self._rows_per_step, self.num_rows)

    def rows(self, rows: Array) -> StoryBatch:
        """The given questions as a batch."""
        contexts, lengths = padded(self._rows.contexts, self._begins, rows)
        stories = look_up(self._table, self._table_begins, contexts[:, :-1], lengths - 1, self._rows.questions[rows])
        return StoryBatch(stories, self._answers[rows])


def look_up(table: Array, begins: Array, contexts: Array, lengths: Array, questions: Array) -> Stories:
    """Rows of sentences as a net reads them."""
    everything = np.concatenate([contexts.ravel(), questions])
    distinct, places = np.unique(everything, return_inverse=True)
    sentences, sizes = padded(table, begins, distinct)
    size = contexts.size
    return Stories(sentences[:, :-1], sizes - 1, places[:size].reshape(contexts.shape), lengths, places[size:])


def question_to_json(question: Question) -> list[Any]:
    """Context, question and answer."""
    return [list(question.context), question.question, question.answer]


def question_from_json(row: list[Any]) -> Question:
    """A question that was written."""
    context, question, answer = row
    return Question(tuple(context), question, answer)
