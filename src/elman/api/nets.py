"""Train nets: like counting, but over minutes, so a run is sized to its time, told about, and can be gone on with.

A run lives in `DIR/checkpoints` until it is over: what was asked for (run.json), the tokenizer, the text as ids
(memory-mapped, so memory does not grow with the corpus), and the trainer's own checkpoints. Then the model is saved in DIR.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from elman import build, config, files, store
from elman.api.model import Model, load
from elman.config import Config, RecurrentConfig, TrainConfig, WindowConfig
from elman.errors import DataError, UsageError
from elman.evaluate import Evaluation
from elman.lm import Array
from elman.text.corpus import Corpus
from elman.text.tokenizer import Tokenizer
from elman.train.budget import Budget, format_duration
from elman.train.plan import plan
from elman.train.progress import Outcome, Progress
from elman.train.threads import advise_on_load, choose_threads, prepare_environment

if TYPE_CHECKING:
    from elman.train.trainer import Trainer

NetConfig = WindowConfig | RecurrentConfig
Report = Callable[[str], None]
OnProgress = Callable[[Progress], None]
RUN = "run.json"
IDS = "ids.safetensors"
DEFAULT_SECONDS = 1800.0  # the time a net is sized for where there is no budget


class RunRecord(Config):
    """What was asked for, so that `resume` needs nothing else."""

    record: store.Record
    train: TrainConfig
    budget_seconds: float | None
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

    from elman.train.speed import measure_peak

    threads = choose_threads(record.threads).count
    torch.set_num_threads(threads)
    if (advice := advise_on_load(threads)) is not None:
        report(advice)
    chosen = plan(
        family=record.model.family,
        num_tokens=len(corpus.ids),
        vocab_size=tokenizer.vocab_size,
        seconds=0.9 * (max(1.0, budget.deadline - time.monotonic()) if budget else DEFAULT_SECONDS),
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
        _keep(out, run, tokenizer, corpus, heldout)
    return _go(
        run, lm, tokenizer, corpus.ids, heldout.ids if heldout else None,
        budget=budget, out=out, resume=False, device=device, report=report, on_progress=on_progress,
    )  # fmt: skip


def resume(
    directory: str | Path,
    *,
    started: float | None = None,
    device: str | None = None,
    report: Report = lambda sentence: None,
    on_progress: OnProgress = lambda progress: None,
) -> Model:
    """Go on with a run that was stopped; a finished one is just loaded. `started`: when this process began."""
    directory, now = Path(directory), time.monotonic()
    folder = directory / files.RUN_FOLDER
    if not (folder / RUN).is_file():
        if files.holds_model(directory):
            return load(directory)
        raise UsageError(f"there is no run to go on with in {directory}", hint="elman train begins one")
    prepare_environment()
    import torch

    with store.reserve_run(directory):
        try:
            run = RunRecord.model_validate(json.loads((folder / RUN).read_bytes()))
        except (ValidationError, ValueError) as error:
            raise DataError(f"{folder / RUN} is damaged: {str(error).splitlines()[0]}") from None
        tokenizer = Tokenizer.from_files(lambda name: (folder / name).read_bytes())
        tensors = files.read_tensors(folder / IDS)
        budget = None if run.budget_seconds is None else Budget(run.budget_seconds, now if started is None else started)
        torch.set_num_threads(run.record.threads or choose_threads().count)
        lm = _new(run.record.model, tensors["train"], tokenizer, run.record, lambda sentence: None)  # type: ignore[arg-type]
        return _go(
            run, lm, tokenizer, tensors["train"], tensors.get("valid"),
            budget=budget, out=directory, resume=True, device=device, report=report, on_progress=on_progress,
        )  # fmt: skip


def _new(
    model_config: NetConfig, ids: Array, tokenizer: Tokenizer, record: store.Record, report: Report
) -> build.Saveable:
    """A net with fresh weights."""
    import numpy as np

    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    vectors = None
    if model_config.vectors is not None:
        from elman.nets.vectors import read_vectors

        found = read_vectors(Path(model_config.vectors), tokenizer.tokens)
        report(f"vectors for {found.found:,} of {tokenizer.vocab_size:,} words")
        vectors = found.matrix
    return build.construct(
        model_config,
        vocab_size=tokenizer.vocab_size,
        reset_lines=record.data.reset_lines,
        seed=record.seed,
        counts=counts,
        vectors=vectors,
    )


def _keep(out: Path, run: RunRecord, tokenizer: Tokenizer, corpus: Corpus, heldout: Corpus | None) -> None:
    """Write down what was asked for, so that a kill from here on loses nothing but time."""
    folder = out / files.RUN_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids = {"train": corpus.ids} | ({"valid": heldout.ids} if heldout else {})
    files.write_tensors(folder / IDS, ids)
    for name, content in tokenizer.files().items():
        files.write_bytes(folder / name, content)
    files.write_bytes(folder / RUN, run.model_dump_json(indent=1).encode())  # last: it says that the rest is there


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
    from elman.train.streams import stream_trainer

    if device is not None:
        lm.to(_device(device))  # type: ignore[attr-defined]
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
    for progress in trainer.run():
        for sentence in progress.notes:
            notes.append(sentence)
            report(sentence)
        on_progress(progress)
    assert trainer.outcome is not None
    made = Model(_told(run, trainer, notes, tokenizer), tokenizer, lm)
    report(_summary(trainer.outcome))
    if out is None:
        return made
    store.save(out, made.record, tokenizer=tokenizer, lm=lm, metrics=_journal(out))
    shutil.rmtree(out / files.RUN_FOLDER, ignore_errors=True)  # from here on it is a model, not a run
    return load(out, verify=False)


def _device(name: str) -> Any:
    import torch

    try:
        return torch.device(name)
    except RuntimeError:
        raise UsageError(f"there is no device {name!r}", hint="cpu, or cuda where there is one") from None


def _told(run: RunRecord, trainer: Trainer, notes: list[str], tokenizer: Tokenizer) -> store.Record:
    """The record with how the run went, and its numbers on the held-out text."""
    outcome = trainer.outcome
    assert outcome is not None
    changes: dict[str, Any] = {
        "seconds": round(outcome.seconds, 3),
        "notes": tuple(notes),
        "train": trainer.config,
        "outcome": {
            "steps": outcome.steps,
            "tokens": outcome.tokens,
            "epochs": round(outcome.epochs, 3),
            "why": outcome.why,
        },
    }
    if outcome.tally is not None:
        tally = outcome.tally
        if outcome.is_whole:
            from dataclasses import replace

            tally = replace(
                tally, bytes=run.valid_bytes, lines=run.valid_lines, unknown_tokens=run.valid_unknown_tokens
            )
        signature = Model(run.record, tokenizer, trainer.model).signature(reset_lines=run.record.data.reset_lines)  # type: ignore[arg-type]
        changes["valid"] = Evaluation(tally, None, signature).as_json() | {"seed": run.record.seed}
    return run.record.model_copy(update=changes)


def _summary(outcome: Outcome) -> str:
    return (
        f"{outcome.steps:,} steps, {outcome.tokens:,} tokens, {outcome.epochs:.1f} passes in "
        f"{format_duration(outcome.seconds)}: {outcome.why}"
    )


def _journal(out: Path) -> list[dict[str, Any]]:
    path = out / store.METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
