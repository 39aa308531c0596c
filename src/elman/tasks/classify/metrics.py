"""Labels and numbers beside what they should have been. All but errors of numbers is from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.tasks.label_metrics import Counts, mean_f1


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
