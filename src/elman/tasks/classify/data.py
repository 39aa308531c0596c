"""Texts with labels, from tables, lines that begin with their label, and JSONL; as words, and as ids.

A row is a pair whose source is the text and whose target is the label: a class, several of them, or a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.classify.config import LabelledConfig
from elman.text.aligned import read_aligned
from elman.text.column_names import LABELS, TEXTS
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Sources
from elman.text.rows import RowBatches, begins_of, padded
from elman.text.tables import (
    Format,
    Pairs,
    Row,
    Sides,
    SourceLine,
    checked,
    choose_parser,
    read_rows,
    read_sources,
)
from elman.text.units.forms import normalize
from elman.text.units.guess import guess_units
from elman.text.units.surfaces import surfaces
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList

NO_LABEL = "-"  # written where a text has none of several possible labels
UNSEEN = -1  # class of a text whose label was not in the training data
MARK = "__label__"  # fastText's prefix of a label
_RECORD_HINT = 'a record looks like {"text": "...", "label": "..."}'
SAMPLE_TEXTS = 2000
MANY_LINES = 20  # lines that must all begin with a known label to count as a labelled file


def read_labelled(sources: Sources, data: LabelledConfig, *, targets: Sources | None = None) -> Pairs:
    """All texts of some files, each with its label; with `targets`, the labels are the lines of other files."""
    found = Pairs()
    if targets is not None:
        read_aligned(sources, targets, data, found)
    else:
        read_rows(sources, data, partial(_choose_format, data, None), found, header=data.header)
    if not len(found):
        raise DataError(
            "there are no texts in the input", code="empty-data", hint="a line is a label, a tab or a space, and a text"
        )
    return found


def read_texts(
    sources: Sources, data: LabelledConfig, *, is_label: Callable[[str], bool]
) -> Iterator[list[SourceLine]]:
    """The texts of some files, read as `read_labelled` reads them; labels may be there or not.

    is_label: whether the model could have given this label, by which a labelled file is told from plain lines.
    """
    return read_sources(sources, data, partial(_choose_format, data, is_label), header=data.header)


def _choose_format(
    data: LabelledConfig, is_label: Callable[[str], bool] | None, lines: LineBlock, texts: Sequence[str]
) -> Format:
    """How the lines of a file are to be read. is_label: where labels may be missing; else they have to be there."""
    sides = Sides(
        data.source,
        data.target,
        usual=(2, 1),
        source_names=TEXTS,
        target_names=LABELS,
        hint=_RECORD_HINT,
        has_labels=True,
        needs_target=is_label is None,
    )
    guess = guess_task(texts[:SAMPLE_LINES], is_jsonl=lines.has_records)
    is_other = guess.task in ("tag", "qa") or (guess.task == "seq2seq" and lines.kind == "records")
    if is_label is None and not data.source and is_other:
        raise DataError(
            f"{lines.source} is not labels and texts: it looks like {guess.like}",
            code="wrong-format",
            hint=f"elman train {guess.task} is for such files",
        )
    filled = [text for text in texts[:SAMPLE_LINES] if text.strip()]
    if lines.has_records or data.source:
        return _plain_if_narrow(choose_parser(lines, texts, sides), lines, filled[0], sides)
    if is_label is not None and not _has_labels(filled, is_label):
        return Format(lambda text: checked(text, "", needs_target=False), False)
    return choose_parser(lines, texts, sides) if "\t" in filled[0] else Format(_parse_line, False)


def _plain_if_narrow(chosen: Format, lines: LineBlock, first: str, sides: Sides) -> Format:
    """Where only texts are read, a line without tabs is a text, whatever columns the model was trained on.

    So is every line of a file whose first line has none: it is no table.
    """
    if sides.needs_target or lines.has_records:
        return chosen
    if "\t" not in first:
        return Format(lambda text: checked(text, "", needs_target=False), False)

    def parse(text: str) -> Row | Fault:
        return chosen.parse(text) if "\t" in text else checked(text, "", needs_target=False)

    return Format(parse, chosen.header, chosen.note)


def _has_labels(texts: Sequence[str], is_label: Callable[[str], bool]) -> bool:
    """Whether lines begin with labels that the model knows: nearly all before a tab; before a space only if marked so."""
    with_tab = [text.partition("\t") for text in texts]
    if all(tab and rest.strip() for _, tab, rest in with_tab):
        known = sum(is_label(label.strip()) for label, _, _ in with_tab)
        return known >= 0.9 * len(texts)
    if any("\t" in text for text in texts):
        return False
    labels = [text.strip().partition(" ")[0] for text in texts]
    if all(label.startswith(MARK) for label in labels):
        return True
    return len(texts) >= MANY_LINES and all(is_label(label) for label in labels)


def _parse_line(text: str) -> Row | Fault:
    label, _, rest = text.strip().partition(" ")
    if not rest.strip():
        return Fault("has no text behind its label", SKIP_HINT)
    return checked(rest, label.removeprefix(MARK))


def labels_of_row(label: str) -> list[str]:
    """The labels of a text that may have several."""
    return [one.strip() for one in label.split(",") if one.strip() and one.strip() != NO_LABEL]


def is_number(label: str) -> bool:
    """Whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def number_of_row(pairs: Pairs, row: int) -> float:
    """A label as a number."""
    if not is_number(pairs.targets[row]):
        raise DataError(
            f"{pairs.place(row)} has the label {pairs.targets[row]!r}, which is no number",
            code="malformed-line",
            hint="model.output=softmax is for classes",
        )
    return float(pairs.targets[row])


def targets_of(pairs: Pairs, labels: Sequence[str], output: str) -> Array:
    """What is to be said of each text; labels that were not in training are UNSEEN, or not there."""
    if output == "linear":
        return np.array([number_of_row(pairs, row) for row in range(len(pairs))], dtype=np.float32)
    numbers = {label: number for number, label in enumerate(labels)}
    if output == "softmax":
        return np.array([numbers.get(target, UNSEEN) for target in pairs.targets], dtype=np.int64)
    found = np.zeros((len(pairs), len(labels)), dtype=np.uint8)
    for row, target in enumerate(pairs.targets):
        found[row, [numbers[label] for label in labels_of_row(target) if label in numbers]] = 1
    return found


def choose_units(texts: Sequence[str], data: LabelledConfig) -> tuple[str, list[str]]:
    """The units asked for, or those that suit the texts; and why."""
    if data.units != "auto":
        return data.units, []
    guess = guess_units("\n".join(texts[:SAMPLE_TEXTS]).encode())
    return guess.units, [f"units: {guess.units}, because {guess.why} (--units chooses others)"]


def split_text(text: str, data: LabelledConfig) -> list[str]:
    """A text as words, a tab being a space; of one that is too long, half from either end."""
    text = normalize(text.replace("\t", " "), data.normalize)
    if data.lower_case:
        text = text.lower()
    words = list(text) if data.units == "char" else [word for word in surfaces(text, data.units) or () if word]
    if len(words) > data.max_length:
        words = words[: data.max_length // 2] + words[len(words) - (data.max_length - data.max_length // 2) :]
    return words


def count_words(texts: Sequence[Sequence[str]]) -> Counter[str]:
    """How often each word is in the texts."""
    return Counter(word for words in texts for word in words)


def encode_texts(texts: Sequence[Sequence[str]], words: WordList) -> Array:
    """Rows of ids, each with EOS_ID behind it; a text without words is one unknown word."""
    ids: list[int] = []
    for text in texts:
        ids += [words.number(word) for word in text] or [UNK_ID]
        ids.append(EOS_ID)
    return np.array(ids, dtype=np.int32)


@dataclass(frozen=True)
class LabelBatch:
    """B texts of up to T words, and what is to be said of each: (B,) classes or numbers, or (B, L) of yes and no."""

    words: Array
    lengths: Array
    targets: Array
    scale: float = 1.0


class LabelBatches(RowBatches[LabelBatch]):
    """Batches of texts of like length, about so many words each. What is counted is texts, not words."""

    def __init__(self, ids: Array, targets: Array, *, words: int, seed: int = 0) -> None:
        self._ids, self._begins, self._targets = ids, begins_of(ids), targets
        lengths = np.diff(self._begins)
        if not len(lengths):
            raise DataError("there is nothing to train on: there are no texts", code="empty-data")
        super().__init__(lengths, lengths, tokens=words, seed=seed)
        self._words_per_epoch = self.tokens_per_epoch
        self.tokens_per_epoch = len(lengths)

    @property
    def tokens_per_step(self) -> int:
        """About how many texts a batch has."""
        return max(1, min(self.num_rows, self.tokens * self.num_rows // self._words_per_epoch))

    def rows(self, rows: Array) -> LabelBatch:
        """The given texts as a batch, their ends left out."""
        words, lengths = padded(self._ids, self._begins, rows)
        return LabelBatch(words[:, :-1], lengths - 1, self._targets[rows])
