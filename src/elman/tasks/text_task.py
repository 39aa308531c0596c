"""What tasks share whose data is plain text: reading it, and nets over its vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.settings import Config
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
from elman.tasks.word_vectors import read_word_vectors
from elman.text.corpus import Corpus, Learned, learn, read_corpus
from elman.text.readers import Sources
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer


class HeldoutText(NamedTuple):
    """What is known of the held-out text besides its ids."""

    num_bytes: int
    num_lines: int
    unknown_tokens: int


TextExamples = Examples[Tokenizer, HeldoutText]


class TextTask(NetTask[R, Tokenizer, HeldoutText]):
    """A task on plain text."""

    flags = frozenset({"reset_lines"})
    has_streams = True

    @abstractmethod
    def construct(self, record: R, examples: TextExamples, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""

    def prepare(self, request: TrainRequest) -> Prepared[R, Tokenizer, HeldoutText]:
        """Read the text and learn its vocabulary."""
        data = self.data_settings(request.settings["data"])
        learned, heldout = self.read(request, data)
        record = self.make_record(request, data, self.model_settings(request.settings["model"]), learned)
        return Prepared(record, self.make_examples(learned, heldout))

    def read(
        self, request: TrainRequest, data: DataConfig, tokenizer: Tokenizer | None = None
    ) -> tuple[Learned, Corpus | None]:
        """The text as ids with its vocabulary (or by a given one), and the held-out text."""
        learned = learn(request.data, data, heldout=request.holds_out, tokenizer=tokenizer)
        request.say(learned.notes)
        heldout = learned.heldout
        if request.valid is not None:
            heldout = read_corpus(request.valid, learned.tokenizer, data)
        return learned, heldout

    def make_record(self, request: TrainRequest, data: DataConfig, model: Config, learned: Learned) -> R:
        """The record, complete but for what training adds."""
        source = store.Source(
            fingerprint=learned.train.fingerprint,
            lines=learned.train.num_lines,
            tokens=len(learned.train.ids),
            bytes=learned.train.num_bytes,
        )
        data = data.model_copy(update={"units": learned.tokenizer.units})
        own = self.own_fields(learned)
        return self.new_record(request, data=data, model=model, source=source, notes=learned.notes, own=own)

    def own_fields(self, learned: Learned) -> dict[str, Any]:
        """Fields that only the record of this task has."""
        return {}

    def make_examples(self, learned: Learned, heldout: Corpus | None) -> TextExamples:
        """The text, and the held-out one, as a run keeps them."""
        arrays = self.arrays("train", learned.train.ids)
        if heldout is None:
            return Examples(learned.tokenizer, arrays)
        known = HeldoutText(heldout.num_bytes, heldout.num_lines, heldout.unknown_tokens)
        return Examples(learned.tokenizer, arrays | self.arrays("valid", heldout.ids), known)

    def arrays(self, part: str, ids: Array) -> dict[str, Array]:
        """A part of the text as a run keeps it."""
        return {part: ids}

    def build(self, record: R, examples: TextExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        tokenizer = examples.assets
        counts = np.bincount(examples.arrays["train"], minlength=tokenizer.vocab_size)
        vectors = read_word_vectors(record.model, tokenizer, report=report)
        return self.construct(record, examples, counts=counts, vectors=vectors)

    def read_assets(self, record: R, read: ReadFile) -> Tokenizer:
        """The tokenizer that was written."""
        return Tokenizer.from_files(read)

    def heldout_to_json(self, heldout: HeldoutText) -> list[Any]:
        """One row of three numbers."""
        return [list(heldout)]

    def heldout_from_json(self, rows: list[Any]) -> HeldoutText:
        """The numbers that were written."""
        return HeldoutText(*rows[0])


class TextModel(NetModel[R, Tokenizer]):
    """A net over the vocabulary of a text, with its tokenizer."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self.assets

    @property
    def data(self) -> DataConfig:
        found: DataConfig = self.record.data
        return found

    def _encode_row(self, text: str) -> Array:
        """The ids of a text."""
        return self.tokenizer.encode_text(text)

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """Its numbers on a text, read as it was trained."""
        corpus = read_corpus(data, self.tokenizer, self.data)
        return self.numbers(corpus) | {"unknown_tokens": corpus.unknown_tokens}

    @abstractmethod
    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
