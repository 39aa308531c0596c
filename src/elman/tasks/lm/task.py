"""The task `lm`: language models, whether they count or are trained."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.core.settings import Config, make, refuse
from elman.counts.scratch import check_memory
from elman.counts.spelling import SpellingModel
from elman.lm.evaluate import Evaluation
from elman.lm.heldout import MIN_TEXT_TOKENS
from elman.spark.config import CountConfig
from elman.tasks.base import Prepared, ReadFile, ShouldStop, TaskModel, TrainRequest
from elman.tasks.lm import families
from elman.tasks.lm.blend import (
    blend,
    choose_counts,
    counts_name,
    describe_choice,
    finishing_seconds,
    has_time_for_a_net,
    leaves_the_choice,
    with_net,
)
from elman.tasks.lm.counting import count_model, fit_spelling, in_time, make_index, saved
from elman.tasks.lm.families import family_names, find_family, restore_model
from elman.tasks.lm.family import CountingFamily, Family, MemberFamily, NetFamily, Shape
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmRecord
from elman.tasks.text_task import HeldoutText, TextAssets, TextExamples, TextTask
from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, make_batches, validation_batches
from elman.text.corpus import Learned
from elman.text.index import TextIndex
from elman.text.units.tokenizer import Tokenizer
from elman.training.budget import Budget, format_duration
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.plan_text import plan_text
from elman.training.progress import Outcome

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

LmPrepared = Prepared[LmRecord, TextAssets, HeldoutText]
DEFAULT_FAMILY = "mkn"
# Of data; all others make the vocabulary
READING_SETTINGS = frozenset({"reset_lines", "errors", "skip_bad", "heldout", "index"})


class LmTask(TextTask[LmRecord]):
    """Language models."""

    name = "lm"
    flags = frozenset({"reset_lines", "memory", "init"})
    record_type = LmRecord
    fits_temperature = True
    makes_language_models = True
    measuring_share = 0.0  # the examiner measures within the trainer's own budget

    def model_names(self) -> tuple[str, ...]:
        """Every family that is made from text."""
        return (DEFAULT_FAMILY, *(name for name in family_names(from_text=True) if name != DEFAULT_FAMILY))

    def is_trained(self, model: str | None) -> bool:
        """Nets are; n-grams are counted."""
        return find_family(model or DEFAULT_FAMILY).is_trained

    def model_records(self) -> tuple[type[Config], ...]:
        """One for each family."""
        return tuple(family.record for family in families.FAMILIES)

    def complete(self, request: TrainRequest) -> TrainRequest:
        """Family, vocabulary and way of reading are those of the net to go on from; what it has settled cannot be set."""
        if request.init is None:
            return request
        base = _base(request.init)
        family, units = base.record.family, base.record.data.units
        data, model = request.settings["data"], request.settings["model"]
        if model.get("family", family) != family:
            raise UsageError(
                f"{request.init} holds a {family}, not a {model['family']}",
                code="base-mismatch",
                hint="leave out --model",
            )
        for key in model.keys() - {"family"}:
            raise UsageError(
                f"model.{key} is settled by {request.init}",
                code="base-mismatch",
                hint="leave it out, or train without --init",
            )
        if data.get("units", units) != units:
            raise UsageError(
                f"{request.init} was trained on {units} units", code="base-mismatch", hint="leave out --units"
            )
        vocabulary = base.record.data.model_dump(exclude={"units", *READING_SETTINGS})
        vocabulary |= {"normalize": base.tokenizer.normalize}
        for key in data.keys() & vocabulary.keys():
            if str(data[key]) != str(vocabulary[key]):
                raise UsageError(
                    f"data.{key} is settled by {request.init}, whose vocabulary is taken",
                    code="base-mismatch",
                    hint="leave it out, or train without --init",
                )
        read = {"reset_lines": base.record.data.reset_lines, **data}
        settled = {"data": {**read, **vocabulary, "units": units}, "model": {"family": family}}
        return replace(request, settings={**request.settings, **settled})

    def check(self, request: TrainRequest) -> None:
        """Refuse a family that is none, and settings that cannot apply to it."""
        request = with_net(request) if leaves_the_choice(request) else request
        family = _family(request.settings["model"])
        if isinstance(family, MemberFamily):
            name = request.settings["model"]["family"]
            raise UsageError(f"a {name} is not made from text alone", code="bad-value", hint=family.made_by)
        super().check(request)
        if request.memory_bytes is not None and not family.counts_on_disk:
            name = request.settings["model"]["family"]
            able = [name for family in families.FAMILIES if family.counts_on_disk for name in family.names]
            raise UsageError(
                f"--memory does not apply to {name}: it limits counting on disk",
                code="does-not-apply",
                hint=f"leave it out; it is for {', '.join(able)}",
            )
        name = request.settings["model"].get("family", DEFAULT_FAMILY)
        if family.is_trained:
            refuse(request.settings, ("count",), f"{name}, which does not count")
        else:
            count_settings(request.settings)
            refuse(request.settings, ("train",), f"{name}, which counts")
            check_memory(request.memory_bytes)
            if request.device is not None:
                raise UsageError(
                    "--device does not apply to models that count", code="does-not-apply", hint="leave it out"
                )

    def model_settings(self, given: Mapping[str, Any]) -> Config:
        """The record of the family that is named."""
        found: Config = make(_family(given).record, {"family": DEFAULT_FAMILY, **given}, section="model")
        return found

    def own_fields(self, learned: Learned) -> dict[str, Any]:
        """The size of the vocabulary, and whether the spelling of words outside it is known."""
        return {"vocab_size": learned.tokenizer.vocab_size, "spelling": bool(learned.rare_words)}

    def fit_spelling(self, learned: Learned) -> SpellingModel | None:
        """From the words that became <unk>."""
        return fit_spelling(learned)

    # ------------------------------------------------------------------------------------------------------- training

    def train(self, request: TrainRequest) -> TaskModel[LmRecord]:
        """Count at once, or train a net; where the choice is ours, the best that the time can buy."""
        if leaves_the_choice(request):
            return self._train_best(request)
        family = _family(request.settings["model"])
        if not isinstance(family, CountingFamily):
            return super().train(request)
        if count_settings(request.settings).engine == "spark":
            from elman.tasks.lm.spark_counting import count_on_spark

            return count_on_spark(self, family, request)
        began = time.perf_counter()
        data = self.data_settings(request.settings["data"])
        learned, heldout = self.read(request, data)
        record = self.make_record(request, data, self.model_settings(request.settings["model"]), learned)
        return count_model(family, record, learned, heldout, request, began=began)

    def records(self) -> Iterator[tuple[str, type[Config], frozenset[str]]]:
        """Those of every task on text, and which engine counts."""
        yield from super().records()
        yield "count", CountConfig, frozenset()

    def _train_best(self, request: TrainRequest) -> TaskModel[LmRecord]:
        """A net mixed with what counts and remembers; too short a time leaves the counts, no validation text the net."""
        from elman.tasks.run import check_device, train_net

        began, budget = time.perf_counter(), request.budget
        assert budget is not None
        check_device(request)
        given = [f"{section}.{key}" for section in ("model", "train") for key in request.settings[section]]
        request = with_net(request)
        prepared = self.prepare(request)
        record, examples = prepared.record, prepared.examples
        if len(examples.arrays.get("valid", ())) < MIN_TEXT_TOKENS:
            request.report(f"there is no validation text to tune a mixture on: {record.family} alone")
            return train_net(self, prepared, request)
        num_tokens = len(examples.arrays["train"])
        counts = choose_counts(num_tokens, record.vocab_size, budget_seconds=budget.seconds)
        record = record.model_copy(update={"counts": counts, "threads": request.threads})
        if has_time_for_a_net(budget, self.finishing_seconds(record, examples, budget)):
            request.report(describe_choice(record))
            return train_net(self, replace(prepared, record=record), request)
        request.report(f"{format_duration(budget.seconds)} are too short for a net: {counts_name(record)} with a cache")
        if given:
            request.report(f"{', '.join(given)}: for a net, so not used")
        empty = self.wrap(record, examples.assets, None, None)
        made, numbers = blend(empty, examples, deadline=budget.deadline)
        notes = numbers.pop("notes")
        request.say(notes)
        changes = {"valid": numbers, "notes": (*record.notes, *notes), "seconds": round(time.perf_counter() - began, 3)}
        made = replace(made, record=made.record.model_copy(update=changes))
        return saved(in_time(made, request), request.out)

    def finishing_seconds(self, record: LmRecord, examples: TextExamples, budget: Budget) -> float:
        """To count, and to fit the mixture; nothing where the net is all there is."""
        if record.counts is None:
            return 0.0
        return finishing_seconds(record, examples, budget)

    def finish(
        self, model: Model, examples: TextExamples, outcome: Outcome, *, deadline: float
    ) -> tuple[Model, dict[str, Any] | None]:
        """Mixed, where the choice of the model is ours."""
        if model.record.counts is None:
            return model, self.measure(model, examples, outcome, should_stop=lambda: False)
        return blend(model, examples, deadline=deadline)

    def prepare(self, request: TrainRequest) -> LmPrepared:
        """Read the text and learn its vocabulary, or take that of the model to go on from."""
        if request.init is None:
            return _with_index(super().prepare(request))
        base = _base(request.init)
        data = self.data_settings(request.settings["data"])
        learned, heldout = self.read(request, data, base.tokenizer)
        if learned.train.unknown_tokens:
            note = f"{learned.train.unknown_tokens:,} tokens of the new text are words that the old model does not know"
            request.report(note)
            learned = replace(learned, notes=(*learned.notes, note))
        record = self.make_record(request, data, base.record.model, learned)
        record = record.model_copy(update={"spelling": base.record.spelling})
        return _with_index(Prepared(record, self.make_examples(learned, heldout, base.spelling), base.lm))

    def plan(self, prepared: LmPrepared, means: Means) -> Plan:
        """Sizes for what the user has not set; those of a net to go on from are settled."""
        model = prepared.record.model
        if prepared.start is not None:
            means = replace(means, model=dict(model))
        return plan_text(
            type(model),  # type: ignore[arg-type]  # a family of nets has a record of nets
            means,
            family=prepared.record.family,
            num_tokens=len(prepared.examples.arrays["train"]),
            vocab_size=prepared.record.vocab_size,
        )

    def construct(self, record: LmRecord, examples: TextExamples, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        family = find_family(record.family)
        assert isinstance(family, NetFamily)
        return family.build(record.model, examples.arrays["train"], _shape(record), seed=record.seed, vectors=vectors)

    def batches(self, record: LmRecord, examples: TextExamples, *, train: TrainConfig) -> Batches:
        """The text as streams, or lines each alone."""
        rows, bptt = train.batch or DEFAULT_BATCH, train.bptt or DEFAULT_BPTT
        return make_batches(
            examples.arrays["train"],
            rows=rows,
            bptt=bptt,
            spread=train.bptt_spread,
            seed=record.seed,
            reset_lines=record.data.reset_lines,
        )

    def examiner(self, record: LmRecord, net: Any, examples: TextExamples, *, train: TrainConfig) -> Examiner | None:
        """Validates by perplexity, and at the end measures as `evaluate` does."""
        from elman.training.examiner import MemberExaminer, StreamExaminer

        ids = examples.arrays.get("valid")
        if ids is None or not len(ids):
            return None
        rows, bptt = train.batch or DEFAULT_BATCH, train.bptt or DEFAULT_BPTT
        reset_lines = record.data.reset_lines
        batches = validation_batches(ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
        if record.counts is not None:
            return MemberExaminer(net, batches)
        return StreamExaminer(net, batches, ids, reset_lines=reset_lines)

    def identity(self, record: LmRecord, batches: Batches, train: TrainConfig) -> dict[str, Any]:
        """How the text was cut."""
        rows, bptt = train.batch or DEFAULT_BATCH, train.bptt or DEFAULT_BPTT
        tokens = record.source.tokens if record.source else batches.tokens_per_epoch
        return {"batch": rows, "bptt": bptt, "reset_lines": record.data.reset_lines, "tokens": tokens}

    def measure(
        self, model: Model, examples: TextExamples, outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """What the examiner measured, by the keys of `evaluate`."""
        tally = outcome.tally
        if tally is None:
            return None
        if outcome.is_whole and examples.heldout is not None:
            known = examples.heldout
            tally = replace(
                tally,
                bytes=known.num_bytes,
                lines=known.num_lines,
                unknown_tokens=known.unknown_tokens,
                spelling_nats=known.spelling_nats,
            )
        signature = model.signature(reset_lines=model.record.data.reset_lines)
        return Evaluation(tally, None, signature).as_json() | {"seed": model.record.seed}

    # ----------------------------------------------------------------------------------------------- saved and loaded

    def read_assets(self, record: LmRecord, read: ReadFile) -> TextAssets:
        """The tokenizer, how unknown words are spelled, and the index of the training text, when it is asked for."""
        spelling = SpellingModel.from_files(read) if record.spelling else None
        index = cache(lambda: TextIndex.from_files(read)) if record.data.index else None
        return TextAssets(Tokenizer.from_files(read), spelling, index)

    def restore(self, record: LmRecord, assets: TextAssets, tensors: dict[str, Array]) -> Any:
        """The model that was saved, of any family."""
        return restore_model(record.model, tensors, _shape(record))

    def wrap(self, record: LmRecord, assets: TextAssets, net: Any, directory: Path | None) -> Model:
        """The model with its tokenizer."""
        return Model(record, assets.tokenizer, net, directory, spelling=assets.spelling, index=assets.index)

    def load(self, directory: Path, *, verify: bool) -> Model:
        """The model that was saved in a directory."""

        def restore(saved: store.Saved[LmRecord]) -> Model:
            record = saved.record
            with ThreadPoolExecutor(max_workers=1) as pool:  # hashing a large model takes as long as a large vocabulary
                reading = pool.submit(saved.tensors)
                assets = self.read_assets(record, saved.read)
            tokenizer = assets.tokenizer
            if tokenizer.vocab_size != record.vocab_size:
                raise DataError(
                    f"{directory} does not fit together: {tokenizer.vocab_size} symbols in its tokenizer, "
                    f"{record.vocab_size} in {store.CONFIG}",
                    code="damaged-model",
                )
            lm = saved.restore(lambda tensors: self.restore(record, assets, tensors), reading.result())
            return Model(record, tokenizer, lm, directory, saved.num_bytes, assets.spelling, assets.index)

        return store.load(directory, LmRecord, restore, verify=verify)


def _family(given: Mapping[str, Any]) -> Family[Any]:
    return find_family(given.get("family", DEFAULT_FAMILY))


def count_settings(settings: Mapping[str, Mapping[str, Any]]) -> CountConfig:
    """Which engine counts, and where."""
    given = settings.get("count", {})
    config = make(CountConfig, given, section="count")
    if config.engine == "local":
        for key in given.keys() - {"engine"}:
            raise UsageError(
                f"count.{key} is for count.engine=spark",
                code="does-not-apply",
                hint="add --set count.engine=spark, or leave it out",
            )
    config.spark_settings()  # refuses what is none
    return config


def _with_index(prepared: LmPrepared) -> LmPrepared:
    """The same, with an index of the text where one is asked for."""
    index = make_index(prepared.record, prepared.examples.arrays["train"])
    assets = replace(prepared.examples.assets, index=index)
    return replace(prepared, examples=replace(prepared.examples, assets=assets))


def _shape(record: LmRecord) -> Shape:
    return Shape(record.vocab_size, record.data.reset_lines)


def _base(directory: Path) -> Model:
    """The net to go on from."""
    from elman.tasks.catalogue import load_model

    base = load_model(directory).language_model()
    if not find_family(base.record.family).is_trained:
        raise UsageError(
            f"{directory} holds a {base.record.family}, which is not trained: there is nothing to go on from",
            code="base-mismatch",
        )
    return base
