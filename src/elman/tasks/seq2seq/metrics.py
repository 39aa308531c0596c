"""What was written beside what should have been: BLEU, chrF, exact match, edits; for all, and by the source's length.

Every text may have several references. BLEU and chrF are sacrebleu's, from 0 to 100, with its signatures; the rest is
from 0 to 1, but for edits, which may be more than the reference has tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array

MAX_BUCKETS = 8
MOST = 0.9
# Scripts that write no spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)
WIDTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class Written:
    """A text, its references, and the tokens of each: what edits are counted in."""

    text: str
    references: Sequence[str]
    tokens: Array
    reference_tokens: Sequence[Array]
    source_length: int  # tokens


class SacrebleuMetric:
    """A metric of sacrebleu, by a statistic for each text. All that is used of what sacrebleu keeps private is used here."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric

    def statistics(self, text: str, references: Sequence[str]) -> list[Any]:
        """What a text adds to a corpus."""
        found: list[Any] = self._metric._extract_corpus_statistics([text], [[reference] for reference in references])
        return found

    def score(self, statistics: Sequence[Any]) -> float:
        """Of the corpus whose texts have these statistics."""
        return float(self._metric._aggregate_and_compute(list(statistics)).score)

    def signature(self) -> str:
        """What moves the score besides the texts."""
        return str(self._metric.get_signature())


class Marks:
    """The marks of texts, each looked at once when it comes; then put together, for all of them or for some.

    `tokenize` is sacrebleu's: 13a for text as people write it, none for what is split already, char where a word is no
    unit. `is_short`: texts are words rather than sentences, so that exact matches say more than BLEU and come first.
    """

    def __init__(self, *, tokenize: str = "13a", is_short: bool = False) -> None:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        bleu = BLEU(tokenize=tokenize, force=True)
        self._metrics = {"bleu": SacrebleuMetric(bleu), "chrf": SacrebleuMetric(CHRF())}
        self._statistics: dict[str, list[Any]] = {name: [] for name in self._metrics}  # of each text
        self._is_short = is_short
        self._numbers: list[tuple[int, int, int, int, int]] = []  # exact, edits, tokens, references, source length

    @classmethod
    def of_texts(cls, references: Sequence[str], *, units: str) -> Marks:
        """As suits the units that are written, and the script of the references."""
        is_unspaced = has_unspaced_script(references)
        tokenize = "none" if units == "space" else "char" if units == "char" or is_unspaced else "13a"
        num_single = sum(len(text.split()) < 2 for text in references)
        is_short = not is_unspaced and (units == "char" or num_single > MOST * len(references))
        return cls(tokenize=tokenize, is_short=is_short)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, rows: Sequence[Written]) -> None:
        """Look at some more."""
        for row in rows:
            for name, metric in self._metrics.items():
                self._statistics[name] += metric.statistics(row.text, row.references)
            edits, tokens = edit_counts(row.tokens, row.reference_tokens)
            is_exact = int(row.text in row.references)
            self._numbers.append((is_exact, edits, tokens, len(row.references), row.source_length))

    def numbers(self, rows: Sequence[int] | None = None) -> dict[str, Any]:
        """bleu, chrf, exact_match and edit_distance of all texts, or of some; what says most comes first."""
        rows = range(len(self)) if rows is None else rows
        exact, edits, tokens, *_ = np.sum([self._numbers[row] for row in rows], axis=0).tolist()
        marks = {
            name: metric.score([self._statistics[name][row] for row in rows]) for name, metric in self._metrics.items()
        }
        rates = {"exact_match": exact / len(rows), "edit_distance": edits / max(tokens, 1)}
        found = {**rates, **dict(reversed(marks.items()))} if self._is_short else {**marks, **rates}
        return {**found, "examples": len(rows)}

    def by_length(self) -> list[dict[str, Any]]:
        """The same numbers for sources of 1 to 10 tokens, 11 to 20 and so on, whole corpora each; few rows are noise."""
        lengths = [numbers[-1] for numbers in self._numbers]
        width = bucket_width(lengths)
        buckets: dict[int, list[int]] = {}
        for row, length in enumerate(lengths):
            buckets.setdefault(max(0, length - 1) // width, []).append(row)
        return [
            {"from": bucket * width + 1, "to": (bucket + 1) * width, **self.numbers(rows)}
            for bucket, rows in sorted(buckets.items())
        ]

    def signatures(self) -> dict[str, str]:
        """What moves BLEU and chrF besides the texts, as sacrebleu says it."""
        counts = {numbers[3] for numbers in self._numbers}
        num_references = "var" if len(counts) > 1 else str(counts.pop())
        return {
            f"{name}_signature": re.sub(r"nrefs:[^|]*", f"nrefs:{num_references}", metric.signature())
            for name, metric in self._metrics.items()
        }


def has_unspaced_script(texts: Sequence[str]) -> bool:
    """Whether most letters are of a script without spaces between words."""
    num_letters = sum(char.isalpha() for text in texts for char in text)
    return 2 * sum(len(UNSPACED.findall(text)) for text in texts) > num_letters


def bucket_width(lengths: Sequence[int]) -> int:
    """The narrowest round width with which there are at most a few buckets."""
    longest = max(lengths, default=1)
    return next((width for width in WIDTHS if longest <= width * MAX_BUCKETS), WIDTHS[-1])


def edit_counts(tokens: Array, references: Sequence[Array]) -> tuple[int, int]:
    """Insertions, deletions and replacements to the nearest reference, and how many tokens that has."""
    found = [(edit_distance(tokens, reference), len(reference)) for reference in references]
    return min(found, key=lambda pair: pair[0] / max(1, pair[1]))


def edit_distance(one: Array, other: Array) -> int:
    """The fewest insertions, deletions and replacements that make the other of the one (Levenshtein 1966)."""
    if np.array_equal(one, other):
        return 0
    steps = np.arange(len(other) + 1)
    row = steps.copy()
    for number, token in enumerate(one, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (np.asarray(other) != token))
        # an insertion costs one more than the place before it: a running minimum of what costs nothing to compare
        row = np.minimum.accumulate(np.concatenate([[number], best]) - steps) + steps
    return int(row[-1])
