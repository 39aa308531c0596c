"""An answer written word by word, by a decoder that looks at its context: the one of sequence-to-sequence models.

S words of question and context as one source · B rows
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import Linear

from elman.core.arrays import Array
from elman.nets.encoder import Encoding
from elman.nets.inputs import NetInputs
from elman.nets.layer import draw_weights
from elman.nets.neural_lm import Carried
from elman.nets.pooling import Pool
from elman.nets.text_encoder import TextEncoder
from elman.nets.text_net import TextNet
from elman.nets.trace import NetTrace
from elman.nets.trainable import Loss
from elman.nets.vocabulary_net import embedding_of, load_tensors
from elman.tasks.qa.config import ReaderConfig
from elman.tasks.qa.passage_net import Passage, PassageEncoder
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.data import PairBatch
from elman.tasks.seq2seq.net import shifted
from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel


class PassageWriter(Seq2SeqModel):
    """Pairs of a source (question and context) and an answer. What the decoder looks at is the words of the context."""

    passages: PassageEncoder

    def __init__(
        self, config: Seq2SeqConfig, reading: ReaderConfig, inputs: NetInputs, *, answer_vocab_size: int
    ) -> None:
        dtype = inputs.dtype
        super().__init__(config, NetInputs(answer_vocab_size, dtype=dtype), source_vocab_size=answer_vocab_size)
        self.passages = PassageEncoder(reading, inputs)
        self.pool = Pool("attention", self.passages.output_width, dtype=dtype)
        self.words = Linear(self.passages.reader.embedding.width, config.hidden, bias=False, dtype=dtype)
        if inputs.rng is not None:
            self._initialise(inputs.rng, inputs.vectors)

    def _build_encoder(self, dtype: torch.dtype) -> None:
        self._build_links(self.config.hidden, dtype)  # the encoder is `passages`, as wide as the decoder

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        super(Seq2SeqModel, self)._initialise(rng, None)
        with torch.no_grad():  # as with the words that are read
            self.embedding.weight.mul_(10)
        self.passages.initialise(rng, vectors)
        self.pool.initialise(rng)
        draw_weights(rng, self.words.weight, inputs=self.words.in_features)
        self._initialise_links(rng)

    def _encode(self, source_SB: Tensor, lengths_B: Tensor, *, is_noisy: bool) -> Carried:
        return self.begin_from(self.passages(source_SB, lengths_B))

    def begin_from(self, read: Passage) -> Carried:
        """What the decoder carries before its first word, where contexts were read so."""
        # what word it is has a way past the layers: without it, hundreds of steps go by before anything is copied
        outputs_TBH = read.encoding.outputs + self.words(read.words)
        seen = Encoding(outputs_TBH, read.encoding.forward, read.encoding.backward)
        # the decoder begins with what the question made important, wherever it stands, not with the context's ends
        halves = self.pool(seen, read.lengths).chunk(2, dim=1)
        forward, backward = (
            ((half, *states[0][1:]),) for half, states in zip(halves, (seen.forward, seen.backward), strict=True)
        )
        return self._begin_with(Encoding(outputs_TBH, forward, backward), read.lengths)

    def trace_answer(self, target_T1: Tensor, passage: Passage) -> tuple[NetTrace, Tensor]:
        """What the decoder does with an answer, and the log-probabilities of all words at each place of it, (T, V)."""
        traced = self._trace_target(self.embedding(shifted(target_T1)), self.begin_from(passage))
        return traced, self.head.log_probs(traced.features[:, 0])


class WritingNet(TextNet):
    """Writes answers of the words that answers have in training. `pairs` is the `ConditionalModel` that is searched.

    The vocabulary of `inputs` is that of contexts and questions.
    """

    def __init__(self, config: ReaderConfig, inputs: NetInputs, *, answer_vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = answer_vocab_size
        self.pairs = PassageWriter(writer_settings(config), config, inputs, answer_vocab_size=answer_vocab_size)
        self.config: ReaderConfig = self.pairs.passages.config
        self._usual_length = inputs.usual_length

    @classmethod
    def from_tensors(cls, config: ReaderConfig, tensors: Mapping[str, Array]) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "qa", within="pairs.passages.reader.")
        answers = embedding_of(tensors, "qa", within="pairs.")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words), answer_vocab_size=len(answers))
        load_tensors(model, tensors)
        return model

    @property
    def encoder(self) -> TextEncoder:
        """What reads the words of questions and contexts."""
        return self.pairs.passages.reader

    def words_read(self, source: Array) -> Tensor:
        """The vectors of one source (S,). -> (S, 1, E)"""
        return self.pairs.passages.words_read(self._ids(source)[:, None])

    def trace(self, source: Array, target: Array, words_SBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one source whose words have these vectors, and log-probabilities of its answer, (T, V)."""
        layers, outputs, passage = self.pairs.passages.trace(self._ids(source)[:, None], words_SBE)
        written, log_probs_TV = self.pairs.trace_answer(self._ids(target)[:, None], passage)
        return NetTrace(words_SBE, passage.encoding.outputs, layers, outputs, written.attention), log_probs_TV

    def batch_loss(self, batch: PairBatch, state: Any) -> tuple[Loss, None]:
        """Nats of the answers' words and ends, each word read as it should have been written."""
        return self.pairs.batch_loss(batch, None)

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one word of an answer and its share of the context, forward."""
        decoder = self.pairs.stack.multiply_adds() + self.pairs.readout.weight.numel()
        attention = self.pairs.attention.multiply_adds(max(1, round(self._usual_length)))
        return decoder + attention + self._usual_length * self.pairs.passages.multiply_adds()


def writer_settings(config: ReaderConfig) -> Seq2SeqConfig:
    """Those of the decoder: one layer, as wide as what it looks at."""
    return Seq2SeqConfig.model_validate(
        {
            "family": config.family,
            "reset": config.reset,
            "hidden": 2 * config.hidden,
            "encoder_layers": 1,
            "score": "scaled",  # a bilinear one was soon sure of the wrong place, and stayed there for hundreds of steps
            "shared_words": True,  # it has no words of a source: those are the passages' own
            "dropout_input": config.rate("input"),
            "dropout_output": config.rate("output"),
        }
    )
