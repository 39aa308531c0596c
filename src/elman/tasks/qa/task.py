"""The task `qa`: questions about short texts become a reader and its batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.settings import make
from elman.tasks.base import Examples, Prepared, ReadFile, Report, TrainRequest
from elman.tasks.founded_task import FoundedTask, foundation_of, foundation_words, give
from elman.tasks.qa.assets import QaAssets, read_assets
from elman.tasks.qa.config import ReaderConfig, StoriesConfig
from elman.tasks.qa.data import (
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
from elman.tasks.qa.model import ChosenAnswers, QaModel, QaRecord
from elman.tasks.qa.passage_model import MarkedAnswers, WrittenAnswers
from elman.tasks.qa.passages import SpanBatches, choose_kind, plain_spaces
from elman.tasks.qa.stories import Question, StoryBatches, question_from_json, question_to_json, read_stories
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.corpus import learn_tokenizer
from elman.text.rows import count_rows, lengths_of
from elman.text.units.forms import form_of
from elman.text.units.word_list import WordList, learn_words
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan, adam_settings
from elman.training.progress import Wording

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

RATE = 0.003

QaExamples = Examples[QaAssets, list[Question]]


class QaTask(FoundedTask[QaRecord, QaAssets, list[Question]]):
    """Stories and questions about them."""

    name = "qa"
    record_type = QaRecord

    def prepare(self, request: TrainRequest) -> Prepared[QaRecord, QaAssets, list[Question]]:
        """Read the questions, learn words and answers."""
        data: StoriesConfig = self.data_settings(request.settings["data"])
        model: ReaderConfig = self.model_settings(request.settings["model"])
        data, training, heldout, notes = _read_parts(request, data)
        labels = tuple(sorted({question.answer for question in training}))
        if len(labels) < 2:
            raise DataError(
                f"every question has the same answer, {labels[0]!r}: there is nothing to learn", code="nothing-to-learn"
            )
        if model.answer is None:
            kind, why = choose_kind(training, data)
            notes.append(f"answers: {kind}, because {why} (model.answer chooses another kind)")
            model = make(ReaderConfig, {**request.settings["model"], "answer": kind}, section="model")
        if model.answer == "span":
            training = only_marked(training, data, notes)
        base = foundation_of(request)
        words = learn_words(
            count_words(training, data),
            min_count=data.min_count,
            max_words=data.max_words,
            more_words=[*vector_words(model), *foundation_words(base, lower_case=data.lower_case)],
            folds_case=model.vectors is not None,
        )
        vectors, said = vector_tensors(model, words.tokenizer)
        longest = max(len(question.context) for question in training)
        num_words = words.tokenizer.vocab_size - 2
        notes += [*said, f"{len(labels):,} answers, {num_words:,} words, up to {longest} sentences"]
        num_cut = sum(len(question.context) > data.max_sentences for question in training)
        if num_cut:
            notes.append(f"of {num_cut:,} contexts only the last {data.max_sentences} sentences are read")
        request.say(notes)
        parts = {"train": training, "valid": heldout} if heldout else {"train": training}
        encoded = _encode(parts, words, data, model, labels)
        packed = "\n".join(json.dumps(question_to_json(one), ensure_ascii=False) for one in training).encode()
        source = store.Source(
            fingerprint=hashlib.blake2b(packed, digest_size=8).hexdigest(),
            lines=len(training),
            tokens=len(encoded.arrays["train_contexts"]),
            bytes=len(packed),
        )
        record = self.new_record(
            request,
            data=data,
            model=encoded.model,
            source=source,
            notes=notes,
            own={"labels": labels if model.answer == "word" else ()},
        )
        examples = Examples(encoded.assets, encoded.arrays | vectors, heldout or None)
        return Prepared(record, examples, foundation=give(base, words.tokenizer, lower_case=data.lower_case))

    def plan(self, prepared: Prepared[QaRecord, QaAssets, list[Question]], means: Means) -> Plan:
        """The usual sizes: these nets are small, and what they need is passes."""
        settings: dict[str, Any] = {} if "batch" in means.train else {"batch": BATCH}
        settings |= adam_settings(means.train, rate=RATE)
        # sentences, or words of contexts: each is a step of a layer from both sides, at least
        contexts = prepared.examples.arrays["train_contexts"]
        hidden = int(means.model.get("hidden", ReaderConfig.model_fields["hidden"].default))
        work = 6.0 * len(contexts) * 2 * 3 * hidden * 6 * hidden
        passes = 0.25 * means.seconds * means.flops_per_second / work
        made = prepared.record.model
        chosen = {"answer": made.answer, **({"longest": made.longest} if made.longest else {})}
        return Plan(chosen, settings, passes, f"{count_rows(contexts):,} questions")

    def build(self, record: QaRecord, examples: QaExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs
        from elman.tasks.qa.chosen_net import ChoosingNet
        from elman.tasks.qa.span_net import SpanNet
        from elman.tasks.qa.written_net import WritingNet

        arrays, assets = examples.arrays, examples.assets
        vocab_size = assets.words.tokenizer.vocab_size
        inputs = NetInputs(
            vocab_size,
            rng=torch.Generator().manual_seed(record.seed),
            counts=count_read(arrays, vocab_size),
            vectors=np.array(arrays["vectors"]) if "vectors" in arrays else None,
            usual_length=float(lengths_of(arrays["train_contexts"]).mean()),
        )
        match record.model.answer:
            case "span":
                return SpanNet(record.model, inputs)
            case "generated":
                assert assets.answers is not None
                return WritingNet(record.model, inputs, answer_vocab_size=assets.answers.vocab_size)
            case _:
                return ChoosingNet(record.model, inputs, num_labels=len(record.labels))

    def batches(self, record: QaRecord, examples: QaExamples, *, train: TrainConfig) -> Batches:
        """The training questions."""
        found = make_batches("train", record.model, examples.arrays, train, seed=record.seed)
        assert found is not None
        return found

    def examiner(self, record: QaRecord, net: Any, examples: QaExamples, *, train: TrainConfig) -> Examiner | None:
        """Validates by the share of the held-out questions answered wrongly; what is written, by its likelihood."""
        from elman.training.examiner import LossExaminer

        match make_batches("valid", record.model, examples.arrays, train):
            case StoryBatches() as stories:
                return LossExaminer(net, stories, error=lambda: ChosenAnswers.error(net, stories))
            case SpanBatches() as spans:
                return LossExaminer(net, spans, error=lambda: MarkedAnswers.error(net, spans))
            case None:
                return None
            case batches:
                return LossExaminer(net, batches)

    def wording(self, record: QaRecord) -> Wording:
        """Questions, and the share of wrong answers; or the words of answers that are written."""
        if record.model.answer == "generated":
            return Wording("answer tokens")
        return Wording("questions", has_perplexity=False, error="1-accuracy")

    def restore(self, record: QaRecord, assets: QaAssets, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.qa.chosen_net import ChoosingNet
        from elman.tasks.qa.span_net import SpanNet
        from elman.tasks.qa.written_net import WritingNet

        match record.model.answer:
            case "span":
                return SpanNet.from_tensors(record.model, tensors).eval()
            case "generated":
                return WritingNet.from_tensors(record.model, tensors).eval()
            case _:
                return ChoosingNet.from_tensors(record.model, tensors).eval()

    def wrap(self, record: QaRecord, assets: QaAssets, net: Any, directory: Path | None) -> QaModel:
        """The net with its words."""
        match record.model.answer:
            case "span":
                return MarkedAnswers(record, assets, net, directory)
            case "generated":
                return WrittenAnswers(record, assets, net, directory)
            case _:
                return ChosenAnswers(record, assets, net, directory)

    def read_assets(self, record: QaRecord, read: ReadFile) -> QaAssets:
        """What was written."""
        return read_assets(record.model, read)

    def heldout_to_json(self, heldout: list[Question]) -> list[Any]:
        """Context, question and answer a row."""
        return [question_to_json(question) for question in heldout]

    def heldout_from_json(self, rows: list[Any]) -> list[Question]:
        """The questions that were written."""
        return [question_from_json(row) for row in rows]


def _read_parts(
    request: TrainRequest, data: StoriesConfig
) -> tuple[StoriesConfig, list[Question], list[Question], list[str]]:
    """The settings with the form of the texts; questions to train on, held-out ones, and what is to be said of them."""
    questions, num_dropped = read_stories(request.data, data)
    data = data.with_form(form_of(text for question in questions for text in (*question.context, question.question)))
    notes = [f"{num_dropped:,} bad lines were dropped"] * bool(num_dropped)
    training, heldout = questions, list[Question]()
    if request.holds_out:
        training, heldout = split_questions(questions, data.heldout)
        notes.append(f"{len(heldout):,} of {len(questions):,} questions are held out")
    if request.valid is not None:
        heldout, _ = read_stories(request.valid, data)
    return data, training, heldout, notes


class _Encoded(NamedTuple):
    """What a kind of answers needs, and its settings with the longest answer filled in."""

    assets: QaAssets
    arrays: dict[str, Array]
    model: ReaderConfig


def _encode(parts: Parts, words: WordList, data: StoriesConfig, model: ReaderConfig, labels: Sequence[str]) -> _Encoded:
    if model.answer == "word":
        return _Encoded(QaAssets(words), word_tensors(parts, words, data, labels=labels), model)
    if model.answer == "span":
        assets, arrays = QaAssets(words), span_tensors(parts, words, data)
        longest = int(arrays["train_sizes"].max())
    else:
        texts = [plain_spaces(question.answer) for question in parts["train"]]
        answers = learn_tokenizer([texts], "word", min_count=1, max_words=data.max_words)
        assets, arrays = QaAssets(words, answers), written_tensors(parts, words, answers, data)
        longest = int(lengths_of(arrays["train_answers"]).max()) - 1
    return _Encoded(assets, arrays, model.model_copy(update={"longest": model.longest or longest}))
