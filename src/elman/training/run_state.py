"""The numbers of a run as a checkpoint stores them, and what one step came to. Never imports torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elman.core.errors import DataError
from elman.text.batches import Position


@dataclass
class RunState:
    """The numbers of a run. The names of the fields are keys of `state.json`, so old runs depend on them."""

    position: Position = field(default_factory=Position)
    step: int = 0
    tokens: int = 0
    rate_factor: float = 1.0  # of the scheduled learning rate; lowered on plateaus and after bad steps
    failures: int = 0  # bad steps that are not yet forgiven
    failed_step: int = 0  # the step of the last of them
    gradient_level: float | None = None  # moving average of the gradient's norm
    average_count: int = 0  # steps in the average of the weights
    logged_nats: float = 0.0  # since the last line of metrics.jsonl
    logged_tokens: int = 0
    best_loss: float | None = None  # lowest validation loss
    best_step: int = 0
    patience_loss: float | None = None  # validation loss that has to be improved on by a margin
    stale: int = 0  # validations since it was
    valid_nats: float | None = None  # nats per token of the last validation
    valid_error: float | None = None  # its error, where the weights are chosen by one
    validated_step: int = 0
    is_validation_due: bool = False
    is_alike: bool = True  # all processes have the same weights; between two averages (`train.sync`) they have not
    journal_bytes: int = 0  # length of metrics.jsonl
    seconds: float = 0.0  # spent so far, in all processes
    began_seconds: float | None = None  # of these, the ones before the first step
    is_finished: bool = False
    outcome: dict[str, Any] | None = None


class BadStep(Exception):  # noqa: N818 - not an error until the run gives up
    """A step that must not be made or kept, and why: a loss, gradient or weight is NaN, infinite or far too large."""


@dataclass(frozen=True)
class StepResult:
    """What one step came to."""

    nats: float  # sum over the tokens of the batch
    tokens: int
    gradient_norm: float  # before clipping
    learning_rate: float
    is_likelihood: bool = True  # the nats are -log p, not those of a sampled criterion


def state_to_json(state: RunState) -> dict[str, Any]:
    """For a checkpoint."""
    return dataclasses.asdict(state)


def state_from_json(raw: Mapping[str, Any]) -> RunState:
    """From a checkpoint, checked."""
    try:
        known = {field.name for field in dataclasses.fields(RunState)}
        return TypeAdapter(RunState).validate_python({key: value for key, value in raw.items() if key in known})
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"the checkpoint's {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}", code="damaged-run"
        ) from None
