"""The task `qa`: questions about short texts become a reader and its batches."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import config, store
from elman.api.answerer import Answerer
from elman.api.runs import Report
from elman.api.tasks import Prepared, Read, Request, Task, refuse_stream_settings
from elman.api.word_vectors import vector_tensors, vector_words
from elman.config import ReaderConfig, StoriesConfig, TrainConfig
from elman.errors import DataError
from elman.lm import Array
from elman.text.pair_batches import begins_of
from elman.text.stories import (
    Question,
    StoryBatches,
    StoryRows,
    encode_stories,
    pack_questions,
    read_stories,
    split_sentence,
)
from elman.text.tokenizer import Tokenizer
from elman.text.vocabulary import EOS_ID, UNK_ID
from elman.text.word_list import WordList, learn_words
from elman.train.plan import Plan
from elman.train.plan_pairs import BETA1, say_chosen

if TYPE_CHECKING:
    from elman.train.ending import Examiner
    from elman.train.forward import Batches

BATCH, RATE = 32, 0.003
UNSEEN = -1  # the number of an answer that was not in training


class QaTask(Task):
    """Stories and questions about them."""

    def prepare(self, request: Request) -> Prepared:
        """Read the questions, learn words and answers."""
        data: StoriesConfig = config.make(StoriesConfig, request.settings["data"], section="data")
        model: ReaderConfig = config.make(ReaderConfig, request.settings["model"], section="model")
        refuse_stream_settings("qa", request.settings["train"])
        questions, num_dropped = read_stories(request.data, data)
        notes = [f"{num_dropped:,} bad lines were dropped"] * bool(num_dropped)
        training, heldout = questions, list[Question]()
        if request.holds_out:
            training, heldout = _split(questions, data.heldout)
            notes.append(f"{len(heldout):,} of {len(questions):,} questions are held out")
        if request.valid is not None:
            heldout, _ = read_stories(request.valid, data)
        labels = tuple(sorted({question.answer for question in training}))
        if len(labels) < 2:
            raise DataError(f"every question has the same answer, {labels[0]!r}: there is nothing to learn")
        words = learn_words(
            _count_words(training, data),
            min_count=data.min_count,
            max_words=data.max_words,
            more_words=vector_words(model),
            folds_case=model.vectors is not None,
        )
        vectors, said = vector_tensors(model, words.tokenizer)
        longest = max(len(question.context) for question in training)
        notes += [
            *said,
            f"{len(labels):,} answers, {words.tokenizer.vocab_size - 2:,} words, up to {longest} sentences",
        ]
        num_cut = sum(len(question.context) > data.max_sentences for question in training)
        if num_cut:
            notes.append(f"of {num_cut:,} contexts only the last {data.max_sentences} sentences are read")
        for sentence in notes:
            request.report(sentence)
        (train_rows, valid_rows), table = encode_stories([training, heldout], words, data)
        tensors = {"sentences": table, **_tensors("train", train_rows, training, labels), **vectors}
        if heldout:
            tensors |= _tensors("valid", valid_rows, heldout, labels)
            tensors["valid_text"] = np.frombuffer(pack_questions(heldout), dtype=np.uint8)
        packed = pack_questions(training)
        record = store.TaskRecord(
            task="qa",
            data=data,
            model=model,
            labels=labels,
            seed=request.seed,
            source=store.Source(
                fingerprint=hashlib.blake2b(packed, digest_size=8).hexdigest(),
                lines=len(training),
                tokens=len(train_rows.contexts),
                bytes=len(packed),
            ),
            command=request.command,
            notes=tuple(notes),
        )
        return Prepared(record, words.tokenizer.files(), tensors, request.settings)

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """The usual sizes: these nets are small, and what they need is passes."""
        model, train = prepared.settings["model"], prepared.settings["train"]
        chosen: dict[str, Any] = {}
        settings: dict[str, Any] = {} if "batch" in train else {"batch": BATCH}
        if train.get("optimiser", "adam") in ("adam", "adamw"):
            settings |= {k: v for k, v in {"learning_rate": RATE, "beta1": BETA1}.items() if k not in train}
        num_rows, num_sentences = len(prepared.tensors["train_answers"]), len(prepared.tensors["train_contexts"])
        hidden = int(model.get("hidden", ReaderConfig.model_fields["hidden"].default))
        work = 6.0 * num_sentences * 2 * 3 * hidden * 6 * hidden
        passes = 0.25 * seconds * flops_per_second / work
        return Plan(chosen, settings, say_chosen(chosen, settings, seconds, passes, f"{num_rows:,} questions"))

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.models.reader import ReaderModel

        vocab_size = Tokenizer.from_files(read).vocab_size
        contexts = np.asarray(tensors["train_contexts"])
        return ReaderModel(
            record.model,  # type: ignore[arg-type]
            vocab_size=vocab_size,
            num_answers=len(record.labels),
            rng=torch.Generator().manual_seed(record.seed),
            counts=_counts(tensors, vocab_size),
            vectors=np.array(tensors["vectors"]) if "vectors" in tensors else None,
            usual_length=len(contexts) / max(1, int(np.count_nonzero(contexts == EOS_ID))),
        )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training questions, to descend on."""
        return _batches("train", tensors, train, seed=record.seed)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the part of the held-out questions that are answered wrongly."""
        from elman.train.ending import LossExaminer

        if "valid_answers" not in tensors or (np.asarray(tensors["valid_answers"]) == UNSEEN).all():
            return None
        batches = _batches("valid", tensors, train)
        return LossExaminer(net, batches, error=lambda: Answerer.error(net, batches))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.models.reader import ReaderModel

        model: ReaderConfig = record.model  # type: ignore[assignment]
        return ReaderModel.from_tensors(model, tensors).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Answerer:
        """The net with its words."""
        model: ReaderConfig = record.model  # type: ignore[assignment]
        words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
        return Answerer(record, words, net, directory)


def _batches(part: str, tensors: Mapping[str, Array], train: TrainConfig, *, seed: int = 0) -> StoryBatches:
    """Questions whose answers were seen in training: only of these there is a likelihood."""
    contexts, asked = np.asarray(tensors[f"{part}_contexts"]), np.asarray(tensors[f"{part}_questions"])
    answers = np.asarray(tensors[f"{part}_answers"])
    row = np.cumsum(contexts == EOS_ID) - (contexts == EOS_ID)
    is_known = answers != UNSEEN
    rows = StoryRows(contexts[is_known[row]], asked[is_known])
    table = np.asarray(tensors["sentences"])
    return StoryBatches(rows, table, answers[is_known], rows_per_step=train.batch or BATCH, seed=seed)


def _tensors(part: str, rows: StoryRows, questions: Sequence[Question], labels: Sequence[str]) -> dict[str, Array]:
    numbers = {label: number for number, label in enumerate(labels)}
    answers = np.array([numbers.get(question.answer, UNSEEN) for question in questions], dtype=np.int64)
    return {f"{part}_contexts": rows.contexts, f"{part}_questions": rows.questions, f"{part}_answers": answers}


def _counts(tensors: Mapping[str, Array], vocab_size: int) -> Array:
    """How often each word is read in training: a sentence as often as it is there."""
    table = np.asarray(tensors["sentences"])
    used = np.concatenate([np.asarray(tensors["train_contexts"]), np.asarray(tensors["train_questions"])])
    times = np.bincount(used, minlength=len(begins_of(table)) - 1)
    times[EOS_ID] = 0
    per_word = np.repeat(times, np.diff(begins_of(table)))
    counts = np.bincount(table, weights=per_word, minlength=vocab_size)
    counts[[UNK_ID, EOS_ID]] = 0
    return counts


def _count_words(questions: Sequence[Question], data: StoriesConfig) -> Counter[str]:
    sentences = Counter(text for one in questions for text in (*one.context, one.question))
    counts: Counter[str] = Counter()
    for text, times in sentences.items():
        for word in split_sentence(text, data):
            counts[word] += times
    return counts


def _split(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Stories to train on and to hold out, whole: which ones depends on their first sentences alone."""
    keys = np.array([zlib.crc32("\n".join(one.context[:2]).encode()) for one in questions], dtype=np.uint32)
    last = np.sort(keys)[max(1, int(len(keys) * share)) - 1]
    kept = [one for one, key in zip(questions, keys, strict=True) if key > last]
    held = [one for one, key in zip(questions, keys, strict=True) if key <= last]
    return (kept, held) if kept else (list(questions), [])
