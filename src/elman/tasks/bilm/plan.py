"""How large a forward and a backward language model to train in the time there is. Never imports torch."""

from __future__ import annotations

from dataclasses import replace

from elman.tasks.bilm.config import BilmConfig
from elman.training.plan import Means, Plan
from elman.training.plan_text import plan_text


def plan_bilm(means: Means, *, num_tokens: int, vocab_size: int) -> Plan:
    """As for a language model that has half of the time, with two layers so that there is something to choose from."""
    model = means.model
    layers = int(model.get("layers", 2))
    own = replace(means, seconds=means.seconds / 2, model={"layers": layers, **model})
    family = str(model.get("family", "lstm"))
    found = plan_text(BilmConfig, own, family=family, num_tokens=num_tokens, vocab_size=vocab_size)
    chosen = {**({} if "layers" in model else {"layers": layers}), **found.model}
    if layers > 1 and "skip" not in model:
        chosen["skip"] = "residual"
    return Plan(chosen, found.train, found.passes, f"{found.data} in each direction")
