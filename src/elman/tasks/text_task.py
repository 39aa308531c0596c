"""What tasks share whose data is plain text: reading it, and nets over its vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.settings import Config
from elman.counts.spelling import SpellingModel
from elman.counts.word_vectors import count_word_vectors
from elman.tasks.base import (
    EvaluateOptions,
    Examples,
    NetModel,
    NetTask,
    Prepared,
    R,
    ReadFile,
    Report,
    TrainRequest,
)
from elman.tasks.shared_files import BY_HEART, shared_files
from elman.tasks.word_vectors import read_word_vectors
from elman.text.corpus import Corpus, Learned, learn, read_corpus
from elman.text.index import TextIndex
from elman.text.readers import Sources
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer


class HeldoutText(NamedTuple):
    """What is known of the held-out text besides its ids."""

    num_bytes: int
    num_lines: int
    unknown_tokens: int
    spelling_nats: float = 0.0  # of the unknown words' spelling


@dataclass(frozen=True)
class TextAssets:
    """The tokenizer of a text, how the words are spelled that it does not know, and an index of it."""

    tokenizer: Tokenizer
    spelling: SpellingModel | None = None
    index: Callable[[], TextIndex] | None = None  # large, and seldom asked for: read when it is

    def files(self) -> dict[str, bytes]:
        """All that are there."""
        found = self.tokenizer.files() | (self.spelling.files() if self.spelling is not None else {})
        return found | (self.index().files() if self.index is not None else {})


TextExamples = Examples[TextAssets, HeldoutText]


class TextTask(NetTask[R, TextAssets, HeldoutText]):
    """A task on plain text."""

    flags = frozenset({"reset_lines"})
    has_streams = True

    @abstractmethod
    def construct(self, record: R, examples: TextExamples, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""

    def prepare(self, request: TrainRequest) -> Prepared[R, TextAssets, HeldoutText]:
        """Read the text and learn its vocabulary."""
        data = self.data_settings(request.settings["data"])
        learned, heldout = self.read(request, data)
        record = self.make_record(request, data, self.model_settings(request.settings["model"]), learned)
        examples = self.make_examples(learned, heldout, self.fit_spelling(learned))
        vectors = read_word_vectors(record.model, learned.tokenizer, report=request.report)
        if vectors is not None:  # kept with the run, which may be resumed without their file
            examples = replace(examples, arrays={**examples.arrays, "vectors": vectors})
        return Prepared(record, examples)

    def fit_spelling(self, learned: Learned) -> SpellingModel | None:
        """How the words are spelled that the vocabulary has not, for tasks whose numbers count bytes."""
        return None

    def read(
        self, request: TrainRequest, data: DataConfig, tokenizer: Tokenizer | None = None
    ) -> tuple[Learned, Corpus | None]:
        """The text as ids with its vocabulary (or by a given one), and the held-out text."""
        learned = learn(
            request.data,
            data,
            heldout=request.holds_out,
            tokenizer=tokenizer,
            memory_bytes=request.memory_bytes,
        )
        request.say(learned.notes)
        heldout = learned.heldout
        if request.valid is not None:
            heldout = read_corpus(request.valid, learned.tokenizer, data.with_form(learned.form))
            notes = tuple(_doubts(request, learned.train, heldout))
            request.say(notes)
            learned = replace(learned, notes=(*learned.notes, *notes))
        return learned, heldout

    def make_record(self, request: TrainRequest, data: DataConfig, model: Config, learned: Learned) -> R:
        """The record, complete but for what training adds."""
        source = store.Source(
            fingerprint=learned.train.fingerprint,
            lines=learned.train.num_lines,
            tokens=len(learned.train.ids),
            bytes=learned.train.num_bytes,
        )
        data = data.with_form(learned.form).model_copy(update={"units": learned.tokenizer.units})
        own = self.own_fields(learned)
        return self.new_record(request, data=data, model=model, source=source, notes=learned.notes, own=own)

    def own_fields(self, learned: Learned) -> dict[str, Any]:
        """Fields that only the record of this task has."""
        return {}

    def make_examples(
        self, learned: Learned, heldout: Corpus | None, spelling: SpellingModel | None = None
    ) -> TextExamples:
        """The text, and the held-out one, as a run keeps them."""
        assets, arrays = TextAssets(learned.tokenizer, spelling), self.arrays("train", learned.train.ids)
        if heldout is None:
            return Examples(assets, arrays)
        spelling_nats = 0.0 if spelling is None else spelling.total_nats(heldout.unknown_words)
        known = HeldoutText(heldout.num_bytes, heldout.num_lines, heldout.unknown_tokens, spelling_nats)
        return Examples(assets, arrays | self.arrays("valid", heldout.ids), known)

    def arrays(self, part: str, ids: Array) -> dict[str, Array]:
        """A part of the text as a run keeps it."""
        return {part: ids}

    def build(self, record: R, examples: TextExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        tokenizer, ids = examples.assets.tokenizer, examples.arrays["train"]
        counts = np.bincount(ids, minlength=tokenizer.vocab_size)
        vectors: Array | None
        if "vectors" in examples.arrays:
            vectors = np.array(examples.arrays["vectors"])
        elif record.model.initial_vectors == "counted":
            rng, width = np.random.default_rng(record.seed), record.model.embedding_width
            vectors = count_word_vectors(ids, vocab_size=tokenizer.vocab_size, width=width, rng=rng)
        else:  # a run of version 0.1.0 may have some, too
            vectors = read_word_vectors(record.model, tokenizer, report=report)
        return self.construct(record, examples, counts=counts, vectors=vectors)

    def read_assets(self, record: R, read: ReadFile) -> TextAssets:
        """The tokenizer that was written."""
        return TextAssets(Tokenizer.from_files(read))

    def heldout_to_json(self, heldout: HeldoutText) -> list[Any]:
        """One row of four numbers."""
        return [list(heldout)]

    def heldout_from_json(self, rows: list[Any]) -> HeldoutText:
        """The numbers that were written."""
        return HeldoutText(*rows[0])


def _doubts(request: TrainRequest, train: Corpus, valid: Corpus) -> Iterator[str]:
    """Why numbers on the validation text may mislead."""
    if valid.fingerprint == train.fingerprint and not shared_files(request):
        yield f"the validation text is the training text: {BY_HEART}"
    if valid.unknown_share > 0.5:
        yield f"{valid.unknown_share:.0%} of the words of the validation text are unknown: is it of the same kind?"


class TextModel(NetModel[R, TextAssets]):
    """A net over the vocabulary of a text, with its tokenizer."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self.assets.tokenizer

    @property
    def data(self) -> DataConfig:
        found: DataConfig = self.record.data
        return found

    def vocabulary(self) -> str:
        """Its symbols, and what they are."""
        return f"{self.tokenizer.vocab_size:,} symbols ({self.tokenizer.units})"

    def _encode_row(self, text: str) -> Array:
        """The ids of a text."""
        return self.tokenizer.encode_text(text)

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """Its numbers on a text, read as it was trained."""
        corpus = read_corpus(data, self.tokenizer, self.data.reading(options.errors))
        return self.numbers(corpus) | {"unknown_tokens": corpus.unknown_tokens}

    @abstractmethod
    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
