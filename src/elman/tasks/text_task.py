"""What tasks share whose data is plain text, as a language model's is: reading it, and nets over its vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elman import config, store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.config import NetConfig
from elman.tasks.base import Prepared, Read, Request, Task, TaskModel, refuse_beam
from elman.tasks.runs import Report
from elman.tasks.word_vectors import read_word_vectors
from elman.text.corpus import Corpus, learn, read_corpus
from elman.text.readers import Sources
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer


class TextTask(Task):
    """A task on plain text."""

    name: str

    def prepare(self, request: Request) -> Prepared:
        """Read the text and learn its vocabulary."""
        settings = config.tasks()[self.name]
        data: DataConfig = config.make(DataConfig, request.settings["data"], section="data")
        model = config.make(settings.model, request.settings["model"], section="model")
        if "fit_temperature" in request.settings["train"]:
            raise UsageError(
                f"train.fit_temperature does not apply to {self.name}", hint="leave train.fit_temperature out"
            )
        learned = learn(request.data, data, heldout=request.holds_out)
        for sentence in learned.notes:
            request.report(sentence)
        data = data.model_copy(update={"units": learned.tokenizer.units})
        heldout = learned.heldout
        if request.valid is not None:
            heldout = read_corpus(request.valid, learned.tokenizer, data)
        record = store.TaskRecord(
            task=self.name,
            data=data,
            model=model,
            seed=request.seed,
            source=store.Source(
                fingerprint=learned.train.fingerprint,
                lines=learned.train.num_lines,
                tokens=len(learned.train.ids),
                bytes=learned.train.num_bytes,
            ),
            command=request.command,
            notes=learned.notes,
        )
        tensors = self.examples("train", learned.train.ids)
        if heldout is not None:
            tensors |= self.examples("valid", heldout.ids)
        return Prepared(record, learned.tokenizer.files(), tensors, request.settings)

    def examples(self, part: str, ids: Array) -> dict[str, Array]:
        """A part of the text as a run keeps it."""
        return {part: ids}

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        tokenizer = Tokenizer.from_files(read)
        counts = np.bincount(tensors["train"], minlength=tokenizer.vocab_size)
        assert isinstance(record.model, NetConfig)
        vectors = read_word_vectors(record.model, tokenizer, report=report)
        return self.construct(record, tokenizer.vocab_size, counts=counts, vectors=vectors)

    @abstractmethod
    def construct(self, record: store.TaskRecord, vocab_size: int, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""


class TextModel(TaskModel):
    """A net over the vocabulary of a text, with its tokenizer and its story."""

    def __init__(self, record: store.TaskRecord, tokenizer: Tokenizer, net: Any, directory: Path | None = None) -> None:
        assert isinstance(record.data, DataConfig)
        self.record = record
        self.data: DataConfig = record.data
        self.tokenizer = tokenizer
        self.net = net
        self.directory = directory

    def evaluate(self, data: str | Path | Sources, *, beam: int | None = None, seed: int = 1) -> dict[str, Any]:
        """Its numbers on a text, read as it was trained."""
        refuse_beam(self.record.task, beam)
        sources = [data] if isinstance(data, str | Path) else list(data)
        corpus = read_corpus(sources, self.tokenizer, self.data)
        return self.numbers(corpus) | {"unknown_tokens": corpus.unknown_tokens, "seed": seed}

    @abstractmethod
    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
