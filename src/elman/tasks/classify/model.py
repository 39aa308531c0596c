"""A classifier at the text level: what texts are, and how good its answers and those of its two parts are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from elman import pictures
from elman.core.arrays import Array
from elman.explain.kind import OF_WORDS, of_cells
from elman.explain.reading import AttentionMap, Reading, refuse_empty
from elman.store import LabelRecord
from elman.tasks.base import EvaluateOptions, NetModel, Prediction, PredictOptions, ShouldStop
from elman.tasks.classify.assets import ClassifyAssets
from elman.tasks.classify.config import ClassifierConfig, LabelledConfig
from elman.tasks.classify.data import (
    NO_LABEL,
    UNSEEN,
    LabelBatches,
    encode_texts,
    is_number,
    labels_of_row,
    number_of_row,
    read_labelled,
    read_texts,
    split_text,
    targets_of,
)
from elman.tasks.classify.exporting import export_classifier
from elman.tasks.classify.metrics import number_numbers, set_numbers
from elman.tasks.classify.parts import LIKELY, PARTS, PartWeights, answers_of
from elman.tasks.exported import Exported
from elman.tasks.label_metrics import class_numbers
from elman.tasks.measuring import part_notes, rounded, rows_in_time
from elman.tasks.strange import refuse_strange
from elman.tasks.word_vectors import written_words
from elman.text.batches import one_pass
from elman.text.readers import Sources, as_texts
from elman.text.rows import begins_of, like_length, padded
from elman.text.tables import Pairs
from elman.text.units.forms import normalize
from elman.text.units.vocabulary import UNK_ID

READ_WORDS = 20_000  # words in one batch of texts, padding included
NET_ALONE = PartWeights(net=1.0, linear=0.0)
HEADLINES = ("accuracy", "f1", "mae", "r2")  # numbers that are given of each part too
SHOWN_PHRASES = 3


class ClassifyRecord(LabelRecord[LabelledConfig, ClassifierConfig]):
    """The record of a classifier."""

    part_weights: PartWeights | None = None  # None: the net alone, without a linear model or of version 0.1.0

    def card_facts(self) -> list[str]:
        """What predicts."""
        return [] if self.part_weights is None else [f"predicts: {self.part_weights.sentence()}"]


@dataclass(frozen=True)
class Classification(Prediction):
    """What a text is: a label, several with commas between, or a number; and the probability of each label."""

    text: str
    label: str
    probabilities: Mapping[str, float] = field(default_factory=dict)
    value: float | None = None
    words: tuple[str, ...] = field(default=(), repr=False)
    attention: tuple[float, ...] = field(default=(), repr=False)  # how much each word counted; pool=attention only

    def pair(self) -> tuple[str, str | None]:
        """The text."""
        return self.text, None

    def line(self) -> str:
        """The label."""
        return self.label

    def as_json(self) -> dict[str, Any]:
        """With the probabilities of all labels, the likeliest first, and where attention looked."""
        record: dict[str, Any] = {"text": self.text, "label": self.label if self.value is None else self.value}
        if self.probabilities:
            shares = sorted(self.probabilities.items(), key=lambda item: -item[1])
            record["probabilities"] = {label: rounded(share) for label, share in shares}
        if self.attention:
            record |= {"words": list(self.words), "attention": rounded(list(self.attention))}
        return record


class Classifier(NetModel[ClassifyRecord, ClassifyAssets]):
    """A net with its words and labels, and the linear model that answers with it."""

    evaluate_takes = frozenset({"targets"})

    def __init__(self, record: ClassifyRecord, assets: ClassifyAssets, net: Any, directory: Path | None = None) -> None:
        super().__init__(record, assets, net, directory)
        self.words = assets.words
        self.linear = assets.linear
        self.data = record.data
        self.config = record.model
        self.labels = record.labels
        self.part_weights = record.part_weights or NET_ALONE

    def exported(self) -> Exported:
        """The parts that are used, in one graph."""
        return export_classifier(self)

    def vocabulary(self) -> str:
        """Words and labels."""
        return f"{self.words.tokenizer.vocab_size:,} words, {len(self.labels):,} labels"

    def info(self) -> dict[str, Any]:
        """With what predicts."""
        return super().info() | {"predicts": self.part_weights.sentence()}

    def predict(self, text: str | Sequence[str]) -> Any:
        """The label of a text (a number, where the answer is one); a list of them for a list of texts."""
        found = [found.label if found.value is None else found.value for found in self.classify(as_texts(text))]
        return found[0] if isinstance(text, str) else found

    def classify(self, texts: Sequence[str], *, with_attention: bool = False) -> list[Classification]:
        """What texts are."""
        words = [split_text(text, self.data) for text in texts]
        found = [self._classification(text, row) for text, row in zip(texts, self.shares(words), strict=True)]
        if not with_attention or self.config.pool != "attention":
            return found
        weights = self._attention(words)
        return [
            replace(one, words=tuple(words[row]), attention=tuple(weights[row][: len(words[row])].tolist()))
            for row, one in enumerate(found)
        ]

    def _encode_row(self, text: str) -> Array:
        """The numbers of a text's words."""
        return np.array([self.words.number(word) for word in split_text(text, self.data)], dtype=np.int64)

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """What the label is made of, and what the layers do."""
        attention = ("attention",) if self.config.pool == "attention" else ()
        return ("saliency", *attention, *of_cells(self.config.family), "gradients", *OF_WORDS)

    def reading(self, text: str) -> Reading:
        """A text as the net reads it; what is predicted is the label that it gives."""
        words = split_text(text, self.data)
        refuse_empty(words)
        ids, net = self._encode_row(text), self.net.first
        chosen = np.array([int(np.argmax(self.shares([words])[0]))])
        return Reading(
            tokens=words,
            is_known=(ids != UNK_ID).tolist(),
            rows=["label"],
            columns=self.labels or ["value"],
            chosen=chosen,
            words=lambda: net.words_read(ids),
            trace=net.trace,
            unrecorded=lambda: net.scores(ids[None], np.array([len(ids)]))[0, chosen],
            is_local=True,
            notes=self._reading_notes(words, int(chosen[0])),
        )

    def _reading_notes(self, words: Sequence[str], label: int) -> list[str]:
        """What a look into the net does not show: the part of other nets and of the linear model in the answer."""
        nets = self.config.nets
        shown = "this is of the net" if nets == 1 else f"this is of the first of {nets} nets"
        if self.linear is None or not self.part_weights.linear:
            return [] if nets == 1 else [f"{shown}; predicts: their mean"]
        strongest = self.linear.phrases(words, label)[:SHOWN_PHRASES]
        said = ", ".join(f"{phrase} {part:+.3g}" for phrase, part in strongest) or "no phrase that it knows"
        return [f"{shown}; predicts: {self.part_weights.sentence()}; strongest in the linear model: {said}"]

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those that it reads."""
        return written_words(self.words.tokenizer, self.net.first.tensors()["reader.embedding.weight"])

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """How much each word counted."""
        found = self.classify([text], with_attention=True)[0]
        refuse_empty(found.words)
        return [AttentionMap("pool", [found.label], found.words, np.array([found.attention]))]

    def _read_rows(self, sources: Sources, reading: LabelledConfig) -> Iterator[list[tuple[str, Array]]]:
        """The texts of some files, without their labels."""
        for lines in read_texts(sources, reading, is_label=self.could_say):
            yield [(line.text or "", self._encode_row(line.text or "")) for line in lines]

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Classification]:
        """What every line is."""
        reading = self.data.reading(options.errors)
        for lines in read_texts(sources, reading, is_label=self.could_say):
            texts = [line.text or "" for line in lines]
            found = self.classify(texts, with_attention=options.details)
            for line, one in zip(lines, found, strict=True):
                yield one if line.text is not None else Classification("", "")

    def could_say(self, label: str) -> bool:
        """Whether this is something that the model could answer."""
        label = normalize(label, self.data.normalize)
        match self.config.output:
            case "softmax":
                return label in self.labels
            case "sigmoid":
                return set(labels_of_row(label)) <= set(self.labels)
            case "linear":
                return is_number(label)

    def shares(self, texts: Sequence[Sequence[str]]) -> Array:
        """What it says of texts as words: probabilities of its labels, or a number. -> (N, L)"""
        return self._answers(self.scores(texts))

    def scores(self, texts: Sequence[Sequence[str]]) -> Array:
        """What `shares` are made of, by the parts that are used. -> (N, L)"""
        weights = self.part_weights
        used = [name for name in PARTS if getattr(weights, name)]
        return weights.combine(self._scores(texts, used))

    def _answers(self, scores_NL: Array) -> Array:
        net = self.net.first
        return answers_of(scores_NL, self.config.output, centre=float(net.centre), spread=float(net.spread))

    def _scores(self, texts: Sequence[Sequence[str]], parts: Sequence[str]) -> Array:
        """What the net and the linear model make of texts; of one that is not asked for, zeros. -> (P, N, L)"""
        found = np.zeros((len(PARTS), len(texts), max(1, len(self.labels))), dtype=np.float32)
        if "net" in parts:
            for chunk, words, lengths in self._chunks(texts):
                found[0, chunk] = self.net.scores(words, lengths)
        if "linear" in parts and self.linear is not None:
            found[1] = self.linear.scores(texts)
        return found

    def _attention(self, texts: Sequence[Sequence[str]]) -> list[Array]:
        found = [np.zeros(0)] * len(texts)
        for chunk, words, lengths in self._chunks(texts):
            for row, weights in zip(chunk, self.net.attention_weights(words, lengths), strict=True):
                found[row] = weights
        return found

    def _chunks(self, texts: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], Array, Array]]:
        """Texts of like length, as many as are read at once: their places, words and lengths."""
        for chunk in like_length([len(text) for text in texts], tokens=READ_WORDS):
            ids = encode_texts([texts[i] for i in chunk], self.words)
            words, lengths = padded(ids, begins_of(ids), np.arange(len(chunk)))
            yield chunk, words[:, :-1], lengths - 1

    def _classification(self, text: str, shares: Array) -> Classification:
        if self.config.output == "linear":
            return Classification(text, f"{float(shares[0]):.6g}", {}, float(shares[0]))
        probabilities = dict(zip(self.labels, shares.tolist(), strict=True))
        return Classification(text, self._label(shares), probabilities)

    def _label(self, shares: Array) -> str:
        if self.config.output == "softmax":
            return self.labels[int(shares.argmax())]
        chosen = [label for label, share in zip(self.labels, shares.tolist(), strict=True) if share >= LIKELY]
        return ",".join(chosen) or NO_LABEL

    # ------------------------------------------------------------------------------------------------------ measuring

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """Accuracy and F1, or the errors of numbers, and the same of the linear baseline."""
        pairs = read_labelled(data, self.data.reading(options.errors), targets=options.targets)
        self._refuse_strange_labels(pairs, data)
        found = self.numbers(pairs, should_stop=lambda: False)
        assert found is not None
        return found | pairs.left_out()

    def _refuse_strange_labels(self, pairs: Pairs, data: Sources) -> None:
        """Data of another task is no test of this model."""
        strange = [target for target in pairs.targets if not self.could_say(target)]
        hint = "data.source and data.target choose columns in training"
        refuse_strange("labels", strange, len(pairs), data, task=self.record.task, hint=hint)

    def pictures(self, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What was taken for what, where there are classes."""
        return [pictures.confusion_map(**numbers["confusions"])] if "confusions" in numbers else []

    def numbers(self, pairs: Pairs, *, should_stop: ShouldStop) -> dict[str, Any] | None:
        """Numbers of texts, for as long as there is time; None where there was none at all."""
        rows, scores_PNL = self._scores_in_time(pairs, should_stop)
        return self._numbers_of(pairs, rows, scores_PNL) if rows else None

    def weighted(self, pairs: Pairs | None, *, should_stop: ShouldStop) -> tuple[Classifier, dict[str, Any] | None]:
        """With the weights of its parts fitted on held-out texts, and its numbers on them.

        First those of texts that weights were not fitted on (`crosswise_`): fitted on one half, measured on the other.
        """
        from elman.tasks.classify.weighting import MAX_SCORES, Judged, crosswise, fit_weights, usual_weights

        assert self.linear is not None
        rows, scores_PNL = ([], np.zeros(0)) if pairs is None else self._scores_in_time(pairs, should_stop)
        if pairs is None or not rows:
            return self._with_weights(usual_weights(self.config.output)), None
        seen = pairs.select(rows)
        targets = targets_of(seen, self.labels, self.config.output)
        known = np.flatnonzero(targets != UNSEEN) if self.config.output == "softmax" else np.arange(len(seen))
        known = known[: max(2, MAX_SCORES // scores_PNL.shape[2])]
        judged = Judged(self.config.output, scores_PNL[:, known], self.linear.wanted(targets[known]))
        found = self._with_weights(fit_weights(judged))
        crossed = []
        for crosswise_NL in crosswise(judged):
            scores_NL = found.part_weights.combine(scores_PNL)  # of texts that were not fitted on
            scores_NL[known] = crosswise_NL
            crossed.append(self._headlines(seen, self._answers(scores_NL), "crosswise"))
        honest = {
            key: float(np.mean([one[key] for one in crossed])) for key in crossed[0] if crossed[0][key] is not None
        }
        numbers = found._numbers_of(pairs, rows, scores_PNL)
        notes = [*found._sentences(numbers | honest), *numbers.pop("notes", ())]
        return found, honest | numbers | {"notes": notes}

    def _with_weights(self, weights: PartWeights) -> Classifier:
        return Classifier(
            self.record.model_copy(update={"part_weights": weights}), self.assets, self.net, self.directory
        )

    def _sentences(self, numbers: Mapping[str, Any]) -> list[str]:
        """What each part brings, and what predicts."""
        key, what = ("mae", "mean error") if self.config.output == "linear" else ("accuracy", "accuracy")
        net, linear, both = (f"{numbers[f'{part}_{key}']:.4f}" for part in (*PARTS, "crosswise"))
        how = "weighted on one half of the held-out texts, measured on the other"
        brought = f"{what}: net {net}, linear model {linear}, together {both} ({how})"
        return [brought, f"predicts: {self.part_weights.sentence()}"]

    def _scores_in_time(self, pairs: Pairs, should_stop: ShouldStop) -> tuple[list[int], Array]:
        """Rows in random order, as many as there is time for, and what both parts make of them. -> N, (P, N, L)"""
        rows: list[int] = []
        parts: list[Array] = []
        for chunk in rows_in_time(len(pairs), should_stop):
            parts.append(self._scores([split_text(pairs.sources[i], self.data) for i in chunk], PARTS))
            rows += chunk
        return rows, np.concatenate(parts, axis=1) if parts else np.zeros(0)

    def _numbers_of(self, pairs: Pairs, rows: list[int], scores_PNL: Array) -> dict[str, Any]:
        """Of the classifier, and of its parts."""
        seen = pairs.select(rows)
        found = self._compared(seen, self._answers(self.part_weights.combine(scores_PNL)))
        if self.record.part_weights is not None:
            found |= self._headlines(seen, self._answers(scores_PNL[0]), "net")
        if self.linear is not None:
            found |= self._headlines(seen, self._answers(scores_PNL[1]), "linear")
        unseen = set() if self.config.output == "linear" else self._labels(seen) - set(self.labels)
        notes = part_notes(len(rows), len(pairs), "texts")
        if unseen:
            names = ", ".join(sorted(unseen)[:10])
            notes.append(f"labels that were never seen in training, and so are never right: {names}")
            found |= {"unseen_labels": sorted(unseen)}
        return found | ({"notes": notes} if notes else {})

    def _headlines(self, pairs: Pairs, shares: Array, prefix: str) -> dict[str, Any]:
        numbers = self._compared(pairs, shares)
        return {f"{prefix}_{key}": numbers[key] for key in HEADLINES if key in numbers}

    def _labels(self, pairs: Pairs) -> set[str]:
        if self.config.output == "softmax":
            return set(pairs.targets)
        return {label for target in pairs.targets for label in labels_of_row(target)}

    def _compared(self, pairs: Pairs, shares: Array) -> dict[str, Any]:
        match self.config.output:
            case "softmax":
                return class_numbers([self._label(row) for row in shares], pairs.targets, shares.max(axis=1))
            case "sigmoid":
                given = [set(labels_of_row(self._label(row))) for row in shares]
                return set_numbers(given, [set(labels_of_row(target)) for target in pairs.targets])
            case "linear":
                wanted = np.array([number_of_row(pairs, row) for row in range(len(pairs))])
                return number_numbers(shares[:, 0], wanted)

    @staticmethod
    def error(net: Any, batches: LabelBatches) -> float:
        """What the weights to keep are chosen by: the part of wrong classes, of wrong labels, or the mean error."""
        wrong = list[Array]()
        for batch in one_pass(batches):
            shares = net.predict(batch.words, batch.lengths)
            match net.config.output:
                case "softmax":
                    wrong.append(shares.argmax(axis=1) != batch.targets)
                case "sigmoid":
                    wrong.append(((shares >= LIKELY) != batch.targets).mean(axis=1))
                case "linear":
                    wrong.append(np.abs(shares[:, 0] - batch.targets) / float(net.first.spread))
        return float(np.concatenate(wrong).mean())
