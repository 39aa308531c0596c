"""A masked model at the text level: it fills gaps, and is measured by how well it restores every token of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.explain.filling import Filler
from elman.explain.kind import OF_WORDS, of_cells
from elman.explain.reading import AttentionMap, Reading, head_maps, refuse_long
from elman.lm import evaluate as evaluation
from elman.lm.shaping import likeliest
from elman.tasks.base import Prediction, PredictOptions, ShouldStop
from elman.tasks.exported import Exported
from elman.tasks.foundation import Foundation, cells_of, make_foundation
from elman.tasks.masked.exporting import export_masked
from elman.tasks.measuring import part_notes
from elman.tasks.text_task import TextModel
from elman.tasks.word_vectors import written_words
from elman.text.corpus import Corpus
from elman.text.gaps import GAP, MASK, Gapped, fits_gap, has_gap, read_gaps, same_mask
from elman.text.readers import Reader, Sources, as_texts
from elman.text.rows import like_length, pad_all
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID

MEASURED_PIECE = 128  # tokens of a stream that are evaluated as one row
LONGEST_LINE = 512  # tokens of a line that is evaluated as one row; longer lines are cut
MEASURED_TOKENS = 4096  # tokens in one evaluation batch, padding included


@dataclass(frozen=True)
class Filled(Prediction):
    """A line with its gaps filled, and the likeliest symbols of each gap with their probabilities."""

    text: str
    gaps: Sequence[Sequence[tuple[str, float]]] = ()

    def line(self) -> str:
        """The filled line."""
        return self.text

    def as_json(self) -> dict[str, Any]:
        """With the likeliest symbols of every gap."""
        gaps = [[{"token": token, "probability": share} for token, share in gap] for gap in self.gaps]
        return {"text": self.text, "gaps": gaps}


class MaskedTextModel(TextModel[Any]):
    """A masked model: it fills gaps, and is measured by how well it restores every token of a text from the others."""

    reads_end = True

    def exported(self) -> Exported:
        """The whole net."""
        return export_masked(self)

    def fill(self, text: str, *, k: int = 10) -> list[list[tuple[str, float]]]:
        """For every `<mask>` in a line of text its k likeliest symbols, with their probabilities."""
        if k < 1:
            raise UsageError(f"k is {k}", code="bad-value", hint="give at least 1")
        gapped = read_gaps(text, self.tokenizer)
        return [
            [(self._symbol(i), math.exp(float(row[i]))) for i in likeliest(row, k)] for row in self._predict(gapped)
        ]

    def predict(self, text: str | Sequence[str]) -> Any:
        """A line of text with its gaps filled by the likeliest words, each for itself; or a list for a list of lines."""
        if not isinstance(text, str):
            return [self.predict(line) for line in as_texts(text)]
        if MASK not in text:
            return text
        gapped = read_gaps(text, self.tokenizer)
        first, *parts = text.split(MASK)
        filled = first
        for part, row, is_spaced in zip(parts, self._predict(gapped), gapped.is_spaced, strict=True):
            chosen = np.where(fits_gap(self.tokenizer, is_spaced=is_spaced), row, -np.inf).argmax()
            filled += self._symbol(int(chosen)) + part
        return filled

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """Gaps are filled; without one, what is read of each token."""
        family = self.record.model.family
        layers = ("attention", "states") if family == "transformer" else of_cells(family)
        kinds = ("cloze", "saliency") if has_gap(text) else ("saliency", "cloze")
        return (*kinds, *layers, "gradients", *OF_WORDS)

    def reading(self, text: str) -> Reading:
        """A line as the net reads it, its `<mask>`s hidden; what is predicted is every token from all that is read."""
        text = same_mask(text)
        ids = read_gaps(text, self.tokenizer).ids if MASK in text else self.tokenizer.encode(text)
        refuse_long(ids)
        ids = np.append(ids, EOS_ID).astype(np.int64)
        is_hidden = ids == GAP
        tokens = [MASK if hidden else self._symbol(int(i)) for i, hidden in zip(ids, is_hidden, strict=True)]
        filled = np.where(is_hidden, UNK_ID, ids)
        if is_hidden.any():
            found = self.net.predict(filled[None], np.array([len(ids)]), is_hidden[None])
            filled[is_hidden] = found.argmax(axis=1)
        return Reading(
            tokens=tokens,
            is_known=((ids != UNK_ID) | is_hidden).tolist(),
            rows=tokens,
            columns=self.tokenizer.tokens,
            chosen=filled,
            words=lambda: self.net.words_read(np.where(is_hidden, UNK_ID, ids), is_hidden),
            trace=self.net.trace,
            unrecorded=lambda: self.net.score_all(filled, is_hidden),
            is_local=True,
        )

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those that it reads."""
        return written_words(self.tokenizer, self.tensors()["embedding.weight"])

    def filler(self) -> Filler:
        """Every gap is filled from both of its sides; other gaps of a text are hidden too."""

        def fill(texts: Sequence[Gapped]) -> Array:
            refuse_long(max((one.ids for one in texts), key=len))
            ids, lengths = pad_all([np.append(one.ids, EOS_ID) for one in texts])
            is_hidden = ids == GAP
            log_probs: Array = self.net.predict(np.where(is_hidden, UNK_ID, ids), lengths, is_hidden)
            first = np.cumsum(is_hidden.sum(axis=1)) - is_hidden.sum(axis=1)  # of each row, its first gap
            found: Array = log_probs[first]
            return found

        return Filler("from both sides", self.tokenizer, fill)

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Of every head: at which tokens each token looked."""
        reading = self.reading(text)
        traced, _ = reading.trace(reading.words())
        return head_maps(traced.layers, "self", rows=reading.tokens, columns=reading.tokens)

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Filled]:
        """The lines of a text with their gaps filled."""
        reading = self.data.reading(options.errors)
        for lines in Reader(sources, reading, separator=self.data.separator, keep_lines=True).blocks():
            for line in (line.decode() for line in lines.split()):
                gaps = self.fill(line) if options.details and MASK in line else []
                yield Filled(self.predict(line), gaps)

    def foundation(self) -> Foundation:
        """Words and cells of both directions, each of which reads both of the layer below."""
        tensors = self.tensors()
        return make_foundation(
            self,
            self.tokenizer,
            vectors=tensors["embedding.weight"],
            onward=cells_of(tensors, "stack.stack.layers.", "onward."),
            backward=cells_of(tensors, "stack.stack.layers.", "backward."),
            reads_both=True,
        )

    def language_model(self) -> NoReturn:
        """There is none in it."""
        raise UsageError(
            f"{self.directory} holds a masked model: it knows both sides of a word, so it has no probability of the next one",
            code="not-for-this-model",
            hint="train lm or bilm on the same text; a bilm gives its forward model to a mixture",
        )

    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
        found = self.numbers_of(corpus.ids, lambda: False)
        if found is None:
            raise DataError("there is nothing to restore: every line is blank", code="empty-data")
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

    def _symbol(self, token: int) -> str:
        """A symbol as it is written, without the space that it may bring along; the end of a line by its name."""
        return EOS if token == EOS_ID else self.tokenizer.decode([token])

    def numbers_of(self, ids: Array, should_stop: ShouldStop) -> dict[str, Any] | None:
        """Every token hidden once; of a part of the text, drawn by chance, where there is not time for more."""
        from elman.tasks.masked.net import Restored

        found = Restored()
        total = int(np.count_nonzero(np.asarray(ids) != EOS_ID))
        for tokens, lengths in _pieces(ids, reset_lines=self.data.reset_lines):
            if should_stop():
                break
            found += self.net.restore_all(tokens, lengths)
        if not found.tokens:
            return None
        mean = found.nats / found.tokens
        notes = part_notes(found.tokens, total, "tokens")
        return {
            "pseudo_perplexity": math.exp(mean) if mean < 709 else None,
            "accuracy": found.right / found.tokens,
            "tokens": found.tokens,
            "signature": self.signature(),
            **({"notes": notes} if notes else {}),
        }


def _pieces(ids: Array, *, reset_lines: bool) -> Iterator[tuple[Array, Array]]:
    """Pieces of a text, or its lines, of like length side by side and in chance order. -> (B, T), (B,)"""
    longest = LONGEST_LINE if reset_lines else MEASURED_PIECE
    ends = np.flatnonzero(np.asarray(ids) == EOS_ID) + 1 if reset_lines else np.zeros(0, dtype=np.int64)
    edges = np.unique(np.concatenate([[0], ends, [len(ids)]]))
    begins = np.concatenate([np.arange(a, b, longest) for a, b in pairwise(edges.tolist())] or [edges])
    lengths = np.minimum(np.append(begins[1:], len(ids)) - begins, longest)
    groups = [np.array(chunk) for chunk in like_length(lengths, tokens=MEASURED_TOKENS)]
    for index in np.random.default_rng(0).permutation(len(groups)):
        rows = groups[index]
        yield pad_all([ids[begins[piece] : begins[piece] + lengths[piece]] for piece in rows])
