"""Texts with labels, from tables, lines that begin with their label, and JSONL; as words, and as ids.

A row is a pair whose source is the text and whose target is the label: a class, several of them, or a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.classify.config import LabelledConfig
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Sources, is_jsonl
from elman.text.rows import RowBatches, begins_of, padded
from elman.text.settings import DataConfig
from elman.text.tables import Pairs, Parse, Row, checked, parse_record, read_rows, table_parser
from elman.text.units.guess import guess_units
from elman.text.units.surfaces import surfaces
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList

NO_LABEL = "-"  # several labels at once: none of them
MARK = "__label__"  # before a label, as fastText writes it
_RECORD_HINT = 'a record looks like {"text": "...", "label": "..."}'
SAMPLE_TEXTS = 2000


def read_labelled(sources: Sources, data: LabelledConfig) -> Pairs:
    """All texts of some files, each with its label."""
    reading = DataConfig.model_validate({"errors": data.errors, "skip_bad": data.skip_bad})
    found = Pairs()
    read_rows(sources, reading, lambda lines, texts: _choose_format(lines, texts, data), found, header=data.header)
    if not len(found):
        raise DataError("there are no texts in the input", hint="a line is a label, a tab or a space, and a text")
    return found


def _choose_format(lines: LineBlock, texts: Sequence[str], data: LabelledConfig) -> Parse:
    has_records = is_jsonl(lines.source)
    if has_records and data.source:
        raise DataError(f"{lines.source} is JSONL, which has no columns", hint="leave out data.source and data.target")
    look = guess_task(texts[:SAMPLE_LINES], is_jsonl=has_records)
    if not data.source and (look.task in ("tag", "qa") or (has_records and look.task != "classify")):
        raise DataError(
            f"{lines.source} is not labels and texts: it looks like {look.like}",
            hint=f"elman train {look.task} is for such files",
        )
    if has_records:
        return lambda text: parse_record(text, ("text", "label"), _RECORD_HINT)
    if data.source or any("\t" in text for text in texts[:1]):
        return table_parser(texts, data.source, data.target, usual=(2, 1))
    return _parse_line


def _parse_line(text: str) -> Row | Fault:
    label, _, rest = text.strip().partition(" ")
    if not rest.strip():
        return Fault("has no text behind its label", SKIP_HINT)
    return checked(rest, label.removeprefix(MARK))


def labels_of_row(label: str) -> list[str]:
    """The labels of a text that may have several."""
    return [one.strip() for one in label.split(",") if one.strip() and one.strip() != NO_LABEL]


def number_of_row(pairs: Pairs, row: int) -> float:
    """A label as a number."""
    try:
        value = float(pairs.targets[row])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(
            f"{pairs.place(row)} has the label {pairs.targets[row]!r}, which is no number",
            hint="model.output=softmax is for classes",
        )
    return value


def choose_units(texts: Sequence[str], data: LabelledConfig) -> tuple[str, list[str]]:
    """The units asked for, or those that suit the texts; and why."""
    if data.units != "auto":
        return data.units, []
    guess = guess_units("\n".join(texts[:SAMPLE_TEXTS]).encode())
    return guess.units, [f"units: {guess.units}, because {guess.why} (--units chooses others)"]


def split_text(text: str, data: LabelledConfig) -> list[str]:
    """A text as words; of one that is too long, half from either end."""
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
            raise DataError("there is nothing to train on: there are no texts")
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
