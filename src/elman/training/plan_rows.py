"""How large a net to train that reads texts and answers with labels. Never imports torch; says what it chose and why."""

from __future__ import annotations

from typing import Any

from elman.nets.config import GATES
from elman.training.plan import Means, Plan, adam_settings

SIZES = (64, 100, 150, 200, 300)
EFFICIENCY = 0.3  # share of the machine's peak that training reaches: narrow layers, short rows
WANTED_PASSES = 14.0
ENOUGH_STEPS = 1000  # steps of a run that ends after a number of passes, at least
MIN_TOKENS, MAX_TOKENS = 250, 1500  # tokens of a step
STEPS_PER_PASS = 140  # steps of a pass, at least, where there are enough tokens
WORD_WIDTH = 200  # width of a word vector and its spelling together, assumed for the cost if not given
RATE = 0.002


def plan_rows(
    means: Means,
    *,
    num_rows: int,
    num_tokens: int,
    rows: str,
    dropout: float,
    max_tokens: int = MAX_TOKENS,
    word_width: int = WORD_WIDTH,
    enough_passes: float | None = None,
    max_nets: int = 1,
) -> Plan:
    """Sizes for what the user has not set.

    max_nets: nets that are trained side by side, at most; narrow ones are preferred to a single wide one.
    enough_passes: after so many a run is over, if they are enough steps; a longer one would learn its texts by heart.
    """
    model, train = means.model, means.train
    family, layers = str(model.get("family", "lstm")), int(model.get("layers", 1))

    wanted_passes = enough_passes or WANTED_PASSES

    def passes_of(hidden: int, num_nets: int) -> float:
        widths = [word_width, *[2 * hidden] * (layers - 1)]
        cells = sum(2 * GATES[family] * hidden * (width + hidden) for width in widths)
        return means.seconds * means.flops_per_second * EFFICIENCY / (6.0 * num_nets * cells * num_tokens)

    chosen: dict[str, Any] = {}
    hidden = int(model["hidden"]) if "hidden" in model else 0
    num_nets = int(model.get("nets", 1))
    if "nets" not in model and max_nets > 1:
        counts = range(2, max_nets + 1)
        num_nets = max([1, *(count for count in counts if passes_of(hidden or SIZES[0], count) >= wanted_passes)])
        chosen["nets"] = num_nets
    if not hidden:
        hidden = max([SIZES[0], *(size for size in SIZES if passes_of(size, num_nets) >= wanted_passes)])
        chosen["hidden"] = hidden
    if not any(key.startswith("dropout") for key in model):
        chosen["dropout"] = dropout
    settings: dict[str, Any] = {}
    batch = int(train.get("batch", 0))
    if not batch:
        tokens = min(max_tokens, max(MIN_TOKENS, num_tokens // STEPS_PER_PASS))
        batch = settings["batch"] = max(1, round(tokens * num_rows / num_tokens))
    passes = passes_of(hidden, num_nets)
    if enough_passes is not None and not {"epochs", "steps"} & train.keys():
        settings["epochs"] = max(enough_passes, round(ENOUGH_STEPS * batch / num_rows, 1))
        passes = min(passes, settings["epochs"])
    return Plan(chosen, settings | adam_settings(train, rate=RATE), passes, f"{num_rows:,} {rows}")
