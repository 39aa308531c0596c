"""How large a forward and a backward language model to train in the time there is. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elman.tasks.bilm.config import BilmConfig
from elman.training.plan import Plan
from elman.training.plan_text import plan_text


def plan_bilm(
    *,
    num_tokens: int,
    vocab_size: int,
    seconds: float,
    flops_per_second: float,
    model: Mapping[str, Any],
    train: Mapping[str, Any],
) -> Plan:
    """As for a language model that has half of the time, with two layers so that there is something to choose from."""
    layers = int(model.get("layers", 2))
    found = plan_text(
        BilmConfig,
        family=str(model.get("family", "lstm")),
        num_tokens=num_tokens,
        vocab_size=vocab_size,
        seconds=seconds / 2,
        flops_per_second=flops_per_second,
        model={"layers": layers, **model},
        train=train,
    )
    chosen = {**({} if "layers" in model else {"layers": layers}), **found.model}
    if layers > 1 and "skip" not in model:
        chosen["skip"] = "residual"
    return Plan(chosen, found.train, found.passes, f"{found.data} in each direction")
