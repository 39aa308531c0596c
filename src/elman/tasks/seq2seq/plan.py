"""How large an encoder and decoder to train in the time there is. Never imports torch; says what it chose and why."""

from __future__ import annotations

import math
from typing import Any

from elman.nets.config import GATES
from elman.training.plan import Means, Plan, adam_settings

SIZES = (64, 96, 128, 192, 256, 384, 512)
EFFICIENCY = 0.45  # share of the machine's peak that training reaches: narrow layers, short rows, attention
PASSES, USUAL_TOKENS = 8.0, 400_000  # passes wanted over a corpus of so many target tokens; a smaller corpus gets more
MIN_PASSES, MAX_PASSES = 5.0, 20.0
MIN_TOKENS, MAX_TOKENS = 350, 3000  # target tokens of a step: many small steps find attention sooner
MAX_LETTERS = 1200  # target tokens of a step where targets are characters
STEPS_PER_PASS = 400  # steps of a pass, at least, where there are enough target tokens
STEPS = 800  # steps of a run, at least: in 185,000 tokens BLEU 8.4 by 206 steps, 12.6 by 412 (docs/log.md)
WORDS = 200  # symbols from which on targets count as words; fewer are characters
MANY_TOKENS = 150_000  # target characters from which on little is memorised, so that less dropout is needed
RATE = 0.5  # learning rate times hidden size: .008 for 64, .002 for 256
SHORT_RATE = 1.0  # the same where there is no time for a whole pass: BLEU 4.1 to 8.4 (docs/log.md)
BLOCKS, BLOCKS_RATE = 3, 0.25  # layers of a transformer, and its learning rate times hidden size


def plan_pairs(means: Means, *, num_pairs: int, source_tokens: int, target_tokens: int, vocab_size: int) -> Plan:
    """Sizes for what the user has not set."""
    model, train = means.model, means.train
    family = str(model.get("family", "lstm"))
    layers = int(model.get("layers", BLOCKS if family == "transformer" else 1))
    operations = means.seconds * means.flops_per_second * EFFICIENCY

    def passes_of(hidden: int) -> float:
        cells = layers * GATES[family] * 2 * hidden**2
        read, written = cells * 0.75, cells + 2 * hidden**2 + hidden * vocab_size
        return operations / (6.0 * (read * source_tokens + written * target_tokens))

    chosen: dict[str, Any] = {} if "layers" in model or layers == 1 else {"layers": layers}
    hidden = int(model["hidden"]) if "hidden" in model else 0
    if not hidden:
        wanted = min(MAX_PASSES, max(MIN_PASSES, PASSES * math.sqrt(USUAL_TOKENS / target_tokens)))
        hidden = max([SIZES[0], *(size for size in SIZES if passes_of(size) >= wanted)])
        chosen["hidden"] = hidden
    has_words = vocab_size >= WORDS
    if not any(key.startswith("dropout") for key in model):
        most = 0.1 if not has_words and target_tokens >= MANY_TOKENS else 0.3
        chosen["dropout"] = round(most * min(1.0, hidden / 256), 2)  # a narrow net has little to lose
    if "label_smoothing" not in model and has_words and model.get("head", "full") == "full":
        chosen["label_smoothing"] = 0.1
    if "tied" not in model and has_words:
        chosen["tied"] = True
    settings: dict[str, Any] = {}
    passes = passes_of(hidden)
    if "batch" not in train:
        most_tokens = MAX_TOKENS if has_words else MAX_LETTERS
        tokens = min(most_tokens, max(MIN_TOKENS, min(target_tokens / STEPS_PER_PASS, passes * target_tokens / STEPS)))
        settings["batch"] = max(1, round(tokens * num_pairs / target_tokens))
    rate = BLOCKS_RATE if family == "transformer" else RATE if passes >= 1 else SHORT_RATE
    return Plan(chosen, settings | adam_settings(train, rate=round(rate / hidden, 4)), passes, f"{num_pairs:,} pairs")
