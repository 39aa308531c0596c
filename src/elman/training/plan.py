"""What a plan is: sizes for a net and its training that suit the time there is, and a sentence that says so.

There is a module of rules for each kind of data: `plan_text` here, and those of the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elman.training.budget import format_duration

BETA1 = 0.9  # of Adam, for nets that read rows: their batches differ more from one another than windows of a stream


@dataclass(frozen=True)
class Machine:
    """How fast matrices are multiplied here, as measured."""

    flops_per_second: float
    bfloat16_speedup: float = 1.0  # over float32


# What a run without a budget is planned for, wherever it runs: the same command and seed make the same net.
USUAL_MACHINE = Machine(100e9)


@dataclass(frozen=True)
class Means:
    """What a plan has to go by: the time, the machine, and what the user has set, which is not to be chosen."""

    seconds: float  # for training
    flops_per_second: float  # of the machine's matrix product, as measured
    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    bfloat16_speedup: float = 1.0  # of the machine's matrix product
    is_limited: bool = False  # the seconds are a budget, not a guess


@dataclass(frozen=True)
class Plan:
    """Settings for a net and its training, and the reasons for them."""

    model: dict[str, Any] = field(default_factory=dict)  # keys of the model's record
    train: dict[str, Any] = field(default_factory=dict)  # keys of TrainConfig
    passes: float = 0.0  # over the data that there should be time for
    data: str = ""  # what a pass is over: `1,234 tokens`
    note: str = ""  # a sentence that the user should know

    def sentences(self, *, seconds: float | None) -> tuple[str, ...]:
        """What was chosen and, where there is a budget of seconds, what it should come to; nothing where nothing was."""
        every = {f"model.{key}": value for key, value in self.model.items()}
        every |= {f"train.{key}": value for key, value in self.train.items()}
        if not every:
            return ()
        chosen = ", ".join(
            f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in every.items()
        )
        if seconds is None:
            return (f"chosen: {chosen}",)
        passes = f"{self.passes:.1f}" if self.passes < 10 else f"{self.passes:.0f}"
        return (
            f"chosen for {format_duration(seconds)} of training: {chosen}",
            f"that should be about {passes} passes over {self.data}" + (f"; {self.note}" if self.note else ""),
        )


def adam_settings(train: Mapping[str, Any], *, rate: float) -> dict[str, Any]:
    """The learning rate and the momentum of Adam, where another optimiser or other values are not given."""
    if train.get("optimiser", "adam") not in ("adam", "adamw"):
        return {}
    return {key: value for key, value in {"learning_rate": rate, "beta1": BETA1}.items() if key not in train}
