"""The task `classify`: texts with labels become a classifier, its batches, and a linear baseline beside it."""

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
from elman.tasks.classify.data import (
    LabelBatches,
    choose_units,
    count_words,
    encode_texts,
    labels_of_row,
    number_of_row,
    read_labelled,
    split_text,
)
from elman.tasks.classify.model import Classifier
from elman.tasks.reading_config import ClassifierConfig
from elman.tasks.runs import Report
from elman.tasks.seq2seq.data import split_pairs
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.settings import LabelledConfig
from elman.text.tables import Pairs
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList, learn_words
from elman.training.config import TrainConfig
from elman.training.plan_rows import plan_reading
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

LINEAR = "linear.safetensors"
DROPOUT = 0.5
USUAL_BATCH = 32
MAX_WORDS = 6000  # of a step
ENOUGH_PASSES = 8.0  # with 27, none of four nets was better, and all were far too sure
MANY_ROWS = 20  # from which on a label that only the first row has is strange
UNSEEN = -1  # the class of a text whose label was not in training


class ClassifyTask(Task):
    """Sentiment, spam, topics, stars: whatever is said of a whole text."""

    def prepare(self, request: Request) -> Prepared:
        """Read the texts, learn words and labels, and fit the baseline."""
        data: LabelledConfig = config.make(LabelledConfig, request.settings["data"], section="data")
        model: ClassifierConfig = config.make(ClassifierConfig, request.settings["model"], section="model")
        refuse_stream_settings("classify", request.settings["train"])
        pairs = read_labelled(request.data, data)
        notes = pairs.notes() + _lone_first_label(pairs, model)
        training, heldout = pairs, None
        if request.holds_out:
            training, heldout = split_pairs(pairs, data.heldout)
            notes.append(f"{len(heldout) if heldout else 0:,} of {len(pairs):,} texts are held out")
        if request.valid is not None:
            heldout = read_labelled(request.valid, data)
        units, more = choose_units(training.sources, data)
        data = data.model_copy(update={"units": units})
        labels = _labels(training, model)
        texts = [split_text(text, data) for text in training.sources]
        words = learn_words(
            count_words(texts),
            min_count=data.min_count,
            max_words=data.max_words,
            more_words=vector_words(model),
            folds_case=model.vectors is not None,
        )
        vectors, said = vector_tensors(model, words.tokenizer)
        ids, targets = encode_texts(texts, words), _targets(training, labels, model)
        num_cut = sum(len(text) == data.max_length for text in texts)
        notes += [*more, *said, f"{len(labels):,} labels, {words.tokenizer.vocab_size - 2:,} words"]
        if num_cut:
            notes.append(f"{num_cut:,} texts are longer than {data.max_length:,} words: half is read from either end")
        contents = dict(words.tokenizer.files())
        if model.baseline:
            contents[LINEAR] = _fit_linear(texts, targets, model, labels)
        for sentence in notes:
            request.report(sentence)
        tensors = {"train_ids": ids, "train_targets": targets, **vectors}
        if heldout is not None:
            heldout_texts = [split_text(text, data) for text in heldout.sources]
            tensors |= _heldout_tensors(heldout, encode_texts(heldout_texts, words), _targets(heldout, labels, model))
        record = store.TaskRecord(
            task="classify",
            data=data,
            model=model,
            labels=labels,
            seed=request.seed,
            source=store.Source(
                fingerprint=_fingerprint(training),
                lines=len(training),
                tokens=len(ids) - len(training),
                bytes=sum(len(text.encode()) + 1 for text in training.sources),
            ),
            command=request.command,
            notes=tuple(notes),
        )
        return Prepared(record, contents, tensors, request.settings)

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""
        ids = prepared.tensors["train_ids"]
        return plan_reading(
            num_rows=int(np.count_nonzero(ids == EOS_ID)),
            num_tokens=len(ids),
            rows="texts",
            seconds=seconds,
            flops_per_second=flops_per_second,
            model=prepared.settings["model"],
            train=prepared.settings["train"],
            dropout=DROPOUT,
            max_tokens=MAX_WORDS,
            enough_passes=ENOUGH_PASSES,
        )

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.tasks.classify.net import ClassifierModel

        vocab_size = Tokenizer.from_files(read).vocab_size
        model: ClassifierConfig = record.model  # type: ignore[assignment]
        ids, targets = np.asarray(tensors["train_ids"]), np.asarray(tensors["train_targets"])
        counts = np.bincount(ids, minlength=vocab_size)
        counts[[UNK_ID, EOS_ID]] = 0
        is_number = model.output == "linear"
        return ClassifierModel(
            model,
            vocab_size=vocab_size,
            num_labels=max(1, len(record.labels)),
            rng=torch.Generator().manual_seed(record.seed),
            counts=counts,
            vectors=np.array(tensors["vectors"]) if "vectors" in tensors else None,
            centre=float(targets.mean()) if is_number else 0.0,
            spread=(float(targets.std()) or 1.0) if is_number else 1.0,
            usual_length=len(ids) / len(targets),
        )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training texts, to descend on."""
        ids = np.asarray(tensors["train_ids"])
        return LabelBatches(ids, np.asarray(tensors["train_targets"]), words=_step_words(ids, train), seed=record.seed)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the part of the held-out texts that are wrong, or by the mean error."""
        from elman.training.examiner import LossExaminer

        if "valid_ids" not in tensors:
            return None
        ids, targets = np.asarray(tensors["valid_ids"]), np.asarray(tensors["valid_targets"])
        model: ClassifierConfig = record.model  # type: ignore[assignment]
        if model.output == "softmax":  # of labels that were not in training there is no likelihood
            row = np.cumsum(ids == EOS_ID) - (ids == EOS_ID)
            ids, targets = ids[targets[row] != UNSEEN], targets[targets != UNSEEN]
        if not len(targets):
            return None
        batches = LabelBatches(ids, targets, words=_step_words(np.asarray(tensors["train_ids"]), train))
        return LossExaminer(net, batches, error=lambda: Classifier.error(net, batches))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.classify.net import ClassifierModel

        model: ClassifierConfig = record.model  # type: ignore[assignment]
        return ClassifierModel.from_tensors(model, tensors).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Classifier:
        """The net with its words, and the baseline."""
        from safetensors.numpy import load

        from elman.tasks.classify.linear import LinearModel

        model: ClassifierConfig = record.model  # type: ignore[assignment]
        linear = LinearModel.from_tensors(model.output, load(read(LINEAR))) if model.baseline else None
        words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
        return Classifier(record, words, net, linear, directory)


def _labels(pairs: Pairs, model: ClassifierConfig) -> tuple[str, ...]:
    """All labels, sorted; none where the answer is a number."""
    if model.output == "linear":
        values = {number_of_row(pairs, row) for row in range(len(pairs))}
        if len(values) < 2:
            raise DataError("every text has the same number: there is nothing to learn")
        return ()
    if model.output == "sigmoid":
        labels = {label for target in pairs.targets for label in labels_of_row(target)}
        if not labels:
            raise DataError("no text has a label", hint="several labels of a text have commas between them")
        return tuple(sorted(labels))
    labels = set(pairs.targets)
    columns = "data.source=2 data.target=1 says which columns are the text and the label"
    if len(labels) < 2:
        raise DataError(f"every text has the same label, {pairs.targets[0]!r}: there is nothing to learn", hint=columns)
    if len(labels) > max(20, len(pairs) // 2):
        raise DataError(
            f"{len(pairs):,} texts have {len(labels):,} different labels: these are hardly labels",
            hint=f"{columns}; model.output=linear is for numbers, sigmoid for several labels at once",
        )
    return tuple(sorted(labels))


def _lone_first_label(pairs: Pairs, model: ClassifierConfig) -> list[str]:
    """A warning if only the first row has its label, as the names of columns would."""
    first, *others = pairs.targets
    if model.output == "linear" or first in others or len(others) < MANY_ROWS:
        return []
    return [f"only {pairs.place(0)} has the label {first!r}: if it names the columns, set data.header=true"]


def _targets(pairs: Pairs, labels: Sequence[str], model: ClassifierConfig) -> Array:
    """What a net is to say of each text; labels that were not in training are UNSEEN, or not there."""
    numbers = {label: number for number, label in enumerate(labels)}
    match model.output:
        case "softmax":
            return np.array([numbers.get(target, UNSEEN) for target in pairs.targets], dtype=np.int64)
        case "linear":
            return np.array([number_of_row(pairs, row) for row in range(len(pairs))], dtype=np.float32)
        case "sigmoid":
            found = np.zeros((len(pairs), len(labels)), dtype=np.uint8)
            for row, target in enumerate(pairs.targets):
                found[row, [numbers[label] for label in labels_of_row(target) if label in numbers]] = 1
            return found


def _fit_linear(
    texts: Sequence[Sequence[str]], targets: Array, model: ClassifierConfig, labels: Sequence[str]
) -> bytes:
    from safetensors.numpy import save

    from elman.tasks.classify.linear import fit_linear

    found = fit_linear(texts, targets, kind=model.output, num_labels=max(1, len(labels)))
    packed: bytes = save(found.tensors())
    return packed


def _fingerprint(pairs: Pairs) -> str:
    """Equal for equal texts and labels."""
    both = "\n".join(f"{target}\t{source}" for source, target in zip(pairs.sources, pairs.targets, strict=True))
    return hashlib.blake2b(both.encode(), digest_size=8).hexdigest()


def _step_words(ids: Array, train: TrainConfig) -> int:
    """Words of a step: train.batch texts of the usual length."""
    num_rows = int(np.count_nonzero(ids == EOS_ID))
    return max(1, round((train.batch or USUAL_BATCH) * len(ids) / num_rows))


def _heldout_tensors(pairs: Pairs, ids: Array, targets: Array) -> dict[str, Array]:
    """The held-out texts as ids, to be judged by, and as they are, to be measured by."""
    texts = {"valid_text": pairs.sources, "valid_label": pairs.targets}
    found = {name: np.frombuffer("\n".join(rows).encode(), dtype=np.uint8) for name, rows in texts.items()}
    return {"valid_ids": ids, "valid_targets": targets, **found}
