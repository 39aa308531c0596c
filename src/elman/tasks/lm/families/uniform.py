"""`uniform`: every symbol as likely as any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.counts.scratch import Scratch
from elman.counts.smoothing import UniformModel
from elman.tasks.lm.family import CountingFamily, Shape


class UniformConfig(Config):
    """Every symbol as likely as any other: the model every other one has to beat."""

    family: Literal["uniform"] = "uniform"


class UniformFamily(CountingFamily[UniformConfig]):
    """Nothing is counted."""

    record = UniformConfig

    def fit(
        self,
        config: UniformConfig,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> UniformModel:
        """There is nothing to fit."""
        return UniformModel(shape.vocab_size)

    def restore(self, config: UniformConfig, tensors: Mapping[str, Array], shape: Shape) -> UniformModel:
        """There was nothing to save."""
        return UniformModel(shape.vocab_size)
