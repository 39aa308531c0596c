"""The task `classify`: texts with labels become a net, its batches, and a linear model that predicts with it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.base import Examples, Prepared, ReadFile, Report, TaskModel, TrainRequest
from elman.tasks.classify.assets import ClassifyAssets, read_assets
from elman.tasks.classify.config import ClassifierConfig, LabelledConfig
from elman.tasks.classify.data import (
    UNSEEN,
    LabelBatches,
    choose_units,
    count_words,
    encode_texts,
    labels_of_row,
    number_of_row,
    read_labelled,
    split_text,
    targets_of,
)
from elman.tasks.classify.model import Classifier, ClassifyRecord
from elman.tasks.foundation import Foundation
from elman.tasks.founded_task import FoundedTask, foundation_of, foundation_words, give
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.rows import count_rows, row_numbers, split_by_hash, step_tokens
from elman.text.tables import Pairs
from elman.text.units.forms import form_of
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import learn_words
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.plan_rows import plan_rows
from elman.training.progress import Outcome, Wording

if TYPE_CHECKING:
    from elman.tasks.classify.linear import LinearModel
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

DROPOUT = 0.5
USUAL_BATCH = 32
MAX_WORDS = 6000  # words of a training step
ENOUGH_PASSES = (
    8.0  # passes after which training ends: with 27, none of four nets was better, and all were overconfident
)
MAX_NETS = 3  # nets that are averaged, where there is time: SST-5 40.2 to 41.8 (docs/log.md)
USUAL_WIDTH = 100  # of a word vector, for the cost
LINEAR_SHARE = 0.4  # share of a budget, at most, for the linear model: with a hundred labels it takes minutes
MANY_ROWS = 20  # rows from which on a label that only the first row has is suspicious

# What `Classifier.error` is, by the kind of output
ERRORS = {"softmax": "1-accuracy", "sigmoid": "share of wrong labels", "linear": "mean error/deviation"}

ClassifyExamples = Examples[ClassifyAssets, Pairs]


class ClassifyTask(FoundedTask[ClassifyRecord, ClassifyAssets, Pairs]):
    """Sentiment, spam, topics, stars: whatever is said of a whole text."""

    name = "classify"
    flags = frozenset({"init", "targets"})
    record_type = ClassifyRecord
    model_type = Classifier
    plans_an_end = True
    foundation_units = ("space", "word", "char")

    def settled_model(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """One net: several that began with the same words and cells would be much alike."""
        return super().settled_model(base, given) | {"nets": 1}

    def settled_data(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """The units are those of the foundation."""
        return {"units": base.tokenizer.units}

    def prepare(self, request: TrainRequest) -> Prepared[ClassifyRecord, ClassifyAssets, Pairs]:
        """Read the texts, learn words and labels, and fit the linear model."""
        data: LabelledConfig = self.data_settings(request.settings["data"])
        model: ClassifierConfig = self.model_settings(request.settings["model"])
        data, training, heldout, notes = _read_parts(request, data, model)
        units, more = choose_units(training.sources, data)
        data = data.model_copy(update={"units": units})
        labels = _labels(training, model)
        texts = [split_text(text, data) for text in training.sources]
        base = foundation_of(request)
        words = learn_words(
            count_words(texts),
            min_count=data.min_count,
            max_words=data.max_words,
            more_words=[*vector_words(model), *foundation_words(base, lower_case=data.lower_case)],
            folds_case=model.vectors is not None,
        )
        vectors, said = vector_tensors(model, words.tokenizer)
        ids, targets = encode_texts(texts, words), targets_of(training, labels, model.output)
        notes += [*more, *said, f"{len(labels):,} labels, {words.tokenizer.vocab_size - 2:,} words"]
        num_cut = sum(len(text) == data.max_length for text in texts)
        if num_cut:
            notes.append(f"{num_cut:,} texts are longer than {data.max_length:,} words: half is read from either end")
        linear, more = _fit_linear(request, model, texts, targets, num_labels=max(1, len(labels)))
        notes += more
        request.say(notes)
        arrays = {"train_ids": ids, "train_targets": targets, **vectors}
        if heldout is not None:
            heldout_ids = encode_texts([split_text(text, data) for text in heldout.sources], words)
            arrays |= {"valid_ids": heldout_ids, "valid_targets": targets_of(heldout, labels, model.output)}
        source = store.Source(
            fingerprint=_fingerprint(training),
            lines=len(training),
            tokens=len(ids) - len(training),
            bytes=sum(len(text.encode()) + 1 for text in training.sources),
        )
        record = self.new_record(request, data=data, model=model, source=source, notes=notes, own={"labels": labels})
        foundation = give(base, words.tokenizer, lower_case=data.lower_case)
        return Prepared(record, Examples(ClassifyAssets(words, linear), arrays, heldout), foundation=foundation)

    def plan(self, prepared: Prepared[ClassifyRecord, ClassifyAssets, Pairs], means: Means) -> Plan:
        """Sizes for what the user has not set."""
        arrays = prepared.examples.arrays
        ids = arrays["train_ids"]
        return plan_rows(
            means,
            num_rows=count_rows(ids),
            num_tokens=len(ids),
            rows="texts",
            dropout=DROPOUT,
            max_tokens=MAX_WORDS,
            word_width=arrays["vectors"].shape[1] if "vectors" in arrays else USUAL_WIDTH,
            enough_passes=ENOUGH_PASSES,
            max_nets=MAX_NETS,
        )

    def build(self, record: ClassifyRecord, examples: ClassifyExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs
        from elman.tasks.classify.net import ClassifierModel, Ensemble

        model, arrays = record.model, examples.arrays
        vocab_size = examples.assets.words.tokenizer.vocab_size
        ids, targets = np.asarray(arrays["train_ids"]), np.asarray(arrays["train_targets"])
        counts = np.bincount(ids, minlength=vocab_size)
        counts[[UNK_ID, EOS_ID]] = 0
        is_number = model.output == "linear"
        inputs = NetInputs(
            vocab_size,
            rng=torch.Generator().manual_seed(record.seed),
            counts=counts,
            vectors=np.array(arrays["vectors"]) if "vectors" in arrays else None,
            usual_length=len(ids) / len(targets),
        )
        nets = [
            ClassifierModel(
                model,
                inputs,
                num_labels=max(1, len(record.labels)),
                centre=float(targets.mean()) if is_number else 0.0,
                spread=(float(targets.std()) or 1.0) if is_number else 1.0,
            )
            for _ in range(model.nets)
        ]
        return Ensemble(nets) if len(nets) > 1 else nets[0]

    def batches(self, record: ClassifyRecord, examples: ClassifyExamples, *, train: TrainConfig) -> Batches:
        """The training texts."""
        ids = np.asarray(examples.arrays["train_ids"])
        words = step_tokens(ids, train.batch or USUAL_BATCH)
        return LabelBatches(ids, np.asarray(examples.arrays["train_targets"]), words=words, seed=record.seed)

    def examiner(
        self, record: ClassifyRecord, net: Any, examples: ClassifyExamples, *, train: TrainConfig
    ) -> Examiner | None:
        """Validates by the share of the held-out texts that are wrong, or by the mean error."""
        from elman.training.examiner import LossExaminer

        arrays = examples.arrays
        if "valid_ids" not in arrays:
            return None
        ids, targets = np.asarray(arrays["valid_ids"]), np.asarray(arrays["valid_targets"])
        if record.model.output == "softmax":  # of labels that were not in training there is no likelihood
            ids, targets = ids[targets[row_numbers(ids)] != UNSEEN], targets[targets != UNSEEN]
        if not len(targets):
            return None
        words = step_tokens(np.asarray(arrays["train_ids"]), train.batch or USUAL_BATCH)
        batches = LabelBatches(ids, targets, words=words)
        return LossExaminer(net, batches, error=lambda: Classifier.error(net, batches))

    def wording(self, record: ClassifyRecord) -> Wording:
        """Texts, and what the best weights are chosen by."""
        return Wording("texts", has_perplexity=False, error=ERRORS[record.model.output])

    def finish(
        self, model: Any, examples: ClassifyExamples, outcome: Outcome, *, deadline: float
    ) -> tuple[TaskModel[ClassifyRecord], dict[str, Any] | None]:
        """The net and the linear model as one, weighted on the held-out texts."""
        if model.linear is None:
            return super().finish(model, examples, outcome, deadline=deadline)
        found, numbers = model.weighted(examples.heldout, should_stop=lambda: time.monotonic() > deadline)
        if numbers is not None:
            numbers.pop("confusions", None)
        return found, numbers

    def restore(self, record: ClassifyRecord, assets: ClassifyAssets, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.classify.net import ClassifierModel, Ensemble

        kind = Ensemble if record.model.nets > 1 else ClassifierModel
        return kind.from_tensors(record.model, tensors).eval()

    def read_assets(self, record: ClassifyRecord, read: ReadFile) -> ClassifyAssets:
        """What was written."""
        return read_assets(record.model, read)

    def heldout_to_json(self, heldout: Pairs) -> list[Any]:
        """A text and its label a row."""
        return [list(row) for row in zip(heldout.sources, heldout.targets, strict=True)]

    def heldout_from_json(self, rows: list[Any]) -> Pairs:
        """The texts that were written."""
        return Pairs.of_rows(rows)


def _read_parts(
    request: TrainRequest, data: LabelledConfig, model: ClassifierConfig
) -> tuple[LabelledConfig, Pairs, Pairs | None, list[str]]:
    """The settings with the form of the texts; texts to train on, held-out ones, and what is to be said of them."""
    pairs = read_labelled(request.data, data, targets=request.targets)
    data = data.with_form(form_of(pairs.sources))
    notes = pairs.notes() + _lone_first_label(pairs, model)
    training, heldout = pairs, None
    if request.holds_out:
        kept, held = split_by_hash(pairs.sources, data.heldout)
        training, heldout = pairs.select(kept), pairs.select(held) if held else None
        notes.append(f"{len(held):,} of {len(pairs):,} texts are held out")
    if request.valid is not None:
        heldout = read_labelled(request.valid, data, targets=request.valid_targets)
    return data, training, heldout, notes


def _fit_linear(
    request: TrainRequest, model: ClassifierConfig, texts: Sequence[Sequence[str]], targets: Array, *, num_labels: int
) -> tuple[LinearModel | None, list[str]]:
    """The linear model beside the net, if there is to be one, and what is to be said of it."""
    if not model.baseline:
        return None, []
    from elman.tasks.classify.linear import fit_linear

    end = time.monotonic() + LINEAR_SHARE * request.budget.seconds if request.budget else math.inf

    def is_over() -> bool:
        return time.monotonic() > end

    linear = fit_linear(texts, targets, kind=model.output, num_labels=num_labels, should_stop=is_over)
    notes = ["this budget had no time to train the linear model to its end"] if is_over() else []
    if request.valid is None and not request.holds_out:
        notes.append("nothing is held out: the net and the linear model predict together, with their usual weights")
    return linear, notes


def _labels(pairs: Pairs, model: ClassifierConfig) -> tuple[str, ...]:
    """All labels, sorted; none where the answer is a number."""
    if model.output == "linear":
        values = {number_of_row(pairs, row) for row in range(len(pairs))}
        if len(values) < 2:
            raise DataError("every text has the same number: there is nothing to learn", code="nothing-to-learn")
        return ()
    if model.output == "sigmoid":
        labels = {label for target in pairs.targets for label in labels_of_row(target)}
        if not labels:
            raise DataError(
                "no text has a label", code="nothing-to-learn", hint="several labels of a text have commas between them"
            )
        return tuple(sorted(labels))
    labels = set(pairs.targets)
    columns = "data.source=2 data.target=1 says which columns are the text and the label"
    if len(labels) < 2:
        raise DataError(
            f"every text to train on has the same label, {pairs.targets[0]!r}: there is nothing to learn",
            code="nothing-to-learn",
            hint=f"{columns}; if there are others, they were held out: --valid none holds nothing out",
        )
    if len(labels) > max(20, len(pairs) // 2):
        raise DataError(
            f"{len(pairs):,} texts have {len(labels):,} different labels: these are hardly labels",
            code="nothing-to-learn",
            hint=f"{columns}; model.output=linear is for numbers, sigmoid for several labels at once",
        )
    return tuple(sorted(labels))


def _lone_first_label(pairs: Pairs, model: ClassifierConfig) -> list[str]:
    """A warning if only the first row has its label, as the names of columns would."""
    first, *others = pairs.targets
    if model.output == "linear" or first in others or len(others) < MANY_ROWS:
        return []
    return [f"only {pairs.place(0)} has the label {first!r}: if it names the columns, set data.header=true"]


def _fingerprint(pairs: Pairs) -> str:
    """Equal for equal texts and labels."""
    both = "\n".join(f"{target}\t{source}" for source, target in zip(pairs.sources, pairs.targets, strict=True))
    return hashlib.blake2b(both.encode(), digest_size=8).hexdigest()
