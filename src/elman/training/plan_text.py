"""How large a net to train in the time there is. Never imports torch; says in sentences what it chose and why.

A run of C operations spends 6 for each weight of a matrix product and token, so width and passes compete for them. Of
LSTMs of 256, 400 and 512 units in four minutes on Penn Treebank, the one with 2 tokens for each such weight was best, not
those with 10 and with 0.8. Where the processor multiplies bfloat16 faster, the plan counts on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elman.counts.word_vectors import MAX_TOKENS
from elman.nets.config import NetConfig
from elman.nets.sampling import choose_samples
from elman.training.plan import Means, Plan

MIN_TOKENS_PER_WEIGHT = 1.6  # fewer, and a narrower net is better
SIZES = (64, 100, 128, 160, 200, 256, 320, 400, 512, 640, 768, 1024, 1280, 1536)
# A step is slower than its products at their best: by 1 + NARROW / hidden, and by 1 + FEW / rows of a batch. Fitted to the
# steps of LSTMs of 64 to 400 in batches of 8 to 64 on one core. What is not a product does not gain from bfloat16.
NARROW, FEW = 70.0, 5.0
WIDEST = {"rnn": 512}  # wider, plain cells diverge at the rate that suits these, and at a lower one learn less
MANY_WORDS = 5_000  # vocabulary size below which the full softmax is cheap
FULL_FROM = 1024  # hidden size that must be affordable with a full softmax; else the head is sampled
ADAPTIVE_SHARE = 0.12  # share of the full softmax's work that an adaptive one does
SAMPLES_PER_UNIT = 2  # words drawn for each unit of a wide net: a fifth of its work
NGRAM_WEIGHTS = 150_000  # matrix weights that cost as much as one token's n-gram features
ALONE_WIDTH = 40  # hidden size whose output layer costs as much as n-gram features without a net
ATTENTION_WINDOW = 128
ATTENTION_LAYERS = 2
MIN_STEPS = 1_200  # steps of a run: a short one takes smaller batches rather than fewer steps
# Of characters and events. Five passes over tiny shakespeare, 320 units: 785 steps of 64 rows x 100 characters have 4.93,
# 2,240 of 64 x 35 4.52, 3,140 of 32 x 50 4.45, all in the same minutes (docs/log.md)
FEW_SYMBOLS, FEW_SYMBOL_STEPS = 1_000, 2_000
MIN_PASS_STEPS = 20  # steps of a pass: a little text is read in smaller batches, too
MOST_ROWS, FEWEST_ROWS = 64, 8  # of a batch
HIGHEST_RATE, WIDE, VERY_WIDE = 0.005, 256, 512
MAX_DROPOUT, COUNTED_PASSES = 0.6, 40  # more passes need no more dropout
COMMITTEE_DROPOUT = (
    0.5  # at most, of each of several nets: what each learns by heart is another thing, and their mean forgets it
)
# An eighth of Penn Treebank, 20 passes, 256 units: 177.4 with dropout alone, 175.8 with these; but all of it, 22 passes,
# 768 units: 91.6 with these, where ten minutes of 512 units without them have 90.1 (docs/log.md)
MANY_PASSES, WORD_DROPOUT, WEIGHT_DROPOUT = 40, 0.1, 0.4
# A quarter of Penn Treebank, two nets of 256, 13 passes: 135.3 without, weights that shrink 131.6, large and quick outputs
# penalised 130.6, both 128.5; 5 passes: 141.7, 139.2 and 137.2; half of tiny shakespeare 6.51, 6.44 and 6.25 (docs/log.md)
FEW_PASSES, WEIGHT_DECAY = 2, 0.05
PENALTY_PER_PASS, MAX_PENALTY = 0.2, 2.0
MIN_SPEEDUP = 1.5  # of products in bfloat16, from which on a step is faster, too
# An eighth of Penn Treebank, equal work: two nets of 256 units 153.2 at best, one of 400 units 163.1. All of it: a net of 9
# passes in its mixture 71.9, one of 15 71.6, four of these 66.5. A quarter of it, with penalties, equal work: one net of 40
# passes 129.6, two of 20 125.4, three of 13 127.3, four of 10 130.0 (docs/log.md)
NET_PASSES, MAX_NETS = 18, 4  # passes that each of several nets gets, about, and how many at most
MAX_PASSES = 100  # after so many, with as much dropout as there is, a net gets no better
COUNTED_WORDS = 1_000  # vocabulary from which on its words' neighbours are counted for their first vectors
TOKEN_SECONDS, UNIT_SECONDS = 3e-7, 3e-9  # for a token, and for each unit of its vector
WORD_TOKENS = 6  # that a word of the vocabulary costs as much as
MAX_COUNTED_SHARE = 0.06  # of the time, that this may take
LARGE_PRODUCTS = ("lstm", "transformer", "window")  # families that gain from bfloat16: no small products step by step


@dataclass(frozen=True)
class _Work:
    """What a net of any size would have to do."""

    record: type[NetConfig]
    family: str
    means: Means
    num_tokens: int
    layers: int
    bptt: int
    min_steps: int  # of the run, so long as batches have a few rows
    speedup: float  # of products, by their precision

    def efficiency(self, hidden: int, rows: int) -> float:
        """Share of the machine's peak, in float32, that a training step reaches."""
        narrow, few = NARROW * self.speedup / max(hidden, 1), FEW * self.speedup / rows
        return self.speedup / ((1.0 + narrow) * (1.0 + few))

    def tokens(self, hidden: int, rows: int, weights: float) -> float:
        """So many are trained on in the time there is."""
        operations = self.means.seconds * self.means.flops_per_second * self.efficiency(hidden, rows)
        return operations / (6.0 * weights)

    def rows(self, hidden: int, weights: float) -> int:
        """Of a batch: as given, or as many as leave enough steps."""
        if (given := self.means.train.get("batch")) is not None:
            return int(given)
        rows = MOST_ROWS // 2 if self.family == "transformer" else MOST_ROWS
        while rows > FEWEST_ROWS and (
            self.tokens(hidden, rows, weights) < self.min_steps * rows * self.bptt
            or self.num_tokens < MIN_PASS_STEPS * rows * self.bptt
        ):
            rows //= 2
        return rows

    def weights(self, hidden: int, outputs: float) -> float:
        """That a token is multiplied with."""
        return matmul_weights(self.record, self.family, hidden, outputs, layers=self.layers)

    @property
    def may_have_several(self) -> bool:
        """Whether the number of nets is to be chosen: in a budget, where there are layers."""
        given = self.means.model
        has_layers = given.get("hidden") != 0
        return self.means.is_limited and has_layers and "nets" in self.record.model_fields and "nets" not in given

    def has_time_for_several(self, hidden: int, outputs: float) -> bool:
        """Whether more than one net would see the text often enough."""
        if not self.may_have_several:
            return False
        weights = self.weights(hidden, outputs)
        return _count_nets(self.tokens(hidden, self.rows(hidden, weights), weights) / max(self.num_tokens, 1)) > 1

    def is_affordable(self, hidden: int, outputs: float) -> bool:
        """Whether each weight still sees enough tokens."""
        weights = self.weights(hidden, outputs)
        tokens = self.tokens(hidden, self.rows(hidden, weights), weights)
        return tokens >= MIN_TOKENS_PER_WEIGHT * weights


def plan_text(record: type[NetConfig], means: Means, *, family: str, num_tokens: int, vocab_size: int) -> Plan:
    """Sizes for what the user has not set. The record of the net says what its layers cost and the rate they stand."""
    given, train = means.model, means.train
    chosen: dict[str, Any] = {}
    layers = int(given.get("layers", ATTENTION_LAYERS if family == "transformer" else 1))
    bptt = _choose_bptt(family, train, vocab_size, num_tokens)
    precision = _choose_precision(family, means)
    is_low = (precision or train).get("precision") == "bfloat16"
    speedup = max(1.0, means.bfloat16_speedup) if is_low else 1.0
    min_steps = FEW_SYMBOL_STEPS if vocab_size <= FEW_SYMBOLS and family != "transformer" else MIN_STEPS
    work = _Work(record, family, means, num_tokens, layers, int(train.get("bptt") or bptt["bptt"]), min_steps, speedup)
    if "head" not in given:
        chosen["head"] = _choose_head(work, vocab_size)
    head = given.get("head", chosen.get("head", "full"))
    hidden = None if given.get("hidden") is None else int(given["hidden"])
    if "tied" not in given and _can_be_tied(family, head, given):
        chosen["tied"] = True
    if hidden is None:
        hidden = chosen["hidden"] = _choose_hidden(work, head, vocab_size, given.get("samples"))
    outputs = _outputs(head, vocab_size, given.get("samples"), hidden)
    if head == "sampled" and "samples" not in given and outputs - 1.0 > choose_samples(vocab_size):
        chosen["samples"] = int(outputs - 1.0)
    weights = work.weights(hidden, outputs) if hidden else ALONE_WIDTH * outputs
    weights += NGRAM_WEIGHTS if given.get("maxent") else 0
    rows = work.rows(hidden, weights)
    passes = work.tokens(hidden, rows, weights) / max(num_tokens, 1)
    nets = _count_nets(passes)
    if work.may_have_several and nets > 1:
        chosen["nets"] = nets
    passes /= int(chosen.get("nets", given.get("nets", 1)))
    note = ""
    settings = bptt | ({} if "batch" in train else {"batch": rows}) | _choose_rate(record, family, hidden, train)
    if means.is_limited and passes > MAX_PASSES and not {"epochs", "steps"} & train.keys():
        settings["epochs"] = passes = float(MAX_PASSES)
        note = "more would not make it better, so it will end before its time is over (--epochs for another number)"
    if not any(key.startswith("dropout") for key in given):
        chosen |= _choose_noise(record, passes, hidden, given)
        if chosen.get("nets", given.get("nets", 1)) != 1:
            chosen["dropout"] = min(chosen["dropout"], COMMITTEE_DROPOUT)
    chosen |= _choose_vectors(work, hidden, vocab_size)
    if family == "transformer":
        chosen |= _choose_window(given, num_tokens)
    if given.get("recurrence") == "additive" and "layer_norm" not in given:
        chosen["layer_norm"] = True  # a sum over all the text: as it is, the output could not be read
    if means.is_limited and passes >= FEW_PASSES and family == "lstm" and "activation_penalty" in record.model_fields:
        chosen |= _choose_penalties(given, passes) if hidden else {}
        if not {"optimiser", "weight_decay"} & train.keys():
            settings |= {"optimiser": "adamw", "weight_decay": WEIGHT_DECAY}
    return Plan(chosen, settings | precision, passes, f"{num_tokens:,} tokens", note)


def _can_be_tied(family: str, head: str, given: Mapping[str, Any]) -> bool:
    """Whether input and output may share their words; those that hold still would hold the output still, too."""
    has_words = given.get("hidden") != 0 and given.get("tune_vectors", True)
    return has_words and head != "adaptive" and (family != "window" or head != "full")


def _choose_precision(family: str, means: Means) -> dict[str, Any]:
    """Products in bfloat16 where the processor has them and nearly all work of a net is large products."""
    is_chosen = "precision" not in means.train and means.bfloat16_speedup >= MIN_SPEEDUP
    return {"precision": "bfloat16"} if is_chosen and family in LARGE_PRODUCTS else {}


def _outputs(head: str, vocab_size: int, samples: Any, hidden: int) -> float:
    """Words that a token is compared with in training: all, those of its clusters, or those that were drawn."""
    if head in ("full", "adaptive"):
        return vocab_size * (ADAPTIVE_SHARE if head == "adaptive" else 1.0)
    wanted = choose_samples(vocab_size, None if samples is None else int(samples))
    if head == "sampled" and samples is None:
        wanted = max(wanted, min(vocab_size, SAMPLES_PER_UNIT * hidden))
    return wanted + 1.0


def matmul_weights(record: type[NetConfig], family: str, hidden: int, outputs: float, *, layers: int) -> float:
    """Weights that a token is multiplied with: layers and output, not the embedding, which is looked up."""
    return record.layer_weights(family, hidden=hidden, layers=layers) + hidden * outputs


def choose_dropout(passes: float, hidden: int) -> float:
    """More passes over the same text need more of it, and a narrow net less: .42 for 6 passes, .52 for 10."""
    value = 0.15 * math.log2(1.0 + min(passes, COUNTED_PASSES)) * min(1.0, hidden / 256)
    return 0.0 if value < 0.04 else round(min(value, MAX_DROPOUT), 2)


def _choose_noise(record: type[NetConfig], passes: float, hidden: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Dropout; where a text is read many times, of whole words and of recurrent weights, too (Merity et al. 2018)."""
    found: dict[str, Any] = {"dropout": choose_dropout(passes, hidden)}
    if passes >= MANY_PASSES and hidden >= WIDE:
        found["dropout_embedding"] = WORD_DROPOUT
        if "weight_drop" in record.model_fields and "weight_drop" not in given:
            found["weight_drop"] = WEIGHT_DROPOUT
    return found


def _count_nets(passes: float) -> int:
    """How many nets a time for so many passes of one is for."""
    return min(MAX_NETS, max(1, round(passes / NET_PASSES)))


def _choose_penalties(given: Mapping[str, Any], passes: float) -> dict[str, Any]:
    """On outputs that are large or change quickly: as of dropout, the more passes, the more (Merity et al. 2018)."""
    if {"activation_penalty", "temporal_penalty"} & given.keys():
        return {}
    penalty = min(MAX_PENALTY, PENALTY_PER_PASS * passes)
    return {"activation_penalty": round(penalty, 2), "temporal_penalty": round(penalty / 2, 2)}


def _choose_head(work: _Work, vocab_size: int) -> str:
    """All words at once where there are few, or time enough; else some drawn anew for every step."""
    return "full" if vocab_size < MANY_WORDS or work.is_affordable(FULL_FROM, vocab_size) else "sampled"


def _choose_hidden(work: _Work, head: str, vocab_size: int, samples: Any) -> int:
    """The widest net that still sees enough tokens, and whose cells are not absurdly many for so little text.

    Where there is time for several nets of a good width, none is wider than that.
    """
    best = SIZES[0]
    for size in SIZES:
        if size > WIDEST.get(work.family, math.inf):
            break
        outputs = _outputs(head, vocab_size, samples, size)
        is_small = work.weights(size, 0) <= 10.0 * work.num_tokens
        if is_small and work.is_affordable(size, outputs):
            best = size
        if best == VERY_WIDE and work.has_time_for_several(size, outputs):
            break
    return best


def _choose_vectors(work: _Work, hidden: int, vocab_size: int) -> dict[str, Any]:
    """Word vectors begin from counts where the symbols are words and counting takes little of the time.

    A Transformer's output is as large as it is wide, and these words are too large for it: it learns less.
    """
    given = work.means.model
    width = int(given.get("embedding") or hidden)
    if work.family == "transformer" or {"initial_vectors", "vectors"} & given.keys() or not width:
        return {}
    seconds = (min(work.num_tokens, MAX_TOKENS) + WORD_TOKENS * vocab_size) * (TOKEN_SECONDS + UNIT_SECONDS * width)
    is_worth_it = vocab_size >= COUNTED_WORDS and seconds <= MAX_COUNTED_SHARE * work.means.seconds
    return {"initial_vectors": "counted"} if is_worth_it else {}


def _choose_window(given: Mapping[str, Any], num_tokens: int) -> dict[str, Any]:
    """As far as the record says, but no further than the text goes."""
    return {} if "window" in given or num_tokens >= ATTENTION_WINDOW else {"window": max(1, num_tokens)}


def _choose_rate(record: type[NetConfig], family: str, hidden: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Only the LSTM stands the highest rate when it is wide; narrow nets all do, and in a short run they need it."""
    if given.get("optimiser", "adam") not in ("adam", "adamw") or given.get("learning_rate"):
        return {}
    usual = record.usual_rate(family)
    if usual is None:
        return {} if hidden <= VERY_WIDE else {"learning_rate": round(HIGHEST_RATE * (VERY_WIDE / hidden) ** 0.5, 5)}
    factor = 1.0 if family == "transformer" else max(1.0, (WIDE / max(hidden, 1)) ** 2)
    if hidden > (widest := WIDEST.get(family, hidden)):  # as it was set
        factor = (widest / hidden) ** 2
    return {"learning_rate": min(HIGHEST_RATE, usual * factor)}


def _choose_bptt(family: str, given: Mapping[str, Any], vocab_size: int, num_tokens: int) -> dict[str, Any]:
    """Longer windows for small alphabets, and where all of a window is read at once; short ones leave more steps."""
    if given.get("bptt") is not None:
        return {}
    is_long = vocab_size <= FEW_SYMBOLS and num_tokens >= MIN_PASS_STEPS * FEWEST_ROWS * 100
    if family == "transformer":
        return {"bptt": 200 if is_long else 70}
    return {"bptt": 50 if is_long else 35}
