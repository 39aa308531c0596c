"""Answers beside what they should have been, as SQuAD counts them (Rajpurkar et al. 2016). All is from 0 to 1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.tasks.label_metrics import calibration_error

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain_answer(text: str) -> str:
    """An answer without capitals, punctuation, articles and superfluous space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(given: str, wanted: str) -> float:
    """Of the words that two answers have in common; two that have no words are the same."""
    one, other = plain_answer(given).split(), plain_answer(wanted).split()
    if not one or not other:
        return float(one == other)
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common / (len(one) + len(other))


def answer_numbers(given: Sequence[str], wanted: Sequence[str], confidence: Array) -> dict[str, Any]:
    """accuracy (exact matches), token_f1, and how far confidence is from being right. confidence (N,)"""
    is_right = np.array([plain_answer(one) == plain_answer(other) for one, other in zip(given, wanted, strict=True)])
    marks = [token_f1(one, other) for one, other in zip(given, wanted, strict=True)]
    return {
        "accuracy": float(is_right.mean()),
        "token_f1": float(np.mean(marks)),
        "calibration_error": calibration_error(confidence, is_right),
        "examples": len(wanted),
    }
