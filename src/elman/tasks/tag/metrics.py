"""Tags beside what they should have been: accuracy, spans as seqeval counts them, a report and a table of confusions.

All numbers are from 0 to 1. What nobody asked for and nobody gave counts as zero, as seqeval and scikit-learn have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elman.tasks.tag.spans import find_scheme, spans_of

Rows = Sequence[Sequence[str]]
MAX_CONFUSED = 30  # labels in a table of confusions


@dataclass(frozen=True)
class Counts:
    """How many were right, how many were given, how many there should have been."""

    right: int = 0
    given: int = 0
    wanted: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.right + other.right, self.given + other.given, self.wanted + other.wanted)

    def numbers(self) -> dict[str, Any]:
        """precision, recall, f1, support"""
        precision = self.right / self.given if self.given else 0.0
        recall = self.right / self.wanted if self.wanted else 0.0
        f1 = 2 * precision * recall / (precision + recall) if self.right else 0.0
        return {"precision": precision, "recall": recall, "f1": f1, "support": self.wanted}


def tag_numbers(given: Rows, wanted: Rows) -> dict[str, Any]:
    """accuracy, f1 and a report by label.

    f1 is that of whole spans, all types together, where the tags that there should be mark spans; otherwise the mean over all
    labels. The report has a line for each type of span, or for each label.
    """
    pairs = Counter(pair for row, truth in zip(given, wanted, strict=True) for pair in zip(row, truth, strict=True))
    total = sum(pairs.values())
    right = sum(count for (tag, truth), count in pairs.items() if tag == truth)
    if find_scheme(tag for _, tag in pairs) is None:
        by_label = label_counts(pairs)
        f1 = sum(counts.numbers()["f1"] for counts in by_label.values()) / max(1, len(by_label))
    else:
        by_label = span_counts(given, wanted)
        f1 = sum(by_label.values(), Counts()).numbers()["f1"]
    report = [{"label": label, **counts.numbers()} for label, counts in sorted(by_label.items())]
    return {
        "accuracy": right / total if total else 0.0,
        "f1": f1,
        "tokens": total,
        "sentences": len(wanted),
        "by_label": report,
    }


def label_counts(pairs: Counter[tuple[str, str]]) -> dict[str, Counts]:
    """Of every label, from how often (given, wanted) came together."""
    found: dict[str, Counts] = {}
    for (tag, truth), count in pairs.items():
        found[tag] = found.get(tag, Counts()) + Counts(count if tag == truth else 0, count, 0)
        found[truth] = found.get(truth, Counts()) + Counts(0, 0, count)
    return found


def span_counts(given: Rows, wanted: Rows) -> dict[str, Counts]:
    """Of every type of span: one is right if its words and its type are."""
    found: dict[str, Counts] = {}
    for row, truth in zip(given, wanted, strict=True):
        spans, true_spans = set(spans_of(row)), set(spans_of(truth))
        for span in spans | true_spans:
            one = Counts(int(span in spans and span in true_spans), int(span in spans), int(span in true_spans))
            found[span.kind] = found.get(span.kind, Counts()) + one
    return found


def confusions(given: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """The most frequent labels, and how often each (downwards) was taken for each (to the right)."""
    pairs = Counter(zip(wanted, given, strict=True))
    often = Counter(wanted) + Counter(given)
    labels = [label for label, _ in sorted(often.items(), key=lambda item: (-item[1], item[0]))[:MAX_CONFUSED]]
    return labels, [[pairs[truth, tag] for tag in labels] for truth in labels]
