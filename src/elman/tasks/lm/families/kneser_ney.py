"""`kn` and `mkn`: interpolated Kneser-Ney (Chen & Goodman 1998)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field, field_validator

from elman.core.arrays import Array
from elman.core.settings import Config, Integers
from elman.counts.counting import count_ngrams
from elman.counts.kneser_ney import fit_kneser_ney
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.spark.estimate import Estimate
from elman.tasks.lm.families.smoothed import checked_prune
from elman.tasks.lm.family import CountingFamily, Shape


class KneserNeyConfig(Config):
    """Interpolated Kneser-Ney: `kn` with one discount an order, `mkn` with three (Chen & Goodman 1998)."""

    family: Literal["kn", "mkn"] = "mkn"
    order: int = Field(5, ge=1, le=20, description="words of the longest n-gram")
    prune: Integers = Field(
        (),
        description="drop k-grams seen at most prune[k-1] times, like 0,0,1; the last number holds for higher orders",
    )

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return checked_prune(value)


class KneserNeyFamily(CountingFamily[KneserNeyConfig]):
    """n-grams with continuation counts."""

    counts_on_disk = True
    record = KneserNeyConfig

    def fit(
        self,
        config: KneserNeyConfig,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> NgramModel:
        """Count, then estimate from the counts alone."""
        raw = count_ngrams(
            ids, order=config.order, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines, scratch=scratch
        )
        return fit_kneser_ney(
            raw,
            modified=config.family == "mkn",
            prune=config.prune,
            reset_lines=shape.reset_lines,
            scratch=scratch,
            report=report,
        )

    def estimate(self, config: KneserNeyConfig) -> Estimate:
        """One discount an order or three, from continuation counts."""
        return Estimate(config.family, config.order, config.prune)

    def restore(self, config: KneserNeyConfig, tensors: Mapping[str, Array], shape: Shape) -> NgramModel:
        """Probabilities and back-off weights."""
        return NgramModel.from_tensors(
            tensors, order=config.order, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines
        )
