"""The task `masked`: restore tokens that were left out of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.lm import evaluate as evaluation
from elman.lm.shaping import likeliest
from elman.tasks.base import Prepared, Read
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.masked.gaps import GAP, MASK, Gapped, read_gaps, space_mark
from elman.tasks.text_task import TextModel, TextTask
from elman.text.batches import Position
from elman.text.corpus import Corpus
from elman.text.readers import Reader, Sources
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID
from elman.training.config import TrainConfig
from elman.training.plan_both_sides import PIECE, plan_masked
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

ROWS = 32
MEASURED_PIECE = 128  # tokens of a stream that are read at once where it is measured
LONGEST_LINE = 512  # longer lines are measured in pieces
MEASURED_TOKENS = 4096  # at once


class MaskedTask(TextTask):
    """Masked tokens are restored from both sides."""

    name = "masked"

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""
        record = prepared.record
        assert isinstance(record.model, MaskedConfig)
        return plan_masked(
            num_tokens=len(prepared.tensors["train"]),
            vocab_size=Tokenizer.from_files(lambda name: prepared.contents[name]).vocab_size,
            mask=record.model.mask,
            seconds=seconds,
            flops_per_second=flops_per_second,
            model=prepared.settings["model"],
            train=prepared.settings["train"],
        )

    def construct(self, record: store.TaskRecord, vocab_size: int, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.tasks.masked.net import MaskedModel

        assert isinstance(record.model, MaskedConfig)
        rng = torch.Generator().manual_seed(record.seed)
        return MaskedModel(record.model, vocab_size=vocab_size, rng=rng, counts=counts, vectors=vectors)

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """Pieces of the text, or lines; which tokens are hidden is the net's business."""
        from elman.text.batches import make_batches

        assert isinstance(record.data, DataConfig) and isinstance(record.model, MaskedConfig)
        rows, bptt = train.batch or ROWS, train.bptt or PIECE
        pieces = make_batches(
            tensors["train"],
            rows=rows,
            bptt=bptt,
            seed=record.seed,
            reset_lines=record.data.reset_lines,
            spread=train.bptt_spread,
        )
        return _Partly(pieces, record.model.mask)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the likelihood of every so many-th token."""
        from elman.text.batches import validation_batches
        from elman.training.examiner import LossExaminer

        assert isinstance(record.data, DataConfig) and isinstance(record.model, MaskedConfig)
        if "valid" not in tensors:
            return None
        rows, bptt = train.batch or ROWS, train.bptt or PIECE
        pieces = validation_batches(tensors["valid"], rows=rows, bptt=bptt, reset_lines=record.data.reset_lines)
        return LossExaminer(net, _Partly(pieces, 1 / record.model.stride))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.masked.net import MaskedModel

        assert isinstance(record.model, MaskedConfig)
        vocab_size = Tokenizer.from_files(read).vocab_size
        return MaskedModel.from_tensors(record.model, tensors, vocab_size=vocab_size).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Restorer:
        """The net with its tokenizer."""
        return Restorer(record, Tokenizer.from_files(read), net, directory)


@dataclass(frozen=True)
class _Partly:
    """Batches of a text of which only a part of the tokens are targets."""

    pieces: Batches
    part: float

    @property
    def notes(self) -> Sequence[str]:
        return self.pieces.notes

    @property
    def tokens_per_epoch(self) -> int:
        return max(1, round(self.part * self.pieces.tokens_per_epoch))

    @property
    def tokens_per_step(self) -> int:
        return max(1, round(self.part * self.pieces.tokens_per_step))

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return self.pieces.fraction(position)

    def batch(self, position: Position) -> tuple[Any, Position]:
        """The batch at a position, and the position after it."""
        return self.pieces.batch(position)


class Restorer(TextModel):
    """A masked model: it fills gaps, and is measured by how well it restores every token of a text from the others."""

    def fill(self, text: str, *, k: int = 10) -> list[list[tuple[str, float]]]:
        """For every `<mask>` in a line of text its k likeliest symbols, with their probabilities."""
        if k < 1:
            raise UsageError(f"k is {k}", hint="give at least 1")
        gapped = read_gaps(text, self.tokenizer)
        return [
            [(self._symbol(i), math.exp(float(row[i]))) for i in likeliest(row, k)] for row in self._predict(gapped)
        ]

    def predict(self, text: str | Sequence[str]) -> Any:
        """A line of text with its gaps filled by the likeliest words, each for itself; or a list for a list of lines."""
        if not isinstance(text, str):
            return [self.predict(line) for line in text]
        if MASK not in text:
            return text
        gapped = read_gaps(text, self.tokenizer)
        first, *parts = text.split(MASK)
        filled = first
        for part, row, is_spaced in zip(parts, self._predict(gapped), gapped.is_spaced, strict=True):
            chosen = np.where(self._can_fill(is_spaced), row, -np.inf).argmax()
            filled += self._symbol(int(chosen)) + part
        return filled

    def lines(self, data: Sources) -> Iterator[list[str]]:
        """The lines of a text, as many at a time as were there to read."""
        reading = DataConfig.model_validate({"errors": self.data.errors, "skip_bad": False})
        for lines in Reader(data, reading).blocks():
            yield [line.decode() for line in lines.split()]

    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Its numbers on the held-out text."""
        return self._numbers(tensors["valid"], should_stop) if "valid" in tensors else None

    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
        found = self._numbers(corpus.ids, lambda: False)
        if found is None:
            raise DataError("there is nothing to restore: every line is blank")
        return found

    def signature(self) -> str:
        """All that moves the numbers besides model and text."""
        text = evaluation.signature(
            units=self.tokenizer.units,
            vocab_size=self.tokenizer.vocab_size,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            reset_lines=self.data.reset_lines,
        )
        return text.replace("eos:scored", f"eos:given|hidden:1/{self.net.config.stride}")

    def _predict(self, gapped: Gapped) -> Array:
        """The distribution at every gap of a line. -> (N, V)"""
        ids = np.append(gapped.ids, EOS_ID)
        is_hidden = ids == GAP
        found: Array = self.net.predict(np.where(is_hidden, UNK_ID, ids)[None], np.array([len(ids)]), is_hidden[None])
        return found

    def _can_fill(self, is_spaced: bool) -> Array:
        """The symbols that can be written in a gap: no end, nothing unknown, and a space where there is one. -> (V,)"""
        mark = space_mark(self.tokenizer)
        fits = [mark is None or token.startswith(mark) == is_spaced for token in self.tokenizer.tokens]
        fits[UNK_ID] = fits[EOS_ID] = False
        return np.array(fits)

    def _symbol(self, token: int) -> str:
        """A symbol as it is written, without the space that it may bring along; the end of a line by its name."""
        return EOS if token == EOS_ID else self.tokenizer.decode([token])

    def _numbers(self, ids: Array, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Every token hidden once; of a part of the text, drawn by chance, where there is not time for more."""
        from elman.tasks.masked.net import Restored

        found = Restored()
        for tokens, lengths in _pieces(ids, reset_lines=self.data.reset_lines):
            if should_stop():
                break
            found += self.net.restore_all(tokens, lengths)
        if not found.tokens:
            return None
        mean = found.nats / found.tokens
        return {
            "pseudo_perplexity": math.exp(mean) if mean < 709 else None,
            "accuracy": found.right / found.tokens,
            "tokens": found.tokens,
            "signature": self.signature(),
        }


def _pieces(ids: Array, *, reset_lines: bool) -> Iterator[tuple[Array, Array]]:
    """Pieces of a text, or its lines, of like length side by side and in chance order. -> (B, T), (B,)"""
    longest = LONGEST_LINE if reset_lines else MEASURED_PIECE
    ends = np.flatnonzero(np.asarray(ids) == EOS_ID) + 1 if reset_lines else np.zeros(0, dtype=np.int64)
    edges = np.unique(np.concatenate([[0], ends, [len(ids)]]))
    begins = np.concatenate([np.arange(a, b, longest) for a, b in pairwise(edges.tolist())] or [edges])
    lengths = np.minimum(np.append(begins[1:], len(ids)) - begins, longest)
    order = np.argsort(-lengths, kind="stable")
    groups, first = [], 0
    while first < len(order):
        rows = max(1, MEASURED_TOKENS // int(lengths[order[first]]))
        groups.append(order[first : first + rows])
        first += rows
    for index in np.random.default_rng(0).permutation(len(groups)):
        rows = groups[index]
        tokens = np.full((len(rows), int(lengths[rows[0]])), EOS_ID, dtype=np.int64)
        for row, piece in enumerate(rows):
            tokens[row, : lengths[piece]] = ids[begins[piece] : begins[piece] + lengths[piece]]
        yield tokens, lengths[rows]
