"""Make models: from text, from other models, from another tool's file. All of it is saved, or nothing."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elman import config, store
from elman.core.errors import UsageError
from elman.counts.scratch import Scratch
from elman.nets.config import NetConfig
from elman.tasks import runs
from elman.tasks.base import Request, TaskModel, find_task, load_task, resume_task, train_task
from elman.tasks.choices import ModelConfig
from elman.tasks.lm import build
from elman.tasks.lm.count_config import KneserNeyConfig
from elman.tasks.lm.model import Model, load_lm, sources_of
from elman.tasks.lm.nets import resume_net, train_net
from elman.tasks.lm.saving import Notes, finished, reserved, saved
from elman.tasks.runs import Report
from elman.tasks.settings import merge_settings, refuse
from elman.text.corpus import Corpus, learn, read_corpus
from elman.text.readers import Sources
from elman.text.settings import DataConfig
from elman.text.units.pipelines import Recipe
from elman.text.units.tokenizer import Tokenizer
from elman.training.budget import Budget, parse_duration
from elman.training.config import TrainConfig
from elman.training.progress import Progress
from elman.training.threads import prepare_environment

NO_VALID = "none"
DEFAULT_FAMILY = "mkn"
NOT_FROM_TEXT = ("cache", "neural-cache", "mixture")


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
    with reserved(out, overwrite=overwrite), Scratch(memory_bytes, threads=threads) as scratch:
        known = None if base is None else base.tokenizer
        learned = learn(sources_of(data), data_config, heldout=valid is None, tokenizer=known)
        notes = Notes(report)
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
        made = finished(Model(record, learned.tokenizer, lm), heldout, begin)
        if limit is not None and (made.record.seconds or 0) > limit:
            report(
                f"took {made.record.seconds:.0f} s, more than the budget of {limit:.0f} s: counting takes what it needs"
            )
        return saved(made, out)


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
    with reserved(out, overwrite=overwrite):
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
    prepare_environment()
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
    with reserved(out, overwrite=overwrite):
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
        return saved(Model(record, tokenizer, lm), out)


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
        refuse(merged, ("train",), f"{family}, which counts")
    config.make(TrainConfig, merged["train"], section="train")
    return (
        config.make(DataConfig, merged["data"], section="data"),
        config.make(records[family], merged["model"], section="model"),
        merged,
    )


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
