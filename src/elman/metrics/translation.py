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

from elman.lm import Array

MAX_BUCKETS = 8
WIDTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class Written:
    """A text, its references, and the tokens of each: what edits are counted in. -> one row of an evaluation"""

    text: str
    references: Sequence[str]
    tokens: Array
    reference_tokens: Sequence[Array]
    source_length: int  # tokens


def corpus_numbers(rows: Sequence[Written], *, tokenize: str = "13a") -> dict[str, Any]:
    """bleu, chrf, exact_match and edit_distance of all rows, without signatures. `tokenize` is sacrebleu's."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    texts, references = _columns(rows)
    edits, tokens = np.sum([edit_counts(row.tokens, row.reference_tokens) for row in rows], axis=0)
    return {
        "bleu": BLEU(tokenize=tokenize, force=True).corpus_score(texts, references).score,
        "chrf": CHRF().corpus_score(texts, references).score,
        "exact_match": sum(row.text in row.references for row in rows) / len(rows),
        "edit_distance": float(edits / max(tokens, 1)),
        "examples": len(rows),
    }


def signatures(rows: Sequence[Written], *, tokenize: str = "13a") -> dict[str, str]:
    """What moves BLEU and chrF besides the texts, as sacrebleu says it."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    texts, references = _columns(rows[:1])
    found = {}
    for name, metric in (("bleu", BLEU(tokenize=tokenize, force=True)), ("chrf", CHRF())):
        metric.corpus_score(texts, references)
        found[name] = str(metric.get_signature())
    counts = {len(row.references) for row in rows}
    num_references = "var" if len(counts) > 1 else str(counts.pop())
    return {name: re.sub(r"nrefs:[^|]*", f"nrefs:{num_references}", text) for name, text in found.items()}


def by_length(rows: Sequence[Written], *, tokenize: str = "13a") -> list[dict[str, Any]]:
    """The same numbers for sources of 1 to 10 tokens, 11 to 20 and so on, whole corpora each; few rows are noise."""
    width = bucket_width([row.source_length for row in rows])
    buckets: dict[int, list[Written]] = {}
    for row in rows:
        buckets.setdefault(max(0, row.source_length - 1) // width, []).append(row)
    return [
        {"from": bucket * width + 1, "to": (bucket + 1) * width, **corpus_numbers(found, tokenize=tokenize)}
        for bucket, found in sorted(buckets.items())
    ]


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
    steps = np.arange(len(other) + 1)
    row = steps.copy()
    for number, token in enumerate(one, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (np.asarray(other) != token))
        # an insertion costs one more than the place before it: a running minimum of what costs nothing to compare
        row = np.minimum.accumulate(np.concatenate([[number], best]) - steps) + steps
    return int(row[-1])


def _columns(rows: Sequence[Written]) -> tuple[list[str], Any]:
    """As sacrebleu takes them: all texts, then all first references, all second ones …; None where there are fewer."""
    most = max(len(row.references) for row in rows)
    columns = [[row.references[i] if i < len(row.references) else None for row in rows] for i in range(most)]
    return [row.text for row in rows], columns
