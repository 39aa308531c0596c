"""The text that a model was trained on, for those who look inside: as ids, with or without an index of it."""

from __future__ import annotations

from dataclasses import dataclass

from elman.core.arrays import Array


@dataclass(frozen=True)
class TrainingText:
    """Ids, each line ended by EOS_ID."""

    ids: Array
    where: str  # it was found: names of files
    heldout_ids: Array | None = None  # the text that the model was validated on, where it is known
    notes: tuple[str, ...] = ()
