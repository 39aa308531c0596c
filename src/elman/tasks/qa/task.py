"""The task `qa`: questions about short texts become a reader and its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import config, store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.base import Prepared, Read, Request, Task, refuse_stream_settings
from elman.tasks.qa.answerer import Answerer, Chooser
from elman.tasks.qa.passage_answerers import Marker, Writer
from elman.tasks.qa.passages import SpanBatches, choose_kind, plain_spaces
from elman.tasks.qa.question_data import (
    BATCH,
    Parts,
    count_read,
    count_words,
    make_batches,
    only_marked,
    span_tensors,
    split_questions,
    word_tensors,
    written_tensors,
)
from elman.tasks.qa.stories import Question, StoryBatches, pack_questions, read_stories
from elman.tasks.reading_config import ReaderConfig
from elman.tasks.runs import Report
from elman.tasks.seq2seq.data import learn_tokenizer
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.rows import begins_of
from elman.text.settings import StoriesConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID
from elman.text.units.word_list import WordList, learn_words
from elman.training.config import TrainConfig
from elman.training.plan_pairs import BETA1, say_chosen
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

RATE = 0.003
ANSWER_PREFIX = "answer_"  # of the files of the tokenizer of answers that are written


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
            training, heldout = split_questions(questions, data.heldout)
            notes.append(f"{len(heldout):,} of {len(questions):,} questions are held out")
        if request.valid is not None:
            heldout, _ = read_stories(request.valid, data)
        labels = tuple(sorted({question.answer for question in training}))
        if len(labels) < 2:
            raise DataError(f"every question has the same answer, {labels[0]!r}: there is nothing to learn")
        if model.answer is None:
            kind, why = choose_kind(training, data)
            notes.append(f"answers: {kind}, because {why} (model.answer chooses another kind)")
            model = config.make(ReaderConfig, {**request.settings["model"], "answer": kind}, section="model")
        if model.answer == "span":
            training = only_marked(training, data, notes)
        words = learn_words(
            count_words(training, data),
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
        parts = {"train": training, "valid": heldout} if heldout else {"train": training}
        contents, tensors, model = _encode(parts, words, data, model, labels)
        if heldout:
            tensors["valid_text"] = np.frombuffer(pack_questions(heldout), dtype=np.uint8)
        packed = pack_questions(training)
        record = store.TaskRecord(
            task="qa",
            data=data,
            model=model,
            labels=labels if model.answer == "word" else (),
            seed=request.seed,
            source=store.Source(
                fingerprint=hashlib.blake2b(packed, digest_size=8).hexdigest(),
                lines=len(training),
                tokens=len(tensors["train_contexts"]),
                bytes=len(packed),
            ),
            command=request.command,
            notes=tuple(notes),
        )
        return Prepared(record, contents, tensors | vectors, request.settings)

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """The usual sizes: these nets are small, and what they need is passes."""
        model, train = prepared.settings["model"], prepared.settings["train"]
        settings: dict[str, Any] = {} if "batch" in train else {"batch": BATCH}
        if train.get("optimiser", "adam") in ("adam", "adamw"):
            settings |= {k: v for k, v in {"learning_rate": RATE, "beta1": BETA1}.items() if k not in train}
        # sentences, or words of contexts: each is a step of a layer from both sides, at least
        num_rows = int(np.count_nonzero(prepared.tensors["train_contexts"] == EOS_ID))
        num_steps = len(prepared.tensors["train_contexts"])
        hidden = int(model.get("hidden", ReaderConfig.model_fields["hidden"].default))
        work = 6.0 * num_steps * 2 * 3 * hidden * 6 * hidden
        passes = 0.25 * seconds * flops_per_second / work
        made: ReaderConfig = prepared.record.model  # type: ignore[assignment]
        chosen = {"answer": made.answer, **({"longest": made.longest} if made.longest else {})}
        return Plan(chosen, settings, say_chosen({}, settings, seconds, passes, f"{num_rows:,} questions"))

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.tasks.qa.chosen_net import ReaderModel
        from elman.tasks.qa.span_net import SpanReader
        from elman.tasks.qa.written_net import WritingReader

        model: ReaderConfig = record.model  # type: ignore[assignment]
        vocab_size = Tokenizer.from_files(read).vocab_size
        rng = torch.Generator().manual_seed(record.seed)
        contexts = np.asarray(tensors["train_contexts"])
        usual_length = len(contexts) / max(1, int(np.count_nonzero(contexts == EOS_ID)))
        counts = count_read(tensors, vocab_size)
        vectors = np.array(tensors["vectors"]) if "vectors" in tensors else None
        match model.answer:
            case "span":
                return SpanReader(
                    model, vocab_size=vocab_size, rng=rng, counts=counts, vectors=vectors, usual_length=usual_length
                )
            case "generated":
                return WritingReader(
                    model,
                    vocab_size=_read_answers(read).vocab_size,
                    source_vocab_size=vocab_size,
                    rng=rng,
                    counts=counts,
                    vectors=vectors,
                    usual_length=usual_length,
                )
            case _:
                return ReaderModel(
                    model,
                    vocab_size=vocab_size,
                    num_answers=len(record.labels),
                    rng=rng,
                    counts=counts,
                    vectors=vectors,
                    usual_length=usual_length,
                )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training questions, to descend on."""
        found = make_batches("train", record, tensors, train, seed=record.seed)
        assert found is not None
        return found

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the part of the held-out questions that are answered wrongly; what is written, by its likelihood."""
        from elman.training.examiner import LossExaminer

        match make_batches("valid", record, tensors, train):
            case StoryBatches() as stories:
                return LossExaminer(net, stories, error=lambda: Chooser.error(net, stories))
            case SpanBatches() as spans:
                return LossExaminer(net, spans, error=lambda: Marker.error(net, spans))
            case None:
                return None
            case batches:
                return LossExaminer(net, batches)

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.qa.chosen_net import ReaderModel
        from elman.tasks.qa.span_net import SpanReader
        from elman.tasks.qa.written_net import WritingReader

        model: ReaderConfig = record.model  # type: ignore[assignment]
        match model.answer:
            case "span":
                return SpanReader.from_tensors(model, tensors).eval()
            case "generated":
                return WritingReader.from_tensors(model, tensors).eval()
            case _:
                return ReaderModel.from_tensors(model, tensors).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Answerer:
        """The net with its words."""
        model: ReaderConfig = record.model  # type: ignore[assignment]
        words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
        match model.answer:
            case "span":
                return Marker(record, words, net, directory)
            case "generated":
                return Writer(record, words, _read_answers(read), net, directory)
            case _:
                return Chooser(record, words, net, directory)


def _encode(
    parts: Parts, words: WordList, data: StoriesConfig, model: ReaderConfig, labels: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, Array], ReaderConfig]:
    """The files and tensors that a kind of answers needs, and its settings with the longest answer filled in."""
    files = words.tokenizer.files()
    if model.answer == "word":
        return files, word_tensors(parts, words, data, labels=labels), model
    if model.answer == "span":
        tensors = span_tensors(parts, words, data)
        longest = int(tensors["train_sizes"].max())
    else:
        texts = [plain_spaces(question.answer) for question in parts["train"]]
        answers = learn_tokenizer([texts], "word", min_count=1, max_words=data.max_words)
        files |= {ANSWER_PREFIX + name: content for name, content in answers.files().items()}
        tensors = written_tensors(parts, words, answers, data)
        longest = int(np.diff(begins_of(tensors["train_answers"])).max()) - 1
    return files, tensors, model.model_copy(update={"longest": model.longest or longest})


def _read_answers(read: Read) -> Tokenizer:
    return Tokenizer.from_files(lambda name: read(ANSWER_PREFIX + name))
