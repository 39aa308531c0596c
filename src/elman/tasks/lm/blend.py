"""The best language model for the time there is: a net, mixed with what counts and what remembers.

A net alone loses to its mixture with n-grams and caches by a fifth of its perplexity, and these take seconds. So whoever names
a time and no family gets the mixture. The net is trained as any other; what is mixed in is made in the time kept at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.counts.scratch import Scratch
from elman.counts.snm import SnmConfig
from elman.lm import evaluate as evaluation
from elman.lm.mixture_fit import Fitted, fit_mixture
from elman.lm.neural_cache import NeuralCacheConfig
from elman.tasks.base import TrainRequest
from elman.tasks.lm.families import find_family
from elman.tasks.lm.families.kneser_ney import KneserNeyConfig
from elman.tasks.lm.families.mixed import MixtureConfig
from elman.tasks.lm.family import CountingFamily, Shape
from elman.tasks.lm.mixing import crosswise_numbers, sentences, with_caches
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmRecord
from elman.tasks.text_task import HeldoutText, TextExamples
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.training.budget import Budget

NET = "lstm"
MIN_NET_SECONDS = 8.0  # below, a net does not even see the words often enough to be worth its start
# A token of training text, on a slow core that nobody else uses: 17.7 M tokens take 4 s for Kneser-Ney on two fast ones.
SNM_SECONDS, MKN_SECONDS = 18e-6, 0.8e-6
SNM_SHARE = 0.03  # of a budget that the better of the two may take
FIT_SECONDS = 3e-4  # a token of validation text and net, of some 700 units
# A token and word of the vocabulary, for the narrowest net: what counts where there are very many
SOFTMAX_SECONDS = 6e-9
# Units that make it twice that: 640 and 33,278 words took 2.2 ms a token on one core, of them 1.3 for the softmax
SOFTMAX_UNITS = 128
ONE_THREAD = 2.0  # times as long as by two
FIT_SHARE, USUAL_FIT_SECONDS = 0.06, 5.0  # of a budget for fitting weights and caches; a text too long for it is cut
MIN_FIT_SECONDS = 2.0  # to fit to a little text, and to save
MIN_FIT_TOKENS = 4_096  # that a mixture is fitted to, whatever it takes
SAVE_SECONDS = 1.5  # kept for saving the mixture
SAVE_WORD_SECONDS = 5e-6  # a word of its vocabulary
SLOWER = 1.3  # times as long as a token of the first ones takes one of a longer text, whose caches are full
FEW_SYMBOLS, LONG_ORDER = 1_000, 8  # a vocabulary of characters or events, and the n-grams it gets


def leaves_the_choice(request: TrainRequest) -> bool:
    """Whether a time is given, and no family: then the model is the best that the time can buy."""
    return request.budget is not None and request.init is None and "family" not in request.settings["model"]


def with_net(request: TrainRequest) -> TrainRequest:
    """The same request, for the net of the mixture."""
    return replace(request, settings={**request.settings, "model": {"family": NET, **request.settings["model"]}})


def choose_counts(num_tokens: int, vocab_size: int, *, budget_seconds: float) -> Config:
    """What counts: skip-grams too where they take little of the time, else Kneser-Ney."""
    if vocab_size < FEW_SYMBOLS:
        return KneserNeyConfig.model_validate({"order": LONG_ORDER})
    can_skip = num_tokens * SNM_SECONDS <= SNM_SHARE * budget_seconds
    return (SnmConfig if can_skip else KneserNeyConfig).model_validate({})


def finishing_seconds(record: LmRecord, examples: TextExamples, budget: Budget) -> float:
    """What is kept of a budget, after the training of the nets, to count, to fit the mixture and to save it."""
    vocab_size, num_nets = record.vocab_size, getattr(record.model, "nets", 1)
    each = SNM_SECONDS if isinstance(record.counts, SnmConfig) else MKN_SECONDS
    num_valid, softmax = len(examples.arrays["valid"]), SOFTMAX_SECONDS * vocab_size
    wider = 1.0 + getattr(record.model, "hidden", 0) / SOFTMAX_UNITS
    each_net = (FIT_SECONDS + wider * softmax) * (ONE_THREAD if record.threads == 1 else 1.0)
    wanted = MIN_FIT_SECONDS + num_nets * each_net * num_valid
    # By a net of SOFTMAX_UNITS: those of very many words are narrow
    least = 2.0 * num_nets * softmax * min(num_valid, MIN_FIT_TOKENS)
    fit = max(least, min(wanted, max(USUAL_FIT_SECONDS, FIT_SHARE * budget.seconds)))
    return budget.crowding * each * len(examples.arrays["train"]) + fit + SAVE_WORD_SECONDS * vocab_size


def has_time_for_a_net(budget: Budget, finishing: float) -> bool:
    """Whether more than counting can be done."""
    return budget.deadline - time.monotonic() - finishing >= MIN_NET_SECONDS


def counts_name(record: LmRecord) -> str:
    """The family of what counts."""
    return str(getattr(record.counts, "family", ""))


def describe_choice(record: LmRecord) -> str:
    """What is made of the time, and why."""
    caches = "" if record.data.reset_lines else ", a cache and a neural cache"
    return (
        f"no --model is given, so the time goes into a mixture: {record.family}, which takes nearly all of it, "
        f"{counts_name(record)}{caches}, which take seconds"
    )


def count(config: Config, ids: Array, record: LmRecord) -> Any:
    """A model that counts."""
    family = find_family(getattr(config, "family", ""))
    assert isinstance(family, CountingFamily)
    shape = Shape(record.vocab_size, record.data.reset_lines)
    with Scratch(None, threads=record.threads) as scratch:
        return family.fit(config, ids, shape, heldout_ids=None, scratch=scratch, report=lambda _: None)


def blend(model: Model, examples: TextExamples, *, deadline: float) -> tuple[Model, dict[str, Any]]:
    """A net mixed with what counts and remembers, tuned on the validation text by the deadline, and its numbers.

    A model without a net (its `lm` is None, where there was no time for one) becomes what counts, with a cache.
    """
    record, reset_lines = model.record, model.record.data.reset_lines
    assert record.counts is not None
    counted = count(record.counts, examples.arrays["train"], record)
    parts = [*_nets(record.model, model.lm), (record.counts, counted)]
    lms: list[Any] = [lm for _, lm in parts]

    def fit(ids: Array) -> Fitted:
        return fit_mixture(
            lms,
            ids,
            reset_lines=reset_lines,
            cache=not reset_lines,
            neural_caches=[NeuralCacheConfig.model_validate({})] if len(parts) > 1 and not reset_lines else [],
            bucketed=True,
            report=lambda _: None,
        )

    whole = np.asarray(examples.arrays["valid"])
    save_seconds = SAVE_SECONDS + SAVE_WORD_SECONDS * record.vocab_size
    ids, fitted = _fit_in_time(fit, whole, deadline=deadline - save_seconds)
    mixture = with_caches(MixtureConfig(members=tuple(config for config, _ in parts), bucketed=True), fitted)
    changes = {"model": mixture, "counts": None}
    made = replace(model, lm=fitted.mixture, record=record.model_copy(update=changes))
    brought = crosswise_numbers(mixture, fitted)
    notes = [*sentences(brought)]
    if len(ids) < len(whole):
        notes.insert(0, f"this budget had time to tune on {len(ids):,} of {len(whole):,} tokens of validation text")
    numbers = _numbers(made, ids, fitted, examples.heldout if len(ids) == len(whole) else None)
    return made, {**numbers, **brought, "notes": notes}


def _nets(config: Config, lm: Any) -> list[tuple[Config, Any]]:
    """The net with its settings, where there is one; several that were trained side by side are members of their own."""
    if lm is None:
        return []
    several = getattr(lm, "parts", None)
    return [(config, lm)] if several is None else [(net.config, net) for net in several]


def _fit_in_time(fit: Callable[[Array], Fitted], ids: Array, *, deadline: float) -> tuple[Array, Fitted]:
    """A mixture for as much of the validation text as there is time to fit it to, by how long a little of it takes."""
    began, little = time.monotonic(), ids[:MIN_FIT_TOKENS]
    fitted = fit(little)
    if len(little) == len(ids):
        return ids, fitted
    now = time.monotonic()
    each = SLOWER * (now - began) / len(little)
    affordable = int(min((deadline - now) / each, len(ids)))
    if affordable <= len(little):
        return little, fitted
    return ids[:affordable], fit(ids[:affordable])


def _numbers(model: Model, ids: Array, fitted: Fitted, heldout: HeldoutText | None) -> dict[str, Any]:
    """By the keys of `evaluate`; bytes are known of the whole validation text only."""
    known = heldout or HeldoutText(0, int((ids == EOS_ID).sum()), int((ids == UNK_ID).sum()))
    block = _Block(ids, known.num_lines, known.num_bytes, known.unknown_tokens)
    measured = evaluation.evaluate_by(
        lambda _: -fitted.log_probs,
        [block],
        reset_lines=model.record.data.reset_lines,
        signature=model.signature(reset_lines=model.record.data.reset_lines),
        rng=np.random.default_rng(model.record.seed),
    )
    return measured.with_spelling(known.spelling_nats).as_json() | {"seed": model.record.seed}


class _Block(NamedTuple):
    """The validation text, as `evaluate` reads it."""

    ids: Array
    num_lines: int
    num_bytes: int
    unknown_tokens: int
