"""Labels and numbers beside what they should have been. All but errors of numbers is from 0 to 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.tasks.tag.metrics import Counts, confusions, label_counts

BINS = 15


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


def set_numbers(given: Sequence[set[str]], wanted: Sequence[set[str]]) -> dict[str, Any]:
    """Of several labels at once: how many sets are exactly right, the mean F1 over labels, that of all labels together."""
    counts: dict[str, Counts] = {}
    for labels, truth in zip(given, wanted, strict=True):
        for label in labels | truth:
            one = Counts(int(label in labels and label in truth), int(label in labels), int(label in truth))
            counts[label] = counts.get(label, Counts()) + one
    return {
        "accuracy": float(np.mean([labels == truth for labels, truth in zip(given, wanted, strict=True)])),
        "f1": mean_f1(list(counts.values())),
        "micro_f1": sum(counts.values(), Counts()).numbers()["f1"],
        "examples": len(wanted),
        "by_label": [{"label": label, **counts[label].numbers()} for label in sorted(counts)],
    }


def number_numbers(given: Array, wanted: Array) -> dict[str, Any]:
    """Mean absolute error, its square root of squares, and the part of the variance that is explained."""
    error = np.asarray(given, dtype=np.float64) - wanted
    variance = float(((wanted - wanted.mean()) ** 2).sum())
    return {
        "mae": float(np.abs(error).mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "r2": 1.0 - float((error**2).sum()) / variance if variance else None,
        "examples": len(wanted),
    }


def mean_f1(counts: Sequence[Counts]) -> float:
    """The mean over labels, each counting the same (macro)."""
    return float(sum(one.numbers()["f1"] for one in counts)) / max(1, len(counts))


def calibration_error(confidence: Array, is_right: Array) -> float:
    """How far confidence is from accuracy, over equal bins of confidence (Guo et al. 2017)."""
    bins = np.minimum((np.asarray(confidence, dtype=np.float64) * BINS).astype(int), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, weights=confidence, minlength=BINS) - np.bincount(bins, weights=is_right, minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
