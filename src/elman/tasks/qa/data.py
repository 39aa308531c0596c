"""Questions as the tensors of a run, and as batches: what each kind of answers needs of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.qa.config import ReaderConfig, StoriesConfig
from elman.tasks.qa.passages import (
    PassageRows,
    SpanBatches,
    WrittenBatches,
    encode_answers,
    encode_marks,
    encode_passages,
    mark_answer,
)
from elman.tasks.qa.stories import Question, StoryBatches, StoryRows, encode_stories, split_sentence
from elman.text.rows import begins_of, lengths_of, select_rows, split_by_hash
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList
from elman.training.config import TrainConfig

BATCH = 32
UNSEEN = -1  # class of an answer that was not in the training data
Parts = Mapping[str, Sequence[Question]]  # of a run: train and, where something is held out, valid


def make_batches(
    part: str, model: ReaderConfig, tensors: Mapping[str, Array], train: TrainConfig, *, seed: int = 0
) -> StoryBatches | SpanBatches | WrittenBatches | None:
    """Questions of whose answers there is a likelihood: seen in training, marked, or of known words. None without any."""
    if f"{part}_contexts" not in tensors:
        return None
    kept = {name.removeprefix(f"{part}_"): np.asarray(array) for name, array in tensors.items()}
    rows_per_step = train.batch or BATCH
    contexts, asked = kept["contexts"], kept["questions"]
    if model.answer == "span":
        is_known = lengths_of(kept["starts"]) > 1
    elif model.answer == "generated":
        ends = kept["answers"] == EOS_ID
        is_known = np.bincount(np.cumsum(ends) - ends, weights=kept["answers"] == UNK_ID) == 0
    else:
        is_known = kept["answers"] != UNSEEN
    if not is_known.any():
        return None
    if model.answer == "span":
        starts, sizes = select_rows(kept["starts"], is_known), kept["sizes"][is_known]
        passages = PassageRows(contexts, asked).select(is_known)
        return SpanBatches(passages, starts, sizes, rows_per_step=rows_per_step, seed=seed)
    if model.answer == "generated":
        answers = select_rows(kept["answers"], is_known)
        passages = PassageRows(contexts, asked).select(is_known)
        return WrittenBatches(passages, answers, rows_per_step=rows_per_step, seed=seed)
    rows = StoryRows(select_rows(contexts, is_known), asked[is_known])
    return StoryBatches(rows, kept["sentences"], kept["answers"][is_known], rows_per_step=rows_per_step, seed=seed)


def only_marked(questions: Sequence[Question], data: StoriesConfig, notes: list[str]) -> list[Question]:
    """The questions whose answers stand in their contexts; the others are counted."""
    found = [question for question in questions if mark_answer(question, data)[0]]
    num_absent = len(questions) - len(found)
    if not found:
        raise DataError(
            "no answer stands in its context, word for word: there is nothing to mark",
            code="nothing-to-learn",
            hint="model.answer=generated writes answers, model.answer=word chooses from those in training",
        )
    if num_absent:
        notes.append(f"{num_absent:,} questions are left out: their answers do not stand in their contexts")
    return found


def word_tensors(parts: Parts, words: WordList, data: StoriesConfig, *, labels: Sequence[str]) -> dict[str, Array]:
    """Rows of sentences, and the numbers of answers."""
    found, table = encode_stories(list(parts.values()), words, data)
    numbers = {label: number for number, label in enumerate(labels)}
    tensors = {"sentences": table}
    for (part, questions), rows in zip(parts.items(), found, strict=True):
        answers = np.array([numbers.get(question.answer, UNSEEN) for question in questions], dtype=np.int64)
        tensors |= {f"{part}_contexts": rows.contexts, f"{part}_questions": rows.questions, f"{part}_answers": answers}
    return tensors


def span_tensors(parts: Parts, words: WordList, data: StoriesConfig) -> dict[str, Array]:
    """Rows of words, and where answers stand in them."""
    tensors: dict[str, Array] = {}
    for part, questions in parts.items():
        rows = encode_passages(questions, words, data)
        starts, sizes = encode_marks(questions, data)
        tensors |= {f"{part}_contexts": rows.contexts, f"{part}_questions": rows.questions}
        tensors |= {f"{part}_starts": starts, f"{part}_sizes": sizes}
    return tensors


def written_tensors(parts: Parts, words: WordList, answers: Tokenizer, data: StoriesConfig) -> dict[str, Array]:
    """Rows of words, and rows of the words of answers."""
    tensors: dict[str, Array] = {}
    for part, questions in parts.items():
        rows = encode_passages(questions, words, data)
        tensors |= {f"{part}_contexts": rows.contexts, f"{part}_questions": rows.questions}
        tensors[f"{part}_answers"] = encode_answers(questions, answers)
    return tensors


def count_read(tensors: Mapping[str, Array], vocab_size: int) -> Array:
    """How often each word is read in training: a sentence as often as it is there."""
    used = np.concatenate([np.asarray(tensors["train_contexts"]), np.asarray(tensors["train_questions"])])
    if "sentences" in tensors:
        table = np.asarray(tensors["sentences"])
        times = np.bincount(used, minlength=len(begins_of(table)) - 1)
        times[EOS_ID] = 0
        per_word = np.repeat(times, np.diff(begins_of(table)))
        counts = np.bincount(table, weights=per_word, minlength=vocab_size)
    else:
        counts = np.bincount(used, minlength=vocab_size).astype(np.float64)
    counts[[UNK_ID, EOS_ID]] = 0
    return counts


def count_words(questions: Sequence[Question], data: StoriesConfig) -> Counter[str]:
    sentences = Counter(text for one in questions for text in (*one.context, one.question))
    counts: Counter[str] = Counter()
    for text, times in sentences.items():
        for word in split_sentence(text, data):
            counts[word] += times
    return counts


def split_questions(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Stories to train on and to hold out, whole: which ones depends on their first sentences alone."""
    kept, held = split_by_hash(("\n".join(one.context[:2]) for one in questions), share)
    return [questions[row] for row in kept], [questions[row] for row in held]
