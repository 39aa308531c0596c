"""From settings and ids to a model that counts, and from saved tensors back. One `match`, for build.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elman.core.arrays import Array
from elman.counts.kneser_ney import fit_kneser_ney
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.counts.smoothing import CountModel, UniformModel, fit_smoothed
from elman.tasks.lm.count_config import BigramConfig, KneserNeyConfig, NgramConfig, UniformConfig, UnigramConfig

CountConfig = UniformConfig | UnigramConfig | BigramConfig | NgramConfig | KneserNeyConfig
CountedModel = UniformModel | CountModel | NgramModel


def fit_counts(
    config: CountConfig,
    ids: Array,
    *,
    vocab_size: int,
    reset_lines: bool,
    scratch: Scratch,
    heldout_ids: Array | None = None,
    report: Callable[[str], None] = lambda sentence: None,
) -> CountedModel:
    """The model counted from a stream of ids whose lines end with EOS_ID. It may use the scratch's files: save it inside."""
    match config:
        case UniformConfig():
            return UniformModel(vocab_size)
        case KneserNeyConfig():
            return fit_kneser_ney(
                config, ids, vocab_size=vocab_size, reset_lines=reset_lines, scratch=scratch, report=report
            )
        case _:
            return fit_smoothed(
                config,
                ids,
                vocab_size=vocab_size,
                reset_lines=reset_lines,
                heldout_ids=heldout_ids,
                scratch=scratch,
                report=report,
            )


def restore_counts(
    config: CountConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
) -> CountedModel:
    """The model that was saved."""
    match config:
        case UniformConfig():
            return UniformModel(vocab_size)
        case KneserNeyConfig():
            restore = NgramModel.from_tensors
        case _ if config.smoothing in ("ml", "add"):
            return CountModel.from_tensors(tensors, order=config.order, vocab_size=vocab_size, reset_lines=reset_lines)
        case _:
            restore = NgramModel.from_tensors
    return restore(tensors, order=config.order, vocab_size=vocab_size, reset_lines=reset_lines)
