"""An answer marked in its context: where it begins and where it ends (Wang & Jiang 2017).

T words of a context · B rows · K places at which an answer stands · N words of the longest answer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear

from elman.core.arrays import Array
from elman.nets.inputs import NetInputs
from elman.nets.text_encoder import TextEncoder
from elman.nets.text_net import TextNet, initialise_linear
from elman.nets.trace import NetTrace
from elman.nets.trainable import Loss
from elman.nets.vocabulary_net import embedding_of, load_tensors
from elman.tasks.qa.config import ReaderConfig
from elman.tasks.qa.passage_net import Passage, PassageEncoder
from elman.tasks.qa.passages import SpanBatch

USUAL_SPAN = 10  # words of an answer, at most, where the settings do not say


@dataclass(frozen=True)
class Spans:
    """The likeliest parts of each context, best first, and how likely every word is to be an answer's first or last."""

    first: Array  # (B, n)
    last: Array  # (B, n), never before the first
    probabilities: Array  # (B, n); those of all parts that are not too long sum to one
    begins: Array  # (B, T), 0 at padding
    ends: Array  # (B, T)


class SpanNet(TextNet):
    """Scores every word of a context as an answer's first and last."""

    def __init__(self, config: ReaderConfig, inputs: NetInputs) -> None:
        super().__init__()
        self.vocab_size = max(2, round(inputs.usual_length)) ** 2  # a place to begin, a place to end
        self.passages = PassageEncoder(config, inputs)
        self.config: ReaderConfig = self.passages.config
        self.output = Linear(self.passages.output_width, 2, dtype=inputs.dtype)
        self._usual_length = inputs.usual_length
        if inputs.rng is not None:
            self.passages.initialise(inputs.rng, inputs.vectors)
            initialise_linear(self.output, inputs.rng)

    @classmethod
    def from_tensors(cls, config: ReaderConfig, tensors: Mapping[str, Array]) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "qa", within="passages.reader.")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words))
        load_tensors(model, tensors)
        return model

    def predict(self, sources: Array, lengths: Array, *, count: int = 1) -> Spans:
        """The `count` likeliest spans of each context, or all where there are fewer. Every context has a word.

        sources (B, S), lengths (B,): the question, EOS_ID, the context, EOS_ID.
        """
        with torch.inference_mode():
            begins_BT, ends_BT = self._log_probs(sources, lengths)
            longest = self.config.longest or USUAL_SPAN
            first, last, shares = best_spans(begins_BT, ends_BT, longest=longest, count=count)
            parts = (first, last, *(one.to(torch.float32) for one in (shares, begins_BT.exp(), ends_BT.exp())))
            return Spans(*(one.cpu().numpy() for one in parts))

    def log_probs(self, source: Array) -> Array:
        """Of each word of the context of one source (S,) to be the answer's first, and its last. -> (2, T)"""
        with torch.inference_mode():
            both = torch.cat(self._log_probs(source[None], np.array([len(source)])))
            return both.to(torch.float32).cpu().numpy()

    def words_read(self, source: Array) -> Tensor:
        """The vectors of one source (S,). -> (S, 1, E)"""
        return self.passages.words_read(self._ids(source)[:, None])

    def trace(self, source: Array, words_SBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one source whose words have these vectors, and `log_probs`, (2, T)."""
        layers, outputs, passage = self.passages.trace(self._ids(source)[:, None], words_SBE)
        traced = NetTrace(words_SBE, passage.encoding.outputs, layers, outputs)
        return traced, torch.cat(self._log_probs_of(passage))

    # -------------------------------------------------------------------------------------------------------- training

    @property
    def encoder(self) -> TextEncoder:
        """What reads the words of questions and contexts."""
        return self.passages.reader

    def batch_loss(self, batch: SpanBatch, state: Any) -> tuple[Loss, None]:
        """Nats of the answers' first and last words; of an answer that stands there several times any place is right."""
        begins_BT, ends_BT = self._log_probs(batch.sources, batch.source_lengths)
        starts_BK = self._ids(batch.starts)
        is_place_BK = starts_BK >= 0
        first_BK = starts_BK.clamp(min=0)
        last_BK = torch.where(is_place_BK, first_BK + self._ids(batch.sizes)[:, None] - 1, 0)
        both_BK = begins_BT.gather(1, first_BK) + ends_BT.gather(1, last_BK)
        nats = -both_BK.masked_fill(~is_place_BK, -torch.inf).logsumexp(1).sum()
        return Loss(nats / len(starts_BK), nats.detach().double(), len(starts_BK)), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one question, forward."""
        return self._usual_length * self.passages.multiply_adds()

    def _log_probs(self, sources: Array, lengths: Array) -> tuple[Tensor, Tensor]:
        """Of each word to be the first and to be the last; -inf at padding. -> (B, T), (B, T)"""
        return self._log_probs_of(self.passages(self._ids(sources).t(), self._ids(lengths)))

    def _log_probs_of(self, passage: Passage) -> tuple[Tensor, Tensor]:
        encoding, lengths_B, _ = passage
        scores_BT2 = self.output(encoding.outputs).transpose(0, 1)[:, :-1]  # the end of a context is no word of it
        is_word_BT = torch.arange(scores_BT2.shape[1], device=lengths_B.device) < lengths_B[:, None] - 1
        scores_BT2 = scores_BT2.masked_fill(~is_word_BT[:, :, None], -torch.inf)
        begins_BT, ends_BT = scores_BT2.log_softmax(1).unbind(2)
        return begins_BT, ends_BT


def best_spans(begins_BT: Tensor, ends_BT: Tensor, *, longest: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest of all spans of 1 to `longest` words, best first: first words, last words, probabilities. -> (B, n)

    begins, ends: log-probabilities, -inf where there is no word.
    """
    num_words = begins_BT.shape[1]
    longest = min(longest, num_words)
    padded_BX = torch.nn.functional.pad(ends_BT, (0, longest - 1), value=-torch.inf)
    spans_BTN = begins_BT[:, :, None] + padded_BX.unfold(1, longest, 1)
    scores_BX = spans_BTN.flatten(1)
    best, places = scores_BX.topk(min(count, scores_BX.shape[1]), dim=1)
    first = places // longest
    return first, first + places % longest, (best - scores_BX.logsumexp(1, keepdim=True)).exp()
