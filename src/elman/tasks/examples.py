"""What a run is made of: rows as ids, held-out rows, what its model will need besides weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from elman import store
from elman.core.arrays import Array
from elman.tasks.foundation import Given

R = TypeVar("R", bound=store.Record[Any, Any])  # the record of a task's models
A = TypeVar("A", bound="Assets")
H = TypeVar("H")  # held-out rows, as they were read


class Assets(Protocol):
    """What belongs to a model besides its weights: tokenizers, a linear model."""

    def files(self) -> dict[str, bytes]:
        """All of it as files, in a run and in a model directory."""


@dataclass(frozen=True)
class Examples(Generic[A, H]):
    """What a run trains on and is judged by, and what its model will need besides weights."""

    assets: A
    arrays: Mapping[str, Array]  # rows as ids, those of training and those held out; memory-mapped in a resumed run
    heldout: H | None = None  # the held-out rows, to be measured by


@dataclass(frozen=True)
class Prepared(Generic[R, A, H]):
    """Data read and its vocabulary learned: all that a run needs from now on."""

    record: R  # `model` is completed when the time is known
    examples: Examples[A, H]
    start: Any | None = None  # a trained net to go on from
    foundation: Given | None = None  # words and cells to begin with
