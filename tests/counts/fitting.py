"""Models that count, fitted to a stream of ids in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elman.core.arrays import Array
from elman.counts.counting import Counts, count_ngrams
from elman.counts.kneser_ney import fit_kneser_ney
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.counts.smoothing import CountModel, Smoothing, fit_smoothed

Report = Callable[[str], None]


def silent(sentence: str) -> None:
    """Says nothing."""
    del sentence


def kneser_ney(
    ids: Array,
    *,
    order: int,
    vocab_size: int,
    reset_lines: bool,
    scratch: Scratch,
    modified: bool = True,
    prune: Sequence[int] = (),
    report: Report = silent,
) -> NgramModel:
    """Count and estimate."""
    raw = count_ngrams(ids, order=order, vocab_size=vocab_size, reset_lines=reset_lines, scratch=scratch)
    return fit_kneser_ney(raw, modified=modified, prune=prune, reset_lines=reset_lines, scratch=scratch, report=report)


def smoothed(
    ids: Array,
    *,
    smoothing: Smoothing,
    order: int,
    vocab_size: int,
    reset_lines: bool,
    scratch: Scratch,
    alpha: float | None = None,
    prune: Sequence[int] = (),
    heldout_ids: Array | None = None,
    report: Report = silent,
) -> CountModel | NgramModel:
    """Count, tune and smooth."""

    def count(part: Array) -> Counts:
        return count_ngrams(part, order=order, vocab_size=vocab_size, reset_lines=reset_lines, scratch=scratch)

    return fit_smoothed(
        ids,
        count,
        smoothing=smoothing,
        alpha=alpha,
        prune=prune,
        reset_lines=reset_lines,
        heldout_ids=heldout_ids,
        scratch=scratch,
        report=report,
    )
