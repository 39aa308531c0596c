"""Labels beside what they should have been: what tagging, classification and question answering count alike.

All numbers are from 0 to 1. What nobody asked for and nobody gave counts as zero, as seqeval and scikit-learn have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array

BINS = 15  # bins of confidence over which the calibration error is averaged
MAX_CONFUSED = 30  # labels shown in a confusion matrix


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


def class_numbers(given: Sequence[str], wanted: Sequence[str], confidence: Array) -> dict[str, Any]:
    """accuracy, the mean F1 over labels, how far confidence is from being right, a report by label, confusions.

    confidence (N,) is the probability of what was given.
    """
    counts = label_counts(Counter(zip(given, wanted, strict=True)))
    is_right = np.array([one == other for one, other in zip(given, wanted, strict=True)])
    labels, table = confusions(given, wanted)
    return {
        "accuracy": float(is_right.mean()),
        "f1": mean_f1(list(counts.values())),
        "calibration_error": calibration_error(confidence, is_right),
        "examples": len(wanted),
        "by_label": [{"label": label, **counts[label].numbers()} for label in sorted(counts)],
        "confusions": {"labels": labels, "counts": table},
    }


def label_counts(pairs: Counter[tuple[str, str]]) -> dict[str, Counts]:
    """Of every label, from how often (given, wanted) came together."""
    found: dict[str, Counts] = {}
    for (tag, truth), count in pairs.items():
        found[tag] = found.get(tag, Counts()) + Counts(count if tag == truth else 0, count, 0)
        found[truth] = found.get(truth, Counts()) + Counts(0, 0, count)
    return found


def confusions(given: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """The most frequent labels, and how often each (downwards) was taken for each (to the right)."""
    pairs = Counter(zip(wanted, given, strict=True))
    often = Counter(wanted) + Counter(given)
    labels = [label for label, _ in sorted(often.items(), key=lambda item: (-item[1], item[0]))[:MAX_CONFUSED]]
    return labels, [[pairs[truth, tag] for tag in labels] for truth in labels]


def mean_f1(counts: Sequence[Counts]) -> float:
    """The mean over labels, each counting the same (macro)."""
    return float(sum(one.numbers()["f1"] for one in counts)) / max(1, len(counts))


def calibration_error(confidence: Array, is_right: Array) -> float:
    """How far confidence is from accuracy, over equal bins of confidence (Guo et al. 2017)."""
    bins = np.minimum((np.asarray(confidence, dtype=np.float64) * BINS).astype(int), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, weights=confidence, minlength=BINS) - np.bincount(bins, weights=is_right, minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
