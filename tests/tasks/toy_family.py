"""A family of language models in one file: how often each symbol was seen, each a little more often than it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.core.tensors import require_table
from elman.counts.scratch import Scratch
from elman.lm.protocol import score_by_steps
from elman.tasks.lm.family import CountingFamily, Shape


class ToyConfig(Config):
    """Symbols by their frequency."""

    family: Literal["toy"] = "toy"
    extra: float = Field(1.0, gt=0, description="times that every symbol was seen besides")


class ToyModel:
    """The same distribution after every history. A state is nothing but its rows."""

    def __init__(self, counts: Array, extra: float) -> None:
        self.vocab_size = len(counts)
        self._counts = counts
        self._log_probs_V = np.log((counts + extra) / (counts.sum() + extra * len(counts))).astype(np.float32)

    def start(self, rows: int) -> Array:
        return np.zeros((rows, 0))

    def predict(self, state: Array) -> Array:
        return np.tile(self._log_probs_V, (len(state), 1))

    def advance(self, tokens: Array, state: Array) -> Array:
        return state

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        return score_by_steps(self, tokens, lengths, state)

    def join(self, states: Sequence[Array]) -> Array:
        return np.concatenate(states)

    def tensors(self) -> dict[str, Array]:
        return {"counts": self._counts}


class ToyFamily(CountingFamily[ToyConfig]):
    """Counts symbols."""

    record = ToyConfig

    def fit(
        self,
        config: ToyConfig,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> ToyModel:
        report(f"{len(ids):,} symbols counted")
        return ToyModel(np.bincount(ids, minlength=shape.vocab_size), config.extra)

    def restore(self, config: ToyConfig, tensors: Mapping[str, Array], shape: Shape) -> ToyModel:
        return ToyModel(require_table(tensors, "counts", "i", shape.vocab_size), config.extra)
