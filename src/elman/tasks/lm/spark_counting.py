"""Language models counted by Apache Spark: the same record, vocabulary and tables as `counting` makes, or ARPA in parts."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.counts.arpa import arpa_symbols, stream_refused
from elman.counts.smoothing import TUNING_TOKENS, num_tuning_tokens, tuned_alpha, tuned_weights
from elman.counts.spelling import SpellingModel
from elman.spark.arpa import write_parts
from elman.spark.config import CountConfig
from elman.spark.counting import Levels, count_levels
from elman.spark.estimate import Estimate
from elman.spark.lines import Surveyed, choose_units, open_lines, path_of, survey_lines
from elman.spark.session import fit_partitions, session
from elman.spark.smoothing import Tables, choose_sharing, count_tables, smoothed_tables
from elman.spark.tables import collect_counts, collect_model
from elman.spark.tuning import counts_for
from elman.spark.vocabulary import learn_vocabulary
from elman.tasks.base import TaskModel, TrainRequest
from elman.tasks.lm.arpa_parts import ArpaParts
from elman.tasks.lm.counting import Notes, in_time, measured, saved
from elman.tasks.lm.family import CountingFamily, Saveable
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmDataConfig, LmRecord
from elman.text.corpus import Corpus, TextFacts, describe_text, read_corpus
from elman.text.gathering import cut_heldout
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

if TYPE_CHECKING:
    from elman.tasks.lm.task import LmTask

MEMORY_SHARE = 0.5  # of this machine's memory that tables may take, where --memory does not say it


def count_on_spark(task: LmTask, family: CountingFamily[Any], request: TrainRequest) -> TaskModel[LmRecord]:
    """Read, count, estimate, measure and save."""
    from elman.tasks.lm.task import count_settings

    began = time.perf_counter()
    config = count_settings(request.settings)
    data: LmDataConfig = task.data_settings(request.settings["data"])
    model = task.model_settings(request.settings["model"])
    estimate = family.estimate(model)
    if estimate is None:
        name = request.settings["model"].get("family")
        raise UsageError(
            f"count.engine=spark does not count {name}",
            code="does-not-apply",
            hint="it counts kn, mkn, ngram, bigram and unigram",
        )
    if data.index:
        raise UsageError(
            "data.index does not apply to count.engine=spark",
            code="does-not-apply",
            hint="leave it out, or count.engine",
        )
    if config.result == "arpa" and (not estimate.backs_off or estimate.order < 2):
        raise UsageError(
            f"{estimate.method} of order {estimate.order} cannot be written as ARPA in parts", code="does-not-apply"
        )
    if config.result == "arpa" and not data.reset_lines:
        raise stream_refused()
    notes = Notes(request.report)
    with session(config, threads=request.threads) as spark:
        run = _Run(spark, data, estimate, request, notes)
        counted = run.count()
        tables = counted.tables
        record = task.new_record(
            request,
            data=data.with_form(counted.text.form).model_copy(update={"units": counted.text.reading.units}),
            model=model,
            source=counted.source,
            notes=notes.said,
            own={"vocab_size": counted.tokenizer.vocab_size, "spelling": bool(counted.rare_words)},
        )
        if _is_arpa(tables, config, request, estimate):
            return _write_arpa(record, counted, config, request)
        lm: Saveable = collect_model(tables) if estimate.backs_off else collect_counts(tables, alpha=counted.alpha)
    spelling = SpellingModel.fit(counted.rare_words) if counted.rare_words else None
    fitted = Model(record, counted.tokenizer, lm, spelling=spelling)
    return saved(in_time(measured(fitted, counted.heldout, began), request), request.out)


@dataclass(frozen=True)
class _Counted:
    """What counting gave, but for tables that are still in Spark."""

    text: Surveyed
    tokenizer: Tokenizer
    rare_words: list[str]
    heldout: Corpus | None
    source: store.Source
    tables: Tables
    alpha: float


@dataclass(frozen=True)
class _Run:
    """One counting."""

    spark: Any
    data: LmDataConfig
    estimate: Estimate
    request: TrainRequest
    notes: Notes

    def count(self) -> _Counted:
        """From lines to tables."""
        estimate, request = self.estimate, self.request
        self.notes(f"counted by Apache Spark {self.spark.version} on {self.spark.sparkContext.master}")
        lines = open_lines(self.spark, request.data)
        said: list[str] = []
        units = choose_units(lines, self.data, said)
        head_tokens = 0 if self.data.reset_lines else estimate.order - 1
        text = survey_lines(lines, self.data, units, head_tokens=head_tokens)
        fit_partitions(self.spark, text.num_bytes)
        num_lines = cut_heldout(text.num_lines, text.last_text, self.data.heldout if request.holds_out else None)
        vocabulary = learn_vocabulary(lines.frame, text.part(0, num_lines))
        tokenizer = vocabulary.tokenizer
        levels = self._levels(text, num_lines, tokenizer, continuations=estimate.continues)
        heldout = self._heldout(text, num_lines, tokenizer)
        is_part = request.valid is None and heldout is not None
        facts = TextFacts(
            levels.num_tokens,
            num_lines,
            int(levels.unigrams[UNK_ID]),
            heldout.num_lines if is_part and heldout else None,
            text.num_dropped,
        )
        said += describe_text(tokenizer, facts, heldout=request.holds_out)
        for sentence in said:
            self.notes(sentence)
        num_bytes = text.num_bytes - (heldout.num_bytes if is_part and heldout else 0)
        source = store.Source(
            fingerprint=levels.fingerprint(), lines=num_lines, tokens=levels.num_tokens, bytes=num_bytes
        )
        alpha, tables = self._estimated(text, num_lines, tokenizer, levels, heldout)
        return _Counted(text, tokenizer, vocabulary.rare_words, heldout, source, tables, alpha)

    def _levels(self, text: Surveyed, num_lines: int, tokenizer: Tokenizer, *, continuations: bool) -> Levels:
        return count_levels(
            text,
            num_lines,
            tokenizer,
            order=self.estimate.order,
            reset_lines=self.data.reset_lines,
            continuations=continuations,
        )

    def _heldout(self, text: Surveyed, num_lines: int, tokenizer: Tokenizer) -> Corpus | None:
        """The validation text, or the last part of this one; brought here, to a file."""
        data = self.data.with_form(text.form)
        if self.request.valid is not None:
            return read_corpus(self.request.valid, tokenizer, data)
        if num_lines == text.num_lines:
            return None
        with tempfile.NamedTemporaryFile(prefix="elman-heldout-", suffix=".txt") as file:
            for part in text.texts(num_lines, text.num_lines):
                file.write(part)
            file.flush()
            return read_corpus([file.name], tokenizer, data)

    def _estimated(
        self, text: Surveyed, num_lines: int, tokenizer: Tokenizer, levels: Levels, heldout: Corpus | None
    ) -> tuple[float, Tables]:
        """Tuned where something is to be tuned, and smoothed."""
        estimate = self.estimate
        alpha, weights = estimate.alpha or 0.0, None
        if estimate.tunes:
            if heldout is not None and len(heldout.ids):
                ids, counts = np.asarray(heldout.ids[:TUNING_TOKENS]), levels
            else:
                ids, counted_lines = self._end_of(text, num_lines, tokenizer, levels.num_tokens)
                counts = self._levels(text, counted_lines, tokenizer, continuations=False)
            tuning = counts_for(counts, ids)
            if estimate.method == "add":
                alpha = tuned_alpha(tuning, ids, self.notes)
            else:
                weights = tuned_weights(tuning, ids, self.notes)
        if not estimate.backs_off:
            return alpha, count_tables(levels)
        sharing = choose_sharing(levels, estimate, weights, self.notes)
        return alpha, smoothed_tables(levels, estimate, sharing)

    def _end_of(self, text: Surveyed, num_lines: int, tokenizer: Tokenizer, num_tokens: int) -> tuple[Array, int]:
        """The last lines to tune on, as many as the local engine takes, and the number of the lines before them."""
        size = num_tuning_tokens(num_tokens)
        begin = max(0, num_lines - size - 1)  # every line has a token at least
        ids = np.concatenate([tokenizer.encode_lines(part) for part in text.texts(begin, num_lines)])
        ends = np.flatnonzero(ids[: len(ids) - size] == EOS_ID)
        if not len(ends) and begin == 0:
            raise UsageError(
                "there is nothing to tune on: the text has one long line",
                code="empty-data",
                hint="give a validation text: --valid FILE",
            )
        ids = ids[int(ends[-1]) + 1 :] if len(ends) else ids
        return ids, num_lines - int(np.count_nonzero(ids == EOS_ID))


def _is_arpa(tables: Tables, config: CountConfig, request: TrainRequest, estimate: Estimate) -> bool:
    """Whether the tables stay in parts: asked for, or too large for this machine."""
    if config.result != "auto":
        return config.result == "arpa"
    limit = request.memory_bytes or int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    size = tables.num_bytes()
    if size <= limit:
        return False
    if not estimate.backs_off or not tables.reset_lines:
        hint = "count with --reset-lines, and it is written as ARPA in parts" if estimate.backs_off else "count with kn"
        raise UsageError(
            f"the tables take {size >> 20:,} MB, more than the {limit >> 20:,} MB there are",
            code="too-little-memory",
            hint=hint,
        )
    request.report(f"the tables take {size >> 20:,} MB, more than the {limit >> 20:,} MB there are: ARPA in parts")
    return True


def _write_arpa(record: LmRecord, counted: _Counted, config: CountConfig, request: TrainRequest) -> ArpaParts:
    arpa_symbols(counted.tokenizer.tokens)  # refuses before anything is written
    place = config.arpa or str(request.out or Path.cwd())
    write_parts(
        counted.tables,
        counted.tokenizer.tokens,
        path_of(place),
        units=counted.text.reading.units,
        overwrite=config.arpa is None,  # what is in --out was asked about before
    )
    return ArpaParts(record, place, counted.tables.sizes)
