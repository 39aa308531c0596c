"""Mix models into one. What is no model of the next word is refused, and what holds one beside others gives it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elman import store
from elman.core.errors import DataError, UsageError
from elman.core.settings import make, refuse, sections_of
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.mixture_fit import Fitted, fit_mixture
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig
from elman.tasks.base import Report, TaskModel
from elman.tasks.catalogue import load_model
from elman.tasks.lm.counting import Notes, measured, saved
from elman.tasks.lm.families import restore_model
from elman.tasks.lm.families.mixed import MixtureConfig
from elman.tasks.lm.family import Shape
from elman.tasks.lm.model import Model
from elman.text.corpus import read_corpus
from elman.text.readers import Sources, as_sources

LARGEST_NATS = 700.0  # whose exponential is still a number


def mix(
    members: Sequence[str | Path | TaskModel[Any]],
    *,
    valid: str | Path | Sources,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 1,
    overwrite: bool = False,
    command: str | None = None,
    report: Report = lambda message: None,
) -> Model:
    """Mix models linearly, the weights tuned by EM on the text `valid`.

    A member is a directory or a model (of a `bilm`, its forward model); or `cache`: what was just read, forgotten at the
    pace that helps most (`cache:decay=0.998` and `cache:window=200` say how it forgets); or `neural-cache`: what was read
    after a history that the first net among the members finds like this one
    (`neural-cache:window=2000,theta=0.3,decay=1,net=0`; theta and decay are tuned where they are not given).
    """
    if isinstance(members, str | Path | TaskModel):
        raise UsageError(
            "mix takes a list of members", code="wrong-type", hint="for example [model, 'other-model', 'cache']"
        )
    begin = time.perf_counter()
    sections = sections_of(settings or {})
    refuse(sections, ("data", "train", "count"), "a mixture")
    has_cache = "cache" in map(str, members)
    with store.reserve(Path(out), overwrite=overwrite) if out is not None else contextlib.nullcontext():
        neural_caches = [found for member in members if (found := _neural_cache(str(member))) is not None]
        others = [member for member in members if str(member) != "cache" and _neural_cache(str(member)) is None]
        parts = [_cache(str(member)) or _language_model(member) for member in others]
        models = [part for part in parts if isinstance(part, Model)]
        _check_alike(models)
        first = models[0]
        vocab_size, reset_lines = first.record.vocab_size, first.record.data.reset_lines
        configs = [part.record.model if isinstance(part, Model) else part for part in parts]
        mixture = make(MixtureConfig, {**sections["model"], "members": configs}, section="model")
        lms = [
            part.lm if isinstance(part, Model) else restore_model(part, {}, Shape(vocab_size, reset_lines))
            for part in parts
        ]
        notes = Notes(report)
        if reset_lines and (has_cache or neural_caches or len(models) < len(parts)):
            notes("each line is read alone, so the cache forgets with every line; members of a stream let it remember")
        corpus = read_corpus(as_sources(valid), first.tokenizer, first.record.data)
        fitted = fit_mixture(
            lms,
            corpus.ids,
            reset_lines=reset_lines,
            cache=has_cache,
            neural_caches=neural_caches,
            bucketed=mixture.bucketed,
            report=notes,
        )
        mixture = with_caches(mixture, fitted)
        brought = crosswise_numbers(mixture, fitted)
        for sentence in sentences(brought):
            notes(sentence)
        changes = {"model": mixture, "seed": seed, "command": command, "notes": tuple(notes.said)}
        record = first.record.model_copy(update=changes)
        made = measured(
            Model(record, first.tokenizer, fitted.mixture, spelling=first.spelling, index=first.index), corpus, begin
        )
        numbers = {**(made.record.valid or {}), **brought}
        made = replace(made, record=made.record.model_copy(update={"valid": numbers}))
        return saved(made, None if out is None else Path(out))


def with_caches(mixture: MixtureConfig, fitted: Fitted) -> MixtureConfig:
    """The settings of a mixture, with those of the caches that were tuned for it."""
    added = fitted.mixture.members[len(mixture.members) :]
    tuned = [member.config for member in added if isinstance(member, CacheModel | NeuralCache)]
    return mixture.model_copy(update={"members": (*mixture.members, *tuned)})


def crosswise_numbers(mixture: MixtureConfig, fitted: Fitted) -> dict[str, Any]:
    """What a mixture has on text that it was not tuned on, and what each of its members brought."""
    names = [str(getattr(member, "family", "")) for member in mixture.members]
    return {
        "perplexity_crosswise": _perplexity(-float(fitted.crosswise.mean())),
        "members": [
            {
                "name": name,
                "weight": round(member.weight, 4),
                "perplexity": _perplexity(member.alone),
                "perplexity_without": _perplexity(member.without),
            }
            for name, member in zip(names, fitted.ingredients, strict=True)
        ],
    }


def sentences(numbers: Mapping[str, Any]) -> Iterator[str]:
    """The same, for people."""
    for member in numbers["members"]:
        alone = "" if member["perplexity"] is None else f"alone {member['perplexity']:,.2f}, "
        without = member["perplexity_without"]
        rest = "without it some tokens are impossible" if without is None else f"{without:,.2f} without it"
        yield f"{member['name']}: {alone}{rest}"
    if (perplexity := numbers["perplexity_crosswise"]) is not None:
        yield f"perplexity {perplexity:,.2f} crosswise: each half of the validation text by what was tuned on the other"


def _perplexity(nats_per_token: float) -> float | None:
    """None where it is infinite."""
    return math.exp(nats_per_token) if nats_per_token < LARGEST_NATS else None


def _language_model(member: str | Path | TaskModel[Any]) -> Model:
    """A member that is loaded already, or is in a directory."""
    return (member if isinstance(member, TaskModel) else load_model(Path(member))).language_model()


def _cache(member: str) -> CacheConfig | None:
    options = _options(member, "cache")
    cache: CacheConfig | None = None if options is None else make(CacheConfig, options, section="cache")
    return cache


def _neural_cache(member: str) -> NeuralCacheConfig | None:
    options = _options(member, "neural-cache")
    cache: NeuralCacheConfig | None = (
        None if options is None else make(NeuralCacheConfig, options, section="neural-cache")
    )
    return cache


def _options(member: str, kind: str) -> dict[str, str] | None:
    """What is set by `kind:key=value,key=value`; None for another kind of member."""
    name, _, options = member.partition(":")
    if name != kind:
        return None
    pairs = [option.partition("=") for option in options.split(",") if option]
    return {key: value for key, _, value in pairs}


def _check_alike(models: Sequence[Model]) -> None:
    """Members must mean the same by a token and by a line, or their probabilities are not of one thing."""
    if not models:
        raise UsageError(
            "a mixture of caches alone knows nothing", code="bad-mixture", hint="give at least one model directory"
        )
    first = models[0]
    for other in models[1:]:
        if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise DataError(
                f"{_name(other)} and {_name(first)} have different vocabularies",
                code="models-differ",
                hint="train the members on the same text with the same --units",
            )
        if other.record.data.reset_lines != first.record.data.reset_lines:
            raise DataError(
                f"{_name(other)} and {_name(first)} do not read lines the same way",
                code="models-differ",
                hint="train all members with --reset-lines, or none",
            )


def _name(model: Model) -> str:
    """A member as an error calls it."""
    return str(model.directory or f"a {model.record.family} that is not saved")
