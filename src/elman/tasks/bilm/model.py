"""Two language models of one text at the text level: their perplexities, and vectors for words in context."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.explain.filling import Filler
from elman.explain.reading import Reading
from elman.lm import evaluate as evaluation
from elman.lm.evaluate import Tally, score_lines
from elman.tasks.base import Prediction, PredictOptions, ShouldStop
from elman.tasks.bilm.data import reverse_text
from elman.tasks.foundation import Foundation, cells_of, make_foundation
from elman.tasks.lm.filling import log_probs_after
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmRecord
from elman.tasks.measuring import part_notes
from elman.tasks.text_task import TextModel
from elman.tasks.word_vectors import written_words
from elman.text.corpus import Corpus
from elman.text.gaps import Gapped
from elman.text.readers import Sources
from elman.text.units.vocabulary import EOS_ID

MEASURED_TOKENS = 4096  # tokens scored between two checks of the clock


class BilmTextModel(TextModel[Any]):
    """Two language models of one text: their perplexities, and vectors for words in context."""

    def language_model(self) -> Model:
        """The forward one, as a language model like any other."""
        record = LmRecord.model_validate(
            self.record.model_dump(exclude={"task", "labels", "valid"}) | {"vocab_size": self.tokenizer.vocab_size}
        )
        return Model(record, self.tokenizer, self.net.onward, self.directory)

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Prediction]:
        """Language models have no answer to a line."""
        return self.language_model().predict_lines(sources, options)

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """Those of its forward model."""
        return self.language_model().kinds(text)

    def filler(self) -> Filler:
        """The mean of both directions' log-probabilities, each after what it has read of its side (as LAMA does)."""

        def log_probs(texts: Sequence[Gapped]) -> Array:
            onward = log_probs_after(self.net.onward, [one.before() for one in texts])
            backward = log_probs_after(self.net.backward, [one.behind()[::-1] for one in texts])
            return (onward + backward) / 2

        return Filler("mean of two directions", self.tokenizer, log_probs)

    def reading(self, text: str) -> Reading:
        """That of its forward model."""
        return self.language_model().reading(text)

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those that both models read."""
        return written_words(self.tokenizer, self.tensors()["onward.embedding.weight"])

    def foundation(self) -> Foundation:
        """Words, forward and backward cells."""
        tensors = self.tensors()
        return make_foundation(
            self,
            self.tokenizer,
            vectors=tensors["onward.embedding.weight"],
            onward=cells_of(tensors, "onward.stack.layers."),
            backward=cells_of(tensors, "backward.stack.layers."),
        )

    def features(self, line: str) -> Array:
        """What every layer makes of every token of a line. -> (L, T, 2 H)

        From the words up, forward and backward side by side; `nets.layer_mix.LayerMix` makes one vector of the layers.
        """
        from elman.tasks.bilm.net import compute_features

        ids = self.tokenizer.encode(line)
        found: Array = compute_features(self.net, ids[None], np.array([len(ids)]))[:, 0]
        return found

    def numbers(self, corpus: Corpus) -> dict[str, Any]:
        """Its numbers on a text."""
        return self.numbers_of(corpus.ids, lambda: False) or {}

    def signature(self) -> str:
        """All that moves a perplexity besides model and text."""
        return evaluation.signature(
            units=self.tokenizer.units,
            vocab_size=self.tokenizer.vocab_size,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            reset_lines=self.data.reset_lines,
        )

    def numbers_of(self, ids: Array, should_stop: ShouldStop) -> dict[str, Any] | None:
        """By the rule of language models, in both directions; of as much as there is time for."""
        nets = {"": self.net.onward, "_backward": self.net.backward}
        states = {name: net.start(1) for name, net in nets.items()}
        tallies = {name: Tally() for name in nets}
        by_lines = self.data.reset_lines
        for pieces in zip(_pieces(ids, by_lines=by_lines), _pieces(reverse_text(ids), by_lines=by_lines), strict=False):
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
        notes = part_notes(tallies[""].tokens, len(ids), "tokens")
        return found | {
            "tokens": tallies[""].tokens,
            "signature": self.signature(),
            **({"notes": notes} if notes else {}),
        }


def _pieces(ids: Array, *, by_lines: bool) -> Iterator[Array]:
    """A text in pieces, of whole lines if asked for."""
    begin = 0
    while begin < len(ids):
        end = min(begin + MEASURED_TOKENS, len(ids))
        while by_lines and end < len(ids) and int(ids[end - 1]) != EOS_ID:
            end += 1
        yield np.array(ids[begin:end], dtype=np.int64)
        begin = end
