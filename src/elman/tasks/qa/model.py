"""Answers to questions about texts, and how many are right: what all kinds share, and answers that are chosen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.kind import OF_WORDS, of_cells
from elman.explain.reading import AttentionMap, Reading, refuse_long
from elman.store import LabelRecord
from elman.tasks.base import EvaluateOptions, NetModel, Prediction, PredictOptions, ShouldStop
from elman.tasks.label_metrics import class_numbers
from elman.tasks.measuring import part_notes, rounded, rows_in_time
from elman.tasks.qa.assets import QaAssets
from elman.tasks.qa.config import ReaderConfig, StoriesConfig
from elman.tasks.qa.stories import (
    Question,
    Stories,
    StoryBatches,
    StoryReader,
    cut_sentences,
    encode_stories,
    look_up,
    read_stories,
    split_sentence,
)
from elman.tasks.word_vectors import written_words
from elman.text.batches import one_pass
from elman.text.readers import Sources
from elman.text.rows import begins_of, like_length, padded
from elman.text.units.forms import normalize
from elman.text.units.vocabulary import EOS, UNK_ID

QaRecord = LabelRecord[StoriesConfig, ReaderConfig]

READ_SENTENCES = 4000  # sentences in one batch of contexts, padding included
SHOWN_ANSWERS = 10  # answers whose probabilities are shown


@dataclass(frozen=True)
class Answer(Prediction):
    """An answer, the probabilities of it and of others, and what was seen in the context."""

    question: str
    text: str
    probabilities: Mapping[str, float]
    sentences: tuple[str, ...] = ()  # that a chosen answer looked at
    words: tuple[str, ...] = field(default=(), repr=False)  # of the context, for an answer that is marked or written
    attention: Array | None = field(default=None, repr=False)  # (hops, sentences), or (words written, words)
    begins: Array | None = field(default=None, repr=False)  # (words,): how likely an answer begins there
    ends: Array | None = field(default=None, repr=False)  # (words,)

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return self.probabilities.get(self.text, 0.0)

    def line(self) -> str:
        """The answer on one line."""
        return " ".join(self.text.split("\n"))

    def as_json(self) -> dict[str, Any]:
        """With the likeliest answers; of what was seen in the context, what its kind of answers has."""
        shares = sorted(self.probabilities.items(), key=lambda item: -item[1])[:SHOWN_ANSWERS]
        record: dict[str, Any] = {"question": self.question, "answer": self.text}
        record["probabilities"] = {answer: rounded(share) for answer, share in shares}
        if self.words:
            record["words"] = list(self.words)
        elif self.attention is not None:
            record["sentences"] = list(self.sentences)
        for name, array in (("attention", self.attention), ("begins", self.begins), ("ends", self.ends)):
            if array is not None:
                record[name] = rounded(array)
        return record


class QaModel(NetModel[QaRecord, QaAssets]):
    """A net with its words. A kind of answers says how it finds them and what it is measured by."""

    what: str = "answers"  # its answers are, for errors
    searches: bool = False  # whether a beam applies

    predict_takes = evaluate_takes = frozenset({"beam"})  # refused below by the kinds that do not search

    def __init__(self, record: QaRecord, assets: QaAssets, net: Any, directory: Path | None = None) -> None:
        super().__init__(record, assets, net, directory)
        self.words = assets.words
        self.data = record.data
        self.config = record.model

    def vocabulary(self) -> str:
        """Its words."""
        return f"{self.words.tokenizer.vocab_size:,} words"

    @abstractmethod
    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Answer]:
        """Answers, one for each question. A beam is for those that are written."""

    @abstractmethod
    def numbers_of(self, questions: Sequence[Question], answers: Sequence[Answer]) -> dict[str, Any]:
        """How good some answers are."""

    def predict(self, context: str | Sequence[str], question: str) -> str:
        """The answer to a question about a text, or a list of sentences."""
        given = cut_sentences(context) if isinstance(context, str) else context
        *sentences, asked = (normalize(text, self.data.normalize) for text in (*given, question))
        return self.answer([Question(tuple(sentences), asked, "")])[0].text

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """What the answer is made of, where it was looked for, and what the layers do."""
        return ("saliency", "attention", *of_cells(self.config.family), *OF_WORDS)

    def question_in(self, text: str) -> Question:
        """A question and its context as `predict` reads them from a line: context, tab, question."""
        context, tab, question = text.rpartition("\t")
        if not tab or not split_sentence(question, self.data):
            raise UsageError(
                f"{text[:60]!r} is not a context, a tab and a question",
                code="unsuitable-text",
                hint="write CONTEXT<tab>QUESTION",
            )
        return Question(tuple(cut_sentences(context)), question, "")

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those of contexts and questions."""
        (name,) = (name for name in self.tensors() if name.endswith("reader.embedding.weight"))
        return written_words(self.words.tokenizer, self.tensors()[name])

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Where it looked for the answer: each look at the sentences, each word of a written answer at the context's."""
        answer = self.answer([self.question_in(text)])[0]
        if answer.attention is None:  # marked: how likely the answer begins and ends at each word
            assert answer.begins is not None and answer.ends is not None
            rows, weights = ["begins", "ends"], np.stack([answer.begins, answer.ends])
            return [AttentionMap(f"answer: {answer.text}", rows, answer.words, weights)]
        columns = answer.words or answer.sentences
        rows = [f"look {number}" for number in range(1, len(answer.attention) + 1)]
        if answer.words:
            rows = [*answer.text.split(), EOS][: len(answer.attention)]
            rows += [f"word {number}" for number in range(len(rows) + 1, len(answer.attention) + 1)]
        return [AttentionMap(f"answer: {answer.text}", rows, columns, answer.attention[:, : len(columns)])]

    def _encode_row(self, text: str) -> Array:
        """The numbers of a text's words, as those of a sentence or a question."""
        return np.array([self.words.number(word) for word in split_sentence(text, self.data)], dtype=np.int64)

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Answer]:
        """An answer for every question."""
        self._check_beam(options.beam)
        reader = StoryReader(sources, self.data.reading(options.errors), needs_answers=False, keep_bad=True)
        for questions in reader.blocks():
            answers = iter(self.answer([one for one in questions if not one.is_bad], beam=options.beam))
            yield from (Answer("", "", {}) if one.is_bad else next(answers) for one in questions)

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """The share of the answers that are right, and what else is said of them."""
        self._check_beam(options.beam)
        questions, num_dropped = read_stories(data, self.data.reading(options.errors))
        found = self.numbers(questions, beam=options.beam, should_stop=lambda: False)
        assert found is not None
        extra: dict[str, Any] = {"dropped_lines": num_dropped} if num_dropped else {}
        return found | extra

    def pictures(self, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What was taken for what, where answers are chosen."""
        return [pictures.confusion_map(**numbers["confusions"])] if "confusions" in numbers else []

    def numbers(
        self, questions: Sequence[Question], *, should_stop: ShouldStop, beam: int | None = None
    ) -> dict[str, Any] | None:
        """Numbers of questions, for as long as there is time; None where there was none at all."""
        seen: list[Question] = []
        answers: list[Answer] = []
        for chunk in rows_in_time(len(questions), should_stop):
            seen += [questions[i] for i in chunk]
            answers += self.answer(seen[len(answers) :], beam=beam)
        if not seen:
            return None
        found = self.numbers_of(seen, answers)
        notes = [*part_notes(len(seen), len(questions), "questions"), *found.get("notes", ())]
        return found | ({"notes": notes} if notes else {})

    def _check_beam(self, beam: int | None) -> None:
        if beam is not None and not self.searches:
            raise UsageError(f"--beam does not apply to {self.what}", code="does-not-apply", hint="leave it out")


class ChosenAnswers(QaModel):
    """Answers are chosen from those of training."""

    what = "answers that are chosen"

    def answer(self, questions: Sequence[Question], *, beam: int | None = None) -> list[Answer]:
        """Answers, one for each question."""
        labels = self.record.labels
        found: dict[int, Answer] = {}
        for chunk in like_length([len(question.context) for question in questions], tokens=READ_SENTENCES):
            stories = self._stories([questions[i] for i in chunk])
            lengths = stories.context_lengths + 1
            shares, looked = self.net.predict(stories)
            for row, i in enumerate(chunk):
                probabilities = dict(zip(labels, shares[row].tolist(), strict=True))
                label = labels[int(shares[row].argmax())]
                size = int(lengths[row]) - 1
                sentences = questions[i].context[len(questions[i].context) - size :]
                attention = looked[row, :, :size]
                found[i] = Answer(questions[i].question, label, probabilities, sentences, attention=attention)
        return [found[i] for i in range(len(questions))]

    def _stories(self, questions: Sequence[Question]) -> Stories:
        (rows,), table = encode_stories([questions], self.words, self.data)
        contexts, lengths = padded(rows.contexts, begins_of(rows.contexts), np.arange(len(questions)))
        return look_up(table, begins_of(table), contexts[:, :-1], lengths - 1, rows.questions)

    def reading(self, text: str) -> Reading:
        """Context and question as the net reads them, each sentence once; what is predicted is the answer."""
        stories = self._stories([self.question_in(text)])
        sizes = stories.sentence_lengths.tolist()
        sentences = [row[:size] for row, size in zip(stories.sentences, sizes, strict=True)]
        ids = np.concatenate(sentences)
        refuse_long(ids)
        chosen = self.net.predict(stories)[0].argmax(axis=1)
        return Reading(
            tokens=[self.words.tokenizer.tokens[i] for i in ids],
            is_known=(ids != UNK_ID).tolist(),
            rows=["answer"],
            columns=self.record.labels,
            chosen=chosen,
            words=lambda: self.net.words_read(sentences),
            trace=lambda words: self.net.trace(stories, words),
            unrecorded=lambda: self.net.scores(stories)[0, chosen],
        )

    def numbers_of(self, questions: Sequence[Question], answers: Sequence[Answer]) -> dict[str, Any]:
        """The part that is right, and a report by answer."""
        confidence = np.array([one.confidence for one in answers])
        wanted = [question.answer for question in questions]
        found = class_numbers([one.text for one in answers], wanted, confidence)
        unseen = sorted(set(wanted) - set(self.record.labels))
        if unseen:
            note = f"answers that were never seen in training, and so are never right: {', '.join(unseen[:10])}"
            found |= {"unseen_labels": unseen, "notes": [note]}
        return found

    @staticmethod
    def error(net: Any, batches: StoryBatches) -> float:
        """The part of the answers that are wrong."""
        said = ((net.predict(batch.stories)[0], batch.answers) for batch in one_pass(batches))
        return share_wrong(shares.argmax(axis=1) == answers for shares, answers in said)


def share_wrong(is_right: Iterable[Array]) -> float:
    """The part of some batches' answers that are wrong."""
    all_right = np.concatenate(list(is_right))
    return int((~all_right).sum()) / len(all_right)
