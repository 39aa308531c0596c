"""`unigram`, `bigram` and `ngram`: counts of n-grams, smoothed in one of the classic ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from elman.core.arrays import Array
from elman.core.settings import Config, Integers
from elman.counts.counting import Counts, count_ngrams
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.counts.smoothing import CountModel, Smoothing, fit_smoothed
from elman.spark.estimate import Estimate
from elman.tasks.lm.family import CountingFamily, Shape


class SmoothedConfig(Config):
    """What all n-grams have that are smoothed in one of the classic ways."""

    smoothing: Smoothing = Field("add", description="how counts become probabilities")
    alpha: float | None = Field(
        None, gt=0, description="smoothing=add: what is added to every count; tuned on held-out text if not given"
    )

    @property
    def depth(self) -> int:
        """The order: words of an n-gram."""
        return 1

    @property
    def thresholds(self) -> tuple[int, ...]:
        """What is pruned."""
        return ()

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        if self.alpha is not None and self.smoothing != "add":
            raise ValueError(f"alpha is for smoothing=add, not for {self.smoothing}")
        if any(self.thresholds) and self.smoothing in ("ml", "add"):
            raise ValueError(f"prune needs a smoothing that backs off, and {self.smoothing} does not")
        return self


class UnigramConfig(SmoothedConfig):
    """Words by their frequency alone."""

    family: Literal["unigram"] = "unigram"
    smoothing: Literal["ml", "add"] = Field("add", description="how counts become probabilities")


class BigramConfig(SmoothedConfig):
    """One word of history."""

    family: Literal["bigram"] = "bigram"

    @property
    def depth(self) -> int:
        """Two words."""
        return 2


class NgramConfig(SmoothedConfig):
    """order - 1 words of history, smoothed in one of the classic ways."""

    family: Literal["ngram"] = "ngram"
    order: int = Field(3, ge=1, le=20, description="words of the longest n-gram")
    smoothing: Smoothing = Field("interpolated", description="how counts become probabilities")
    prune: Integers = Field(
        (),
        description="drop k-grams seen at most prune[k-1] times, like 0,0,1; the last number holds for higher orders",
    )

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return checked_prune(value)

    @property
    def depth(self) -> int:
        """As set."""
        return self.order

    @property
    def thresholds(self) -> tuple[int, ...]:
        """As set."""
        return self.prune


class SmoothedFamily(CountingFamily[SmoothedConfig]):
    """n-grams of one record."""

    counts_on_disk = True

    def __init__(self, record: type[SmoothedConfig]) -> None:
        self.record = record  # type: ignore[misc]  # one class serves three records

    def fit(
        self,
        config: SmoothedConfig,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> CountModel | NgramModel:
        """Count, tune what is to be tuned on held-out text, smooth."""

        def count(part: Array) -> Counts:
            return count_ngrams(
                part,
                order=config.depth,
                vocab_size=shape.vocab_size,
                reset_lines=shape.reset_lines,
                scratch=scratch,
            )

        return fit_smoothed(
            ids,
            count,
            smoothing=config.smoothing,
            alpha=config.alpha,
            prune=config.thresholds,
            reset_lines=shape.reset_lines,
            heldout_ids=heldout_ids,
            scratch=scratch,
            report=report,
        )

    def estimate(self, config: SmoothedConfig) -> Estimate:
        """The smoothing by its name."""
        return Estimate(config.smoothing, config.depth, config.thresholds, config.alpha)

    def restore(self, config: SmoothedConfig, tensors: Mapping[str, Array], shape: Shape) -> CountModel | NgramModel:
        """Counts where nothing is shared out, else probabilities and back-off weights."""
        kind = CountModel if config.smoothing in ("ml", "add") else NgramModel
        return kind.from_tensors(
            tensors, order=config.depth, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines
        )


def checked_prune(value: tuple[int, ...]) -> tuple[int, ...]:
    """Thresholds that never fall from one order to the next, and leave the words alone."""
    if any(count < 0 for count in value) or list(value) != sorted(value):
        raise ValueError("prune takes counts that never fall from one order to the next, like 0,0,1")
    if value and value[0] > 0:
        raise ValueError("words are not pruned, so prune begins with 0; data.min_count leaves out rare words")
    return value
