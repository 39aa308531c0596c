"""The task `bilm`: a forward and a backward language model that share their words, for vectors of words in context."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm import evaluate as evaluation
from elman.lm.evaluate import Tally, score_lines
from elman.nets.config import RecurrentConfig
from elman.tasks.base import Prepared, Read, Request
from elman.tasks.lm.model import Model
from elman.tasks.text_task import TextModel, TextTask
from elman.text.corpus import Corpus
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID
from elman.training.config import TrainConfig
from elman.training.plan_both_sides import plan_bilm
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

MEASURED_TOKENS = 4096  # between two looks at the clock
TURNED = "_turned"  # the same text read from its end


class BilmTask(TextTask):
    """Language models of both directions."""

    name = "bilm"

    def prepare(self, request: Request) -> Prepared:
        """Read the text and learn its vocabulary."""
        prepared = super().prepare(request)
        model = prepared.record.model
        assert isinstance(model, RecurrentConfig)
        if model.skip == "dense":
            raise UsageError("model.skip=dense does not apply to bilm", hint="its layers have to be of one width")
        if model.maxent is not None:
            raise UsageError("model.maxent does not apply to bilm", hint="n-grams say nothing of a word's other side")
        return prepared

    def examples(self, part: str, ids: Array) -> dict[str, Array]:
        """A part of the text, from both ends."""
        from elman.tasks.bilm.net import turn_text

        return {part: ids, part + TURNED: turn_text(ids)}

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""
        return plan_bilm(
            num_tokens=len(prepared.tensors["train"]),
            vocab_size=Tokenizer.from_files(lambda name: prepared.contents[name]).vocab_size,
            seconds=seconds,
            flops_per_second=flops_per_second,
            model=prepared.settings["model"],
            train=prepared.settings["train"],
        )

    def construct(self, record: store.TaskRecord, vocab_size: int, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.tasks.bilm.net import BilmModel

        assert isinstance(record.model, RecurrentConfig) and isinstance(record.data, DataConfig)
        return BilmModel(
            record.model,
            vocab_size=vocab_size,
            reset_lines=record.data.reset_lines,
            rng=torch.Generator().manual_seed(record.seed),
            counts=counts,
            vectors=vectors,
        )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The text, from both ends."""
        from elman.tasks.bilm.net import BilmBatches
        from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, Streams, make_batches

        assert isinstance(record.data, DataConfig)
        rows, bptt = train.batch or DEFAULT_BATCH, train.bptt or DEFAULT_BPTT
        onward, turned = (
            make_batches(
                ids,
                rows=rows,
                bptt=bptt,
                seed=record.seed,
                reset_lines=record.data.reset_lines,
                spread=train.bptt_spread,
            )
            for ids in (tensors["train"], tensors["train" + TURNED])
        )
        return BilmBatches(onward, turned if isinstance(turned, Streams) else None)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the likelihood in both directions."""
        from elman.tasks.bilm.net import BilmBatches
        from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, Streams, validation_batches
        from elman.training.examiner import LossExaminer

        assert isinstance(record.data, DataConfig)
        if "valid" not in tensors:
            return None
        rows, bptt = train.batch or DEFAULT_BATCH, train.bptt or DEFAULT_BPTT
        onward, turned = (
            validation_batches(ids, rows=rows, bptt=bptt, reset_lines=record.data.reset_lines)
            for ids in (tensors["valid"], tensors["valid" + TURNED])
        )
        return LossExaminer(net, BilmBatches(onward, turned if isinstance(turned, Streams) else None))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.bilm.net import BilmModel

        assert isinstance(record.model, RecurrentConfig) and isinstance(record.data, DataConfig)
        vocab_size = Tokenizer.from_files(read).vocab_size
        return BilmModel.from_tensors(
            record.model, tensors, vocab_size=vocab_size, reset_lines=record.data.reset_lines
        ).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> TwoWayModel:
        """The net with its tokenizer."""
        return TwoWayModel(record, Tokenizer.from_files(read), net, directory)


class TwoWayModel(TextModel):
    """Two language models of one text: their perplexities, and vectors for words in context."""

    def forward(self) -> Model:
        """The one that reads on, as a language model like any other."""
        record = store.Record.model_validate(
            self.record.model_dump(exclude={"task", "labels", "valid"}) | {"vocab_size": self.tokenizer.vocab_size}
        )
        return Model(record, self.tokenizer, self.net.onward, self.directory)

    def features(self, line: str) -> Array:
        """What every layer makes of every token of a line. -> (L, T, 2 H)

        From the words up, forward and backward side by side; `nets.layer_mix.LayerMix` makes one vector of the layers.
        """
        from elman.tasks.bilm.net import learned_features

        ids = self.tokenizer.encode(line)
        found: Array = learned_features(self.net, ids[None], np.array([len(ids)]))[:, 0]
        return found

    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Its numbers on the held-out text."""
        if "valid" not in tensors:
            return None
        return self._numbers(tensors["valid"], tensors["valid" + TURNED], should_stop)

    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
        from elman.tasks.bilm.net import turn_text

        return self._numbers(corpus.ids, turn_text(corpus.ids), lambda: False) or {}

    def signature(self) -> str:
        """All that moves a perplexity besides model and text."""
        return evaluation.signature(
            units=self.tokenizer.units,
            vocab_size=self.tokenizer.vocab_size,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            reset_lines=self.data.reset_lines,
        )

    def _numbers(self, ids: Array, turned: Array, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """By the rule of language models, in both directions; of as much as there is time for."""
        nets = {"": self.net.onward, "_backward": self.net.backward}
        states = {name: net.start(1) for name, net in nets.items()}
        tallies = {name: Tally() for name in nets}
        by_lines = self.data.reset_lines
        for pieces in zip(_pieces(ids, by_lines=by_lines), _pieces(turned, by_lines=by_lines), strict=False):
            if should_stop():
                break
            for (name, net), piece in zip(nets.items(), pieces, strict=True):
                if by_lines:
                    lines = np.split(piece, np.flatnonzero(piece == EOS_ID)[:-1] + 1)
                    nats = float(score_lines(net, lines).nats.sum())
                else:
                    scored, states[name] = net.score(piece[None], np.array([len(piece)]), states[name])
                    nats = -float(scored.sum(dtype=np.float64))
                tallies[name] += Tally(nats, len(piece))
        if not tallies[""].tokens:
            return None
        found: dict[str, Any] = {}
        for name, tally in tallies.items():
            mean = tally.nats / tally.tokens
            found |= {f"perplexity{name}": math.exp(mean) if mean < 709 else None, f"nats_per_token{name}": mean}
        return found | {"tokens": tallies[""].tokens, "signature": self.signature()}


def _pieces(ids: Array, *, by_lines: bool) -> Iterator[Array]:
    """A text in pieces, of whole lines if asked for."""
    begin = 0
    while begin < len(ids):
        end = min(begin + MEASURED_TOKENS, len(ids))
        while by_lines and end < len(ids) and int(ids[end - 1]) != EOS_ID:
            end += 1
        yield np.array(ids[begin:end], dtype=np.int64)
        begin = end
