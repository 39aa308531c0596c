"""Train language models that are nets: like counting, but over minutes, so a run is sized to its time and told about."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman import config, store
from elman.core import files
from elman.core.arrays import Array
from elman.lm.evaluate import Evaluation
from elman.nets.config import NetConfig
from elman.tasks import runs
from elman.tasks.lm import build
from elman.tasks.lm.model import Model, load_lm
from elman.tasks.runs import OnProgress, Report
from elman.tasks.word_vectors import read_word_vectors
from elman.text.corpus import Corpus
from elman.text.units.tokenizer import Tokenizer
from elman.training.budget import Budget
from elman.training.config import TrainConfig
from elman.training.plan_text import plan
from elman.training.progress import Outcome
from elman.training.threads import advise_on_load, choose_threads, prepare_environment

if TYPE_CHECKING:
    from elman.nets.neural_lm import NeuralModel


class RunRecord(runs.AnyRun):
    """A run over a text."""

    record: store.Record
    valid_bytes: int
    valid_lines: int
    valid_unknown_tokens: int


def train_net(
    record: store.Record,
    *,
    tokenizer: Tokenizer,
    corpus: Corpus,
    heldout: Corpus | None,
    model_settings: Mapping[str, Any],
    train_settings: Mapping[str, Any],
    init: Model | None,
    out: Path | None,
    budget: Budget | None,
    device: str | None,
    report: Report,
    on_progress: OnProgress,
) -> Model:
    """Size, train, measure and save a net. `record` is complete but for what is decided here."""
    prepare_environment()
    import torch

    from elman.training.speed import measure_peak

    threads = choose_threads(record.threads)
    torch.set_num_threads(threads)
    if (advice := advise_on_load(threads)) is not None:
        report(advice)
    chosen = plan(
        family=record.model.family,
        num_tokens=len(corpus.ids),
        vocab_size=tokenizer.vocab_size,
        seconds=0.9 * (max(1.0, budget.deadline - time.monotonic()) if budget else runs.DEFAULT_SECONDS),
        flops_per_second=measure_peak(repeats=40),  # half a second: others' work on the machine comes and goes
        model=init.record.model.model_dump(exclude_defaults=True) if init else model_settings,
        train=train_settings,
    )
    if budget is None and not {"epochs", "steps"} & train_settings.keys():
        report("without --budget or --epochs it ends when the validation text has stopped getting better")
    for sentence in () if init else chosen.why[: None if budget else 1]:
        report(sentence)
    model_config: NetConfig = record.model  # type: ignore[assignment]
    if init is None:
        settings = {**chosen.model, **model_settings}
        model_config = config.make(type(record.model), settings, section="model")
    train_config: TrainConfig = config.make(TrainConfig, {**chosen.train, **train_settings}, section="train")
    lm = init.lm if init else _new(model_config, corpus.ids, tokenizer, record, report)
    record = record.model_copy(update={"model": getattr(lm, "config", model_config), "threads": threads})
    run = RunRecord(
        record=record,
        train=train_config,
        budget_seconds=budget.seconds if budget else None,
        valid_bytes=heldout.num_bytes if heldout else 0,
        valid_lines=heldout.num_lines if heldout else 0,
        valid_unknown_tokens=heldout.unknown_tokens if heldout else 0,
    )
    if out is not None:
        ids = {"train": corpus.ids} | ({"valid": heldout.ids} if heldout else {})
        runs.keep(out, run, contents=tokenizer.files(), tensors=ids)
    return _go(
        run, lm, tokenizer, corpus.ids, heldout.ids if heldout else None,
        budget=budget, out=out, resume=False, device=device, report=report, on_progress=on_progress,
    )  # fmt: skip


def resume_net(
    directory: Path,
    folder: Path,
    *,
    started: float,
    device: str | None,
    report: Report,
    on_progress: OnProgress,
) -> Model:
    """Go on with the run in a folder."""
    prepare_environment()
    import torch

    from elman.training.checkpoint import newest_checkpoint

    run = runs.read(folder, RunRecord)
    tokenizer = Tokenizer.from_files(lambda name: (folder / name).read_bytes())
    tensors = files.read_tensors(folder / runs.IDS)
    torch.set_num_threads(run.record.threads or choose_threads())
    lm = _new(run.record.model, tensors["train"], tokenizer, run.record, lambda sentence: None)  # type: ignore[arg-type]
    if (found := newest_checkpoint(directory)) is not None:
        lm.take_ngrams(build.within(found.tensors, "model/"))  # a net that was fine-tuned has those of another text
    return _go(
        run, lm, tokenizer, tensors["train"], tensors.get("valid"),
        budget=None if run.budget_seconds is None else Budget(run.budget_seconds, started),
        out=directory, resume=True, device=device, report=report, on_progress=on_progress,
    )  # fmt: skip


def _new(
    model_config: NetConfig, ids: Array, tokenizer: Tokenizer, record: store.Record, report: Report
) -> NeuralModel[Any]:
    """A net with fresh weights."""
    vectors = read_word_vectors(model_config, tokenizer, report=report)
    return build.construct(
        model_config,
        ids,
        vocab_size=tokenizer.vocab_size,
        reset_lines=record.data.reset_lines,
        seed=record.seed,
        vectors=vectors,
    )


def _go(
    run: RunRecord,
    lm: build.Saveable,
    tokenizer: Tokenizer,
    ids: Array,
    valid_ids: Array | None,
    *,
    budget: Budget | None,
    out: Path | None,
    resume: bool,
    device: str | None,
    report: Report,
    on_progress: OnProgress,
) -> Model:
    from elman.training.streams import stream_trainer

    lm.to(runs.choose_device(device, report))  # type: ignore[attr-defined]
    trainer = stream_trainer(
        lm,  # type: ignore[arg-type]
        ids,
        valid_ids,
        config=run.train,
        seed=run.record.seed,
        reset_lines=run.record.data.reset_lines,
        directory=out,
        resume=resume,
        budget=budget,
    )
    notes = list(run.record.notes)
    outcome = runs.follow(trainer, notes=notes, report=report, on_progress=on_progress)
    made = Model(run.record, tokenizer, lm)
    changes = runs.told(trainer, outcome, notes) | {"valid": _numbers(run, made, outcome)}
    made = replace(made, record=run.record.model_copy(update=changes))
    if out is None:
        return made
    runs.save(
        out,
        made.record,
        tensors=lm.tensors(),
        contents=tokenizer.files(),
        spare_seconds=trainer.spare_seconds(),
        report=report,
    )
    return load_lm(out, verify=False)


def _numbers(run: RunRecord, made: Model, outcome: Outcome) -> dict[str, Any] | None:
    """Of the held-out text, by the keys of `evaluate`."""
    tally = outcome.tally
    if tally is None:
        return None
    if outcome.is_whole:
        tally = replace(tally, bytes=run.valid_bytes, lines=run.valid_lines, unknown_tokens=run.valid_unknown_tokens)
    signature = made.signature(reset_lines=run.record.data.reset_lines)
    return Evaluation(tally, None, signature).as_json() | {"seed": run.record.seed}
