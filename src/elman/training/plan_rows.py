"""How large a net to train that reads texts and answers with labels. Never imports torch; says what it chose and why."""

from __future__ import annotations

from typing import Any

from elman.nets.config import GATES
from elman.training.plan import Means, Plan, adam_settings

SIZES = (64, 100, 150, 200, 300)
EFFICIENCY = 0.3  # share of the machine's peak that training reaches: narrow layers, short rows
WANTED_PASSES = 8.0
ENOUGH_STEPS = 1000  # steps of a run, at least
MIN_TOKENS, MAX_TOKENS = 250, 1500  # tokens of a step
STEPS_PER_PASS = 140  # steps of a pass, at least, where there are enough tokens
RATE = 0.002


def plan_rows(
    means: Means,
    *,
    num_rows: int,
    num_tokens: int,
    rows: str,
    dropout: float,
    word_width: int,
    word_cost: float = 0.0,
    max_tokens: int = MAX_TOKENS,
    min_steps: int = ENOUGH_STEPS,
    enough_passes: float | None = None,
    max_nets: int = 1,
) -> Plan:
    """Sizes for what the user has not set.

    word_width, word_cost: what the layers read of a word, and the multiply-adds to get it.
    min_steps: steps of a run, where there are enough tokens: batches are smaller where there is little time.
    max_nets: nets that are trained side by side, at most; narrow ones are preferred to a single wide one. One, of a width
    that was set.
    enough_passes: after so many a run is over, if they are enough steps; a longer one would learn its texts by heart.
    """
    model, train = means.model, means.train
    family, layers = str(model.get("family", "lstm")), int(model.get("layers", 1))
    wanted_passes = enough_passes or WANTED_PASSES

    def passes_of(hidden: int, num_nets: int) -> float:
        widths = [word_width, *[2 * hidden] * (layers - 1)]
        cells = sum(2 * GATES[family] * hidden * (width + hidden) for width in widths)
        operations = 6.0 * num_nets * (cells + word_cost) * num_tokens
        return means.seconds * means.flops_per_second * EFFICIENCY / operations

    chosen: dict[str, Any] = {}
    hidden = int(model["hidden"]) if "hidden" in model else 0
    num_nets = int(model.get("nets", 1))
    if not hidden:
        counts = range(2, max_nets + 1) if "nets" not in model else ()
        for count in counts:
            if passes_of(SIZES[0], count) >= wanted_passes:
                chosen["nets"] = num_nets = count
        hidden = max([SIZES[0], *(size for size in SIZES if passes_of(size, num_nets) >= wanted_passes)])
        chosen["hidden"] = hidden
    if not any(key.startswith("dropout") for key in model):
        chosen["dropout"] = dropout
    settings: dict[str, Any] = {}
    passes = passes_of(hidden, num_nets)
    batch = int(train.get("batch", 0))
    if not batch:
        tokens = min(num_tokens // STEPS_PER_PASS, passes * num_tokens / min_steps)
        batch = settings["batch"] = max(1, round(min(max_tokens, max(MIN_TOKENS, tokens)) * num_rows / num_tokens))
    if enough_passes is not None and not {"epochs", "steps"} & train.keys():
        settings["epochs"] = max(enough_passes, round(ENOUGH_STEPS * batch / num_rows, 1))
        passes = min(passes, settings["epochs"])
    return Plan(chosen, settings | adam_settings(train, rate=RATE), passes, f"{num_rows:,} {rows}")
