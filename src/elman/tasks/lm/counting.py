"""Language models that count: fitted at once, measured, saved; and those that another tool counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from elman import store
from elman.core.arrays import Array
from elman.counts.scratch import Scratch
from elman.counts.spelling import SpellingModel
from elman.tasks.base import Report, TrainRequest
from elman.tasks.lm.families.kneser_ney import KneserNeyConfig
from elman.tasks.lm.family import CountingFamily, Shape
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmDataConfig, LmRecord
from elman.text.corpus import Corpus, Learned
from elman.text.index import TextIndex
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer


class Notes:
    """Passes on what is said, and remembers it for the record."""

    def __init__(self, report: Report) -> None:
        self.said: list[str] = []
        self._report = report

    def __call__(self, message: str) -> None:
        self.said.append(message)
        self._report(message)


def count_model(
    family: CountingFamily[Any],
    record: LmRecord,
    learned: Learned,
    heldout: Corpus | None,
    request: TrainRequest,
    *,
    began: float,
) -> Model:
    """Fit, measure and save. began: when the reading did, by time.perf_counter."""
    shape = Shape(record.vocab_size, record.data.reset_lines)
    notes = Notes(request.report)
    with Scratch(request.memory_bytes, threads=request.threads) as scratch:
        lm = family.fit(
            record.model,
            learned.train.ids,
            shape,
            heldout_ids=heldout.ids if heldout else None,
            scratch=scratch,
            report=notes,
        )
        changes = {"notes": (*record.notes, *notes.said), "threads": scratch.threads}
        fitted = Model(
            record.model_copy(update=changes),
            learned.tokenizer,
            lm,
            spelling=fit_spelling(learned),
            index=make_index(record, learned.train.ids),
        )
        return saved(in_time(measured(fitted, heldout, began), request), request.out)


def in_time(made: Model, request: TrainRequest) -> Model:
    """The same model; that it took longer than the budget is said."""
    seconds, budget = made.record.seconds or 0.0, request.budget
    if budget is not None and seconds > budget.seconds:
        request.report(
            f"took {seconds:.0f} s, more than the budget of {budget.seconds:.0f} s: counting takes what it needs"
        )
    return made


def make_index(record: LmRecord, ids: Array) -> Callable[[], TextIndex] | None:
    """An index of the training text, where one is asked for."""
    if not record.data.index:
        return None
    built = TextIndex.build(ids)
    return lambda: built


def fit_spelling(learned: Learned) -> SpellingModel | None:
    """How the words are spelled that a vocabulary has not; None where tokens are not words, or the text has <unk>."""
    return SpellingModel.fit(learned.rare_words) if learned.rare_words else None


def measured(made: Model, heldout: Corpus | None, began: float) -> Model:
    """With its numbers on the held-out text and the time it took."""
    valid = None
    if heldout is not None:
        valid = made.evaluate_corpus(heldout, seed=made.record.seed)
    changes = {"valid": valid, "seconds": round(time.perf_counter() - began, 3)}
    return replace(made, record=made.record.model_copy(update=changes))


def saved(made: Model, out: Path | None) -> Model:
    """The same model, saved and read back from its files, where there is a place for it."""
    if out is None:
        return made
    store.save(out, made.record, tensors=made.tensors(), contents=made.files())
    return load_language_model(out, verify=False)


def load_language_model(directory: Path, *, verify: bool) -> Model:
    """The language model in a directory."""
    from elman.tasks.lm.task import LmTask

    return LmTask().load(directory, verify=verify)


def import_arpa(path: Path, *, out: Path | None, command: str | None) -> Model:
    """Make a model of an ARPA file, which scores as the tool that made it would."""
    from elman.counts.arpa import read_arpa, read_units

    began = time.perf_counter()
    units = read_units(path)
    tokens, lm = read_arpa(path)
    tokenizer = Tokenizer(TokenizerSpec(units, list(tokens), None))
    record = LmRecord(
        vocab_size=tokenizer.vocab_size,
        data=LmDataConfig.model_validate({"units": units, "reset_lines": True}),
        model=KneserNeyConfig.model_validate({"order": lm.order}),
        seed=0,
        seconds=round(time.perf_counter() - began, 3),
        command=command,
    )
    return saved(Model(record, tokenizer, lm), out)
