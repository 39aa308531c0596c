"""How large a net to train in the time there is. Never imports torch; says in sentences what it chose and why.

A run of C operations spends 6 for each weight of a matrix product and token, so width and passes compete for them. On two
cores and Penn Treebank one LSTM layer of 400-512 was best for 20 minutes: about 3.5 tokens for each such weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elman.nets.config import NetConfig
from elman.nets.sampling import choose_samples
from elman.training.plan import Means, Plan

TOKENS_PER_WEIGHT = 3.5
EFFICIENCY = 0.75  # share of the machine's peak that a training step reaches
SIZES = (64, 100, 128, 160, 200, 256, 320, 400, 512, 640, 768, 1024, 1280, 1536)
MANY_WORDS = 5_000  # vocabulary size below which the full softmax is cheap
FULL_FROM = 400  # hidden size that must be affordable with a full softmax; else the head is sampled
ADAPTIVE_SHARE = 0.12  # share of the full softmax's work that an adaptive one does
NGRAM_WEIGHTS = 150_000  # matrix weights that cost as much as one token's n-gram features
ALONE_WIDTH = 40  # hidden size whose output layer costs as much as n-gram features without a net
ATTENTION_WINDOW = 128
ATTENTION_LAYERS = 2
MIN_STEPS = 1_200  # steps of a run: a short one takes smaller batches rather than fewer steps
HIGHEST_RATE, WIDE = 0.005, 256
MAX_DROPOUT = 0.6
MAX_PASSES = 40  # passes after which validation has usually stopped improving


def plan_text(record: type[NetConfig], means: Means, *, family: str, num_tokens: int, vocab_size: int) -> Plan:
    """Sizes for what the user has not set. The record of the net says what its layers cost and the rate they stand."""
    given, train = means.model, means.train
    chosen: dict[str, Any] = {}
    operations = means.seconds * means.flops_per_second * EFFICIENCY
    if "head" not in given:
        chosen["head"] = _choose_head(record, family, operations, vocab_size)
    head = given.get("head", chosen.get("head", "full"))
    hidden = None if given.get("hidden") is None else int(given["hidden"])
    if "tied" not in given and head != "adaptive" and (family != "window" or head != "full") and hidden != 0:
        chosen["tied"] = True
    outputs = _outputs(head, vocab_size, given.get("samples"))
    layers = int(given.get("layers", ATTENTION_LAYERS if family == "transformer" else 1))
    if hidden is None:
        hidden = _choose_hidden(record, family, operations, num_tokens, outputs, layers=layers)
        chosen["hidden"] = hidden
    weights = matmul_weights(record, family, hidden, outputs, layers=layers) if hidden else ALONE_WIDTH * outputs
    weights += NGRAM_WEIGHTS if given.get("maxent") else 0
    passes = operations / (6.0 * weights) / max(num_tokens, 1)
    if not any(key.startswith("dropout") for key in given):
        chosen["dropout"] = choose_dropout(min(passes, MAX_PASSES), hidden)
    if family == "transformer":
        chosen |= _choose_window(given, num_tokens)
    if given.get("recurrence") == "additive" and "layer_norm" not in given:
        chosen["layer_norm"] = True  # a sum over all the text: as it is, the output could not be read
    settings = _choose_batch(family, train, num_tokens, vocab_size, tokens=passes * num_tokens)
    settings |= _choose_rate(record, family, hidden, train)
    return Plan(chosen, settings, passes, f"{num_tokens:,} tokens")


def _outputs(head: str, vocab_size: int, samples: Any) -> float:
    """Words that a token is compared with in training: all, those of its clusters, or those that were drawn."""
    if head in ("full", "adaptive"):
        return vocab_size * (ADAPTIVE_SHARE if head == "adaptive" else 1.0)
    return choose_samples(vocab_size, None if samples is None else int(samples)) + 1.0


def matmul_weights(record: type[NetConfig], family: str, hidden: int, outputs: float, *, layers: int) -> float:
    """Weights that a token is multiplied with: layers and output, not the embedding, which is looked up."""
    return record.layer_weights(family, hidden=hidden, layers=layers) + hidden * outputs


def choose_dropout(passes: float, hidden: int) -> float:
    """More passes over the same text need more of it, and a narrow net less: .42 for 6 passes, .52 for 10."""
    value = 0.15 * math.log2(1.0 + passes) * min(1.0, hidden / 256)
    return 0.0 if value < 0.04 else round(min(value, MAX_DROPOUT), 2)


def _choose_head(record: type[NetConfig], family: str, operations: float, vocab_size: int) -> str:
    """All words at once where there are few, or time enough; else some drawn anew for every step."""
    full = matmul_weights(record, family, FULL_FROM, vocab_size, layers=1)
    return "full" if vocab_size < MANY_WORDS or full <= _affordable(operations) else "sampled"


def _affordable(operations: float) -> float:
    """Weights that still see enough tokens each, with a little leeway."""
    return 1.15 * math.sqrt(operations / (6.0 * TOKENS_PER_WEIGHT))


def _choose_hidden(
    record: type[NetConfig], family: str, operations: float, num_tokens: int, outputs: float, *, layers: int
) -> int:
    """The widest net that still sees enough tokens, and whose cells are not absurdly many for so little text."""
    best = SIZES[0]
    for size in SIZES:
        weights = matmul_weights(record, family, size, outputs, layers=layers)
        cells = matmul_weights(record, family, size, 0, layers=layers)
        if weights <= _affordable(operations) and cells <= 10.0 * num_tokens:
            best = size
    return best


def _choose_window(given: Mapping[str, Any], num_tokens: int) -> dict[str, Any]:
    """As far as the record says, but no further than the text goes."""
    return {} if "window" in given or num_tokens >= ATTENTION_WINDOW else {"window": max(1, num_tokens)}


def _choose_rate(record: type[NetConfig], family: str, hidden: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Only the LSTM stands the highest rate when it is wide; narrow nets all do, and in a short run they need it."""
    usual = record.usual_rate(family)
    if given.get("optimiser", "adam") not in ("adam", "adamw") or usual is None or given.get("learning_rate"):
        return {}
    factor = 1.0 if family == "transformer" else max(1.0, (WIDE / max(hidden, 1)) ** 2)
    return {"learning_rate": min(HIGHEST_RATE, usual * factor)}


def _choose_batch(
    family: str, given: Mapping[str, Any], num_tokens: int, vocab_size: int, *, tokens: float
) -> dict[str, Any]:
    """Long windows for small alphabets, and where all of a window is read at once; fewer rows for more steps."""
    chosen: dict[str, Any] = {}
    bptt = int(given["bptt"]) if given.get("bptt") is not None else 0
    if not bptt:
        bptt = chosen["bptt"] = (35 if vocab_size > 1000 else 100) * (2 if family == "transformer" else 1)
    if given.get("batch") is None:
        rows = 32 if family == "transformer" else 64
        while rows > 8 and (tokens / (rows * bptt) < MIN_STEPS or num_tokens < 20 * rows * bptt):
            rows //= 2
        chosen["batch"] = rows
    return chosen
