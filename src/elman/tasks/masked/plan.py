"""How large a masked model to train in the time there is. Never imports torch."""

from __future__ import annotations

from dataclasses import replace

from elman.tasks.masked.config import MaskedConfig
from elman.training.plan import Means, Plan
from elman.training.plan_text import plan_text

BOTH_WAYS = 0.4  # share of the time for one direction: the upper layers of each read both
PIECE = 70  # tokens of a training row: one in the middle sees enough on both sides
MASKED_RATE = 0.003  # learning rate of Adam for recurrent nets


def plan_masked(means: Means, *, num_tokens: int, vocab_size: int, mask: float) -> Plan:
    """Sizes for what the user has not set.

    Only a part of the tokens is compared with all words, so the output layer costs little, and is full and tied.
    """
    model, train = means.model, means.train
    family = str(model.get("family", "lstm"))
    is_recurrent = family != "transformer"
    own = replace(
        means,
        seconds=means.seconds * (BOTH_WAYS if is_recurrent else 1.0),
        model={"layers": 2, "head": "full", **model},
        train={"bptt": PIECE, **train},
    )
    compared = max(2, round(mask * vocab_size))
    found = plan_text(MaskedConfig, own, family=family, num_tokens=num_tokens, vocab_size=compared)
    settings = {key: value for key, value in found.train.items() if key != "learning_rate" or not is_recurrent}
    if "bptt" not in train:
        settings["bptt"] = PIECE
    if is_recurrent and "learning_rate" not in train and train.get("optimiser", "adam") in ("adam", "adamw"):
        settings["learning_rate"] = MASKED_RATE
    chosen = dict(found.model)
    if is_recurrent and int(model.get("layers", 2)) > 1 and "skip" not in model:
        chosen["skip"] = "residual"  # without, the second layer kept the first from learning for hundreds of steps
    if "dropout" in chosen:  # other tokens are hidden in every pass
        chosen["dropout"] = round(0.6 * chosen["dropout"], 2)
    return Plan(chosen, settings, found.passes, found.data)
