"""A classifier and its words: what texts are, and how good its answers are, the linear baseline's beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.tasks.base import TaskModel, refuse_beam
from elman.tasks.classify.data import (
    NO_LABEL,
    LabelBatches,
    encode_texts,
    labels_of_row,
    number_of_row,
    read_labelled,
    split_text,
)
from elman.tasks.classify.metrics import class_numbers, number_numbers, set_numbers
from elman.tasks.reading_config import ClassifierConfig
from elman.text.batches import one_pass
from elman.text.readers import Reader, Sources
from elman.text.rows import begins_of, padded
from elman.text.settings import DataConfig, LabelledConfig
from elman.text.tables import Pairs
from elman.text.units.word_list import WordList

READ_WORDS = 20_000  # at once, padding counted
LOOK_TEXTS = 200  # between two looks at the clock
LIKELY = 0.5  # from here on one of several labels is given


@dataclass(frozen=True)
class Answer:
    """What a text is: a label, several with commas between, or a number; and the probability of each label."""

    label: str
    probabilities: Mapping[str, float] = field(default_factory=dict)
    value: float | None = None
    words: tuple[str, ...] = field(default=(), repr=False)
    attention: tuple[float, ...] = field(default=(), repr=False)  # how much each word counted; pool=attention only


class Classifier(TaskModel):
    """A net, its words and its story; `linear` is the baseline."""

    def __init__(
        self, record: store.TaskRecord, words: WordList, net: Any, linear: Any | None, directory: Path | None = None
    ) -> None:
        assert isinstance(record.data, LabelledConfig) and isinstance(record.model, ClassifierConfig)
        self.record = record
        self.words = words
        self.net = net
        self.linear = linear
        self.directory = directory
        self.data: LabelledConfig = record.data
        self.config: ClassifierConfig = record.model
        self.labels = record.labels

    def predict(self, text: str | Sequence[str]) -> Any:
        """The label of a text (a number, where the answer is one); a list of them for a list of texts."""
        found = [
            answer.label if answer.value is None else answer.value
            for answer in self.classify([text] if isinstance(text, str) else list(text))
        ]
        return found[0] if isinstance(text, str) else found

    def classify(self, texts: Sequence[str], *, with_attention: bool = False) -> list[Answer]:
        """What texts are."""
        words = [split_text(text, self.data) for text in texts]
        shares = self.shares(words)
        weights = self._attention(words) if with_attention and self.config.pool == "attention" else None
        found = []
        for row, answer in enumerate(map(self._answer, shares)):
            seen = () if weights is None else tuple(weights[row][: len(words[row])].tolist())
            found.append(Answer(answer.label, answer.probabilities, answer.value, tuple(words[row]), seen))
        return found

    def classify_lines(
        self, data: Sources, *, with_attention: bool = False
    ) -> Iterator[tuple[list[str], list[Answer]]]:
        """Lines and what they are, as many at a time as were there to read."""
        reading = DataConfig.model_validate({"errors": self.data.errors, "skip_bad": False})
        for lines in Reader(data, reading, keep_records=True).blocks():
            texts = [line.decode() for line in lines.split()]
            yield texts, self.classify(texts, with_attention=with_attention)

    def shares(self, texts: Sequence[Sequence[str]]) -> Array:
        """What the net says of texts as words: probabilities of its labels, or a number. -> (N, L)"""
        found = np.zeros((len(texts), max(1, len(self.labels))), dtype=np.float32)
        for chunk, words, lengths in self._chunks(texts):
            found[chunk] = self.net.predict(words, lengths)
        return found

    def _attention(self, texts: Sequence[Sequence[str]]) -> list[Array]:
        found = [np.zeros(0)] * len(texts)
        for chunk, words, lengths in self._chunks(texts):
            for row, weights in zip(chunk, self.net.attention_weights(words, lengths), strict=True):
                found[row] = weights
        return found

    def _chunks(self, texts: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], Array, Array]]:
        """Texts of like length, as many as are read at once: their places, words and lengths."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        while order:
            most = max(1, READ_WORDS // max(1, len(texts[order[-1]])))
            chunk, order = order[-most:], order[:-most]
            ids = encode_texts([texts[i] for i in chunk], self.words)
            words, lengths = padded(ids, begins_of(ids), np.arange(len(chunk)))
            yield chunk, words[:, :-1], lengths - 1

    def _answer(self, shares: Array) -> Answer:
        if self.config.output == "linear":
            return Answer(f"{float(shares[0]):.6g}", {}, float(shares[0]))
        probabilities = dict(zip(self.labels, shares.tolist(), strict=True))
        return Answer(self._label(shares), probabilities)

    def _label(self, shares: Array) -> str:
        if self.config.output == "softmax":
            return self.labels[int(shares.argmax())]
        chosen = [label for label, share in zip(self.labels, shares.tolist(), strict=True) if share >= LIKELY]
        return ",".join(chosen) or NO_LABEL

    # ------------------------------------------------------------------------------------------------------ measuring

    def evaluate(self, data: Sources, *, beam: int | None = None, seed: int = 1) -> dict[str, Any]:
        """Accuracy and F1, or the errors of numbers, and the same of the linear baseline."""
        refuse_beam("classify", beam)
        pairs = read_labelled(data, self.data)
        found = self._numbers(pairs, should_stop=lambda: False)
        assert found is not None
        extra = pairs.left_out()
        return found | extra | {"seed": seed}

    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """The same of the held-out texts among a run's tensors, of a part of them where time is short."""
        if "valid_text" not in tensors:
            return None
        texts, labels = (tensors[name].tobytes().decode().split("\n") for name in ("valid_text", "valid_label"))
        found = self._numbers(
            Pairs(texts, labels, 0, [("the held-out texts", 0)] * len(texts)), should_stop=should_stop
        )
        return None if found is None else {key: value for key, value in found.items() if key != "confusions"}

    def _numbers(self, pairs: Pairs, *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Numbers of texts in chance order, until there is no more time; None where there was none at all."""
        order = np.random.default_rng(0).permutation(len(pairs)).tolist()
        rows: list[int] = []
        parts: list[Array] = []
        while len(rows) < len(pairs) and not should_stop():
            chunk = order[len(rows) : len(rows) + LOOK_TEXTS]
            parts.append(self.shares([split_text(pairs.sources[i], self.data) for i in chunk]))
            rows += chunk
        if not rows:
            return None
        seen = pairs.select(rows)
        found = self._compared(seen, np.concatenate(parts))
        if self.linear is not None:
            shares = self.linear.predict([split_text(text, self.data) for text in seen.sources])
            linear = self._compared(seen, shares)
            found |= {f"linear_{key}": linear[key] for key in ("accuracy", "f1", "mae", "r2") if key in linear}
        unseen = set() if self.config.output == "linear" else self._labels(seen) - set(self.labels)
        if unseen:
            names = ", ".join(sorted(unseen)[:10])
            note = f"labels that were never seen in training, and so are never right: {names}"
            found |= {"unseen_labels": sorted(unseen), "notes": [note]}
        return found

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
                    wrong.append(np.abs(shares[:, 0] - batch.targets) / float(net.spread))
        return float(np.concatenate(wrong).mean())
