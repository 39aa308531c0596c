"""A language model that was written as ARPA in parts, for another machine to read: nothing of it is loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.tasks.base import EvaluateOptions, Prediction, PredictOptions, TaskModel
from elman.tasks.lm.record import LmRecord
from elman.text.readers import Sources


class ArpaParts(TaskModel[LmRecord]):
    """Where the parts are, and what was counted."""

    def __init__(self, record: LmRecord, place: str, sizes: tuple[int, ...]) -> None:
        self.record = record
        self.directory = Path(place)
        self.place = place
        self.sizes = sizes  # n-grams of each order

    def info(self) -> dict[str, Any]:
        """What it is and how it was made."""
        record = self.record
        return {
            "directory": self.place,
            "task": record.task,
            "model": record.family,
            "units": record.data.units,
            "vocab_size": record.vocab_size,
            "ngrams": list(self.sizes),
            "settings": record.model.model_dump(mode="json"),
            "source": record.source.model_dump() if record.source else None,
            "seed": record.seed,
            "command": record.command,
            "valid": None,
            "notes": list(record.notes),
        }

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"{self.place} holds ARPA in parts, not a model directory",
            code="not-for-this-model",
            hint=f"cat {self.place}/part-* > model.arpa; elman import model.arpa --out DIR",
        )

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Prediction]:
        self._refuse()

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        self._refuse()

    def tensors(self) -> dict[str, Array]:
        """None here."""
        self._refuse()

    def files(self) -> dict[str, bytes]:
        """None here."""
        self._refuse()
