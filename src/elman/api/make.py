"""Make models: from text, from other models, from another tool's file. All of it is saved, or nothing."""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elman import build, config, store
from elman.api import runs
from elman.api.model import Model, load_lm, sources_of
from elman.api.nets import resume_net, train_net
from elman.api.tasks import Request, TaskModel, find_task, load_task, resume_task, train_task
from elman.config import (
    CacheConfig,
    DataConfig,
    KneserNeyConfig,
    MixtureConfig,
    ModelConfig,
    NetConfig,
    NeuralCacheConfig,
    TrainConfig,
)
from elman.counts.cache import CacheModel
from elman.counts.neural_cache import NeuralCache
from elman.counts.scratch import Scratch
from elman.errors import DataError, UsageError
from elman.text.corpus import Corpus, learn, read_corpus
from elman.text.pipelines import Recipe
from elman.text.readers import Sources
from elman.text.tokenizer import Tokenizer
from elman.train.budget import Budget, parse_duration
from elman.train.progress import Progress

Report = Callable[[str], None]
NO_VALID = "none"
DEFAULT_FAMILY = "mkn"
NOT_FROM_TEXT = ("cache", "neural-cache", "mixture")
EVALUATION_TOKENS = 1 << 16


def _silent(message: str) -> None:
    """What is said while a model is made is also in its record."""


def train(
    task: str,
    data: str | Path | Sources,
    *,
    out: str | Path | None = None,
    model: str | None = None,
    valid: str | Path | Sources | None = None,
    units: str | None = None,
    reset_lines: bool | None = None,
    budget: str | float | None = None,
    started: float | None = None,
    memory: str | int | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: str | Path | None = None,
    init: str | Path | None = None,
    targets: str | Path | Sources | None = None,
    valid_targets: str | Path | Sources | None = None,
    seed: int = 1,
    threads: int | None = None,
    device: str | None = None,
    overwrite: bool = False,
    command: str | None = None,
    report: Report = _silent,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Model | TaskModel:
    """Train a model on text and save it in the directory `out` (None: only give it back).

    Without `valid` the last part of the data is held out; `valid="none"` trains on all of it. `settings` are what
    `--set` takes: {"model.order": 5}. `budget` is an upper bound of time from `started` (on
    time.monotonic's clock; now, if not given) to the saved model; counting takes what it needs. `init` is a
    net to go on from, with its vocabulary. `targets` are for seq2seq: line by line the other side of `data`, where it
    is not a table of pairs; `valid_targets` that of `valid`.
    """
    begin = time.perf_counter()
    if task != "seq2seq" and (targets is not None or valid_targets is not None):
        raise UsageError(f"{task} has no targets", hint="--source and --target are for seq2seq")
    if task != "lm":
        return _train_task(
            task, data, out=out, model=model, valid=valid, units=units, reset_lines=reset_lines, budget=budget,
            started=started, memory=memory, settings=settings, recipe=recipe, init=init, targets=targets,
            valid_targets=valid_targets, seed=seed, threads=threads, device=device, overwrite=overwrite,
            command=command, report=report, on_progress=on_progress,
        )  # fmt: skip
    base = None if init is None else _base(init, model=model, units=units, settings=settings)
    if base is not None:
        model, units = base.record.model.family, base.record.data.units
        reset_lines = base.record.data.reset_lines if reset_lines is None else reset_lines
    data_config, model_config, given = plan(
        model, units=units, reset_lines=reset_lines, settings=settings, recipe=recipe
    )
    limit = None if budget is None else parse_duration(budget)
    memory_bytes = None if memory is None else parse_size(memory)
    with _reserved(out, overwrite=overwrite), Scratch(memory_bytes, threads=threads) as scratch:
        known = None if base is None else base.tokenizer
        learned = learn(sources_of(data), data_config, heldout=valid is None, tokenizer=known)
        notes = _Notes(report)
        for sentence in learned.notes:
            notes(sentence)
        data_config = data_config.model_copy(update={"units": learned.tokenizer.units})
        heldout = learned.heldout
        if valid is not None and valid != NO_VALID:
            heldout = read_corpus(sources_of(valid), learned.tokenizer, data_config)
        if base is not None and learned.train.unknown_tokens:
            notes(f"{learned.train.unknown_tokens:,} tokens of the new text are words that the old model does not know")
        record = store.Record(
            vocab_size=learned.tokenizer.vocab_size,
            data=data_config,
            model=model_config if base is None else base.record.model,
            seed=seed,
            threads=threads if isinstance(model_config, NetConfig) else scratch.threads,
            source=_source(learned.train),
            command=command,
            notes=tuple(notes.said),
        )
        if isinstance(model_config, NetConfig):
            return train_net(
                record,
                tokenizer=learned.tokenizer,
                corpus=learned.train,
                heldout=heldout,
                model_settings=given["model"],
                train_settings=given["train"],
                init=base,
                out=None if out is None else Path(out),
                budget=None if limit is None else Budget(limit, time.monotonic() if started is None else started),
                device=device,
                report=report,
                on_progress=on_progress,
            )
        if device is not None:
            raise UsageError("--device does not apply to models that count", hint="leave it out")
        lm = build.fit(
            model_config,
            learned.train.ids,
            vocab_size=learned.tokenizer.vocab_size,
            reset_lines=data_config.reset_lines,
            heldout_ids=heldout.ids if heldout else None,
            scratch=scratch,
            report=notes,
        )
        record = record.model_copy(update={"notes": tuple(notes.said)})
        made = _finished(Model(record, learned.tokenizer, lm), heldout, begin)
        if limit is not None and (made.record.seconds or 0) > limit:
            report(
                f"took {made.record.seconds:.0f} s, more than the budget of {limit:.0f} s: counting takes what it needs"
            )
        return _saved(made, out)


def _train_task(
    task: str,
    data: str | Path | Sources,
    *,
    out: str | Path | None,
    model: str | None,
    valid: str | Path | Sources | None,
    units: str | None,
    reset_lines: bool | None,
    budget: str | float | None,
    started: float | None,
    memory: str | int | None,
    settings: Mapping[str, Any] | None,
    recipe: str | Path | None,
    init: str | Path | None,
    targets: str | Path | Sources | None,
    valid_targets: str | Path | Sources | None,
    seed: int,
    threads: int | None,
    device: str | None,
    overwrite: bool,
    command: str | None,
    report: Report,
    on_progress: Callable[[Progress], None],
) -> TaskModel:
    find_task(task)  # an error where there is none
    reads_lines = "reset_lines" in config.tasks()[task].data.model_fields
    for flag, value in (
        ("--memory", memory),
        ("--init", init),
        ("--reset-lines", None if reads_lines else reset_lines),
    ):
        if value is not None:
            raise UsageError(f"{flag} does not apply to {task}", hint="leave it out")
    limit = None if budget is None else parse_duration(budget)
    flags = {("data", "units"): units, ("data", "reset_lines"): reset_lines, ("model", "family"): model}
    given = merge_settings(flags, settings=settings, recipe=recipe)
    config.make(TrainConfig, given["train"], section="train")
    request = Request(
        sources_of(data),
        None if valid is None or valid == NO_VALID else sources_of(valid),
        valid is None,
        given,
        seed,
        command,
        report,
        None if targets is None else sources_of(targets),
        None if valid_targets is None else sources_of(valid_targets),
    )
    with _reserved(out, overwrite=overwrite):
        return train_task(
            task,
            request,
            out=None if out is None else Path(out),
            budget=None if limit is None else Budget(limit, time.monotonic() if started is None else started),
            threads=threads,
            device=device,
            on_progress=on_progress,
        )


def load(directory: str | Path, *, verify: bool = True) -> Model | TaskModel:
    """The model in a directory. Its files are checked for damage first; `verify=False` skips that."""
    directory = Path(directory)
    return (
        load_lm(directory, verify=verify) if store.task_of(directory) == "lm" else load_task(directory, verify=verify)
    )


def load_language_model(directory: str | Path, *, verify: bool = True) -> Model:
    """The language model in a directory; an error if the model there is for another task."""
    made = load(directory, verify=verify)
    if not isinstance(made, Model):
        raise UsageError(f"{directory} holds a model for {made.record.task}, not a language model")
    return made


def resume(
    directory: str | Path,
    *,
    started: float | None = None,
    device: str | None = None,
    report: Report = _silent,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Model | TaskModel:
    """Go on with a run that was stopped; a finished one is just loaded. `started`: when this process began."""
    directory, now = Path(directory), time.monotonic()
    folder = runs.find(directory)
    if folder is None:
        return load(directory)
    with store.reserve_run(directory):
        is_lm = runs.read_json(folder).get("record", {}).get("task") == "lm"
        go_on = resume_net if is_lm else resume_task
        return go_on(
            directory,
            folder,
            started=now if started is None else started,
            device=device,
            report=report,
            on_progress=on_progress,
        )


def mix(
    members: Sequence[str | Path],
    *,
    valid: str | Path | Sources,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 1,
    overwrite: bool = False,
    command: str | None = None,
    report: Report = _silent,
) -> Model:
    """Mix models linearly, the weights tuned by EM on the text `valid`.

    A member is a directory, or `cache`: what was just read, forgotten at the pace that helps most (`cache:decay=0.998`
    and `cache:window=200` say how it forgets); or `neural-cache`: what was read after a history that the first net
    among the members finds like this one (`neural-cache:window=2000,theta=0.3,decay=1,net=0`; theta and decay
    are tuned where they are not given).
    """
    from elman.mixture import fit_mixture

    begin = time.perf_counter()
    sections = _sections(settings or {})
    _refuse(sections, ("data", "train"), "a mixture")
    has_cache = "cache" in map(str, members)
    with _reserved(out, overwrite=overwrite):
        neural_caches = [found for member in members if (found := _neural_cache(str(member))) is not None]
        others = [member for member in map(str, members) if member != "cache" and _neural_cache(member) is None]
        parts = [_cache(member) or load_language_model(member) for member in others]
        models = [part for part in parts if isinstance(part, Model)]
        _check_alike(models)
        first = models[0]
        vocab_size, reset_lines = first.record.vocab_size, first.record.data.reset_lines
        configs = [part.record.model if isinstance(part, Model) else part for part in parts]
        mixture = config.make(MixtureConfig, {**sections["model"], "members": configs}, section="model")
        lms = [
            part.lm
            if isinstance(part, Model)
            else build.restore(part, {}, vocab_size=vocab_size, reset_lines=reset_lines)
            for part in parts
        ]
        notes = _Notes(report)
        if reset_lines and (has_cache or neural_caches or len(models) < len(parts)):
            notes("each line is read alone, so the cache forgets with every line; members of a stream let it remember")
        corpus = read_corpus(sources_of(valid), first.tokenizer, first.record.data)
        lm = fit_mixture(
            lms,
            corpus.ids,
            reset_lines=reset_lines,
            cache=has_cache,
            neural_caches=neural_caches,
            bucketed=mixture.bucketed,
            report=notes,
        )
        tuned = [member.config for member in lm.members[len(lms) :] if isinstance(member, CacheModel | NeuralCache)]
        mixture = mixture.model_copy(update={"members": (*mixture.members, *tuned)})
        changes = {"model": mixture, "seed": seed, "command": command, "notes": tuple(notes.said)}
        made = Model(first.record.model_copy(update=changes), first.tokenizer, lm)
        return _saved(_finished(made, corpus, begin), out)


def import_arpa(
    path: str | Path,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
    report: Report = _silent,
) -> Model:
    """Make a model of an ARPA file, which scores as the tool that made it would."""
    from elman.counts.arpa import read_arpa

    begin = time.perf_counter()
    with _reserved(out, overwrite=overwrite):
        tokens, lm = read_arpa(Path(path))
        tokenizer = Tokenizer(Recipe("space", list(tokens), None))
        record = store.Record(
            vocab_size=tokenizer.vocab_size,
            data=DataConfig.model_validate({"units": "space", "reset_lines": True}),
            model=KneserNeyConfig.model_validate({"order": lm.order}),
            seed=0,
            seconds=round(time.perf_counter() - begin, 3),
            command=command,
        )
        return _saved(Model(record, tokenizer, lm), out)


def plan(
    model: str | None,
    *,
    units: str | None,
    reset_lines: bool | None,
    settings: Mapping[str, Any] | None,
    recipe: str | Path | None,
) -> tuple[DataConfig, ModelConfig, dict[str, dict[str, Any]]]:
    """The settings of data and model from all the places they may come from, checked before any work is done.

    The last is what was given, by section: a net's own settings are completed later, when its time is known.
    """
    flags = {("data", "units"): units, ("data", "reset_lines"): reset_lines, ("model", "family"): model}
    merged = merge_settings(flags, settings=settings, recipe=recipe)
    family = merged["model"].setdefault("family", DEFAULT_FAMILY)
    records = config.families()
    if family not in records:
        close = difflib.get_close_matches(str(family), records, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"models: {', '.join(records)}"
        raise UsageError(f"there is no model {family!r}", hint=hint)
    if family in NOT_FROM_TEXT:
        raise UsageError(f"a {family} is not made from text alone", hint="elman mix DIR cache --valid F --out DIR")
    if not issubclass(records[family], NetConfig):
        _refuse(merged, ("train",), f"{family}, which counts")
    config.make(TrainConfig, merged["train"], section="train")
    return (
        config.make(DataConfig, merged["data"], section="data"),
        config.make(records[family], merged["model"], section="model"),
        merged,
    )


def merge_settings(
    flags: Mapping[tuple[str, str], Any], *, settings: Mapping[str, Any] | None, recipe: str | Path | None
) -> dict[str, dict[str, Any]]:
    """By section, from the recipe, --set and flags; what is said twice must be the same."""
    given = _sections(settings or {})
    for (section, key), value in flags.items():
        if value is not None and given[section].setdefault(key, value) != value:
            raise UsageError(f"{section}.{key} is given twice: {value} and {given[section][key]}")
    base = config.parse_settings([], Path(recipe)) if recipe is not None else {}
    return {section: {**base.get(section, {}), **values} for section, values in given.items()}


def _base(init: str | Path, *, model: str | None, units: str | None, settings: Mapping[str, Any] | None) -> Model:
    """The net to go on from; what it has settled cannot be set again."""
    base = load_language_model(init)
    if not isinstance(base.record.model, NetConfig):
        raise UsageError(f"{init} holds a {base.record.model.family}, which counts: there is nothing to go on from")
    if model is not None and model != base.record.model.family:
        raise UsageError(f"{init} holds a {base.record.model.family}, not a {model}", hint="leave out --model")
    if units is not None and units != base.record.data.units:
        raise UsageError(f"{init} was trained on {base.record.data.units} units", hint="leave out --units")
    for key in settings or {}:
        if key.startswith("model."):
            raise UsageError(f"{key} is settled by {init}", hint="leave it out, or train without --init")
    return base


def _sections(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{"model.order": 5} as {"model": {"order": 5}}, with a place for every section."""
    sections = config.parse_settings([])
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section not in sections or not key:
            raise UsageError(f"{name!r} is not of the form section.key", hint=f"sections: {', '.join(sections)}")
        sections[section][key] = value
    return sections


def _refuse(sections: Mapping[str, Mapping[str, Any]], names: Sequence[str], what: str) -> None:
    for name in names:
        for key in sections[name]:
            raise UsageError(f"{name}.{key} does not apply to {what}", hint=f"leave {name}.{key} out")


def _cache(member: str) -> CacheConfig | None:
    options = _options(member, "cache")
    cache: CacheConfig | None = None if options is None else config.make(CacheConfig, options, section="cache")
    return cache


def _neural_cache(member: str) -> NeuralCacheConfig | None:
    options = _options(member, "neural-cache")
    cache: NeuralCacheConfig | None = (
        None if options is None else config.make(NeuralCacheConfig, options, section="neural-cache")
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
        raise UsageError("a mixture of caches alone knows nothing", hint="give at least one model directory")
    first = models[0]
    for other in models[1:]:
        if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise DataError(
                f"{other.directory} and {first.directory} have different vocabularies",
                hint="train the members on the same text with the same --units",
            )
        if other.record.data.reset_lines != first.record.data.reset_lines:
            raise DataError(
                f"{other.directory} and {first.directory} do not read lines the same way",
                hint="train all members with --reset-lines, or none",
            )


class _Notes:
    """Passes on what is said, and remembers it for the record."""

    def __init__(self, report: Report) -> None:
        self.said: list[str] = []
        self._report = report

    def __call__(self, message: str) -> None:
        self.said.append(message)
        self._report(message)


@contextlib.contextmanager
def _reserved(out: str | Path | None, *, overwrite: bool) -> Iterator[None]:
    with store.reserve(Path(out), overwrite=overwrite) if out is not None else contextlib.nullcontext():
        yield


def _finished(made: Model, heldout: Corpus | None, begin: float) -> Model:
    """With its numbers on the held-out text and the time it took."""
    valid = None
    if heldout is not None:
        valid = made.evaluate_blocks(heldout.blocks(EVALUATION_TOKENS), seed=made.record.seed)
    changes = {"valid": valid, "seconds": round(time.perf_counter() - begin, 3)}
    return replace(made, record=made.record.model_copy(update=changes))


def _saved(made: Model, out: str | Path | None) -> Model:
    """The same model, saved and read back from its files, where there is a place for it."""
    if out is None:
        return made
    store.save(Path(out), made.record, tensors=made.lm.tensors(), contents=made.tokenizer.files())
    return load_lm(out, verify=False)


def _source(corpus: Corpus) -> store.Source:
    return store.Source(
        fingerprint=corpus.fingerprint, lines=corpus.num_lines, tokens=len(corpus.ids), bytes=corpus.num_bytes
    )


def parse_size(value: str | int) -> int:
    """Bytes: `4G`, `500M`, `1.5GB`, or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(i?[bB])?", str(value))
    if not found:
        raise UsageError(f"{value!r} is no amount of memory", hint="for example 500M or 4G")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
