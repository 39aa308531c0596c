"""`snm`: sparse non-negative matrix estimation over n-grams and skip-grams."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elman.core.arrays import Array
from elman.counts.scratch import Scratch
from elman.counts.snm import SnmConfig, SnmModel, fit_snm
from elman.tasks.lm.family import CountingFamily, Shape


class SnmFamily(CountingFamily[SnmConfig]):
    """n-gram and skip-gram features."""

    record = SnmConfig

    def fit(
        self,
        config: SnmConfig,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> SnmModel:
        """Thousands of weights are fitted on the end of the training text, so that the held-out text stays a fair judge."""
        return fit_snm(
            config, ids, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines, heldout_ids=None, report=report
        )

    def restore(self, config: SnmConfig, tensors: Mapping[str, Array], shape: Shape) -> SnmModel:
        """The features and their weights."""
        return SnmModel.from_tensors(config, tensors, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines)
