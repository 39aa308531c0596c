"""What every model of pairs does alike: a source is read, and its target is a language model that begins from there.

B rows · S source tokens · T target tokens · P features, as the output head reads them
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.embedding import Embedding
from elman.nets.encoder import BidirectionalStack
from elman.nets.full_head import FullHead
from elman.nets.graphs import (
    BATCH,
    CHECKED_ROWS,
    EXAMPLE_LENGTH,
    ROWS,
    SOURCE,
    Graph,
    NetGraphs,
    Run,
    TensorModule,
    in_float32,
    largest,
    state_of,
    step_difference,
    step_graph,
)
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors
from elman.nets.neural_lm import Carried, NeuralLm, NeuralState
from elman.nets.trace import LayerTrace, NetTrace
from elman.nets.trainable import Loss
from elman.nets.unidirectional import UnidirectionalStack
from elman.nets.vocabulary_net import embedding_of
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.data import PairBatch
from elman.text.units.vocabulary import EOS_ID

OWN_WORDS_STEPS = 2000
SOURCE_STEPS = 20  # of an exported decoder that are compared for one source, which is shorter
OWN_WORDS_ROWS = 512  # rows whose next tokens are predicted at once for scheduled sampling


class PairTrace(NamedTuple):
    """One pair on its way through a net."""

    source: NetTrace
    target: NetTrace
    log_probs: Tensor  # (T, V), of all tokens at each place of the target


class PairModel(NeuralLm[Seq2SeqConfig]):
    """An encoder and a decoder, as a `ConditionalModel` and a `Trainable`.

    longest_source: tokens of the longest source it is to be trained on, for what has a place for each.
    """

    # With +-0.05 so little of a word reaches the output that for hundreds of steps only its bias learns (docs/log.md)
    word_bound = 0.5
    encoder: BidirectionalStack | UnidirectionalStack | AttentionEncoder
    _num_batches: Tensor

    def __init__(
        self, config: Seq2SeqConfig, inputs: NetInputs, *, source_vocab_size: int, longest_source: int | None = None
    ) -> None:
        if config.shared_words and inputs.vocab_size != source_vocab_size:
            raise UsageError(
                "model.shared_words needs one vocabulary for both sides",
                code="bad-value",
                hint="--set data.shared=true",
            )
        rng, dtype = inputs.rng, inputs.dtype
        super().__init__(self._complete(config, longest_source), replace(inputs, rng=None))
        width = self.embedding.width
        is_shared = config.shared_words
        own = None if is_shared else Embedding(source_vocab_size, width, is_frozen=False, dtype=dtype)
        self.source_embedding = own or self.embedding
        self._build_encoder(dtype)
        self.register_buffer("_num_batches", torch.zeros((), dtype=torch.float64), persistent=False)
        if rng is not None:
            self._initialise(rng, None)
            if inputs.counts is not None and isinstance(self.head, FullHead):
                self.head.begin_with(inputs.counts)  # how frequent words are need not be learned first

    @abstractmethod
    def _complete(self, config: Seq2SeqConfig, longest_source: int | None) -> Seq2SeqConfig:
        """The settings with all that depends on the data filled in."""

    @abstractmethod
    def _build_encoder(self, dtype: torch.dtype) -> None:
        """All that is not the decoder's layers."""

    @abstractmethod
    def _encode(self, source_SB: Tensor, lengths_B: Tensor, *, is_noisy: bool) -> Carried:
        """What the decoder carries before its first token."""

    @abstractmethod
    def _weights(self, read_TB: Tensor, carried: Carried) -> Tensor:
        """How the decoder weighs the source while it reads. -> (B, T, S)"""

    @abstractmethod
    def _trace_source(self, words_SBE: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Carried]:
        """What each layer of the encoder did, what is there after each, and what the decoder carries at first."""

    @abstractmethod
    def _trace_target(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        """What the decoder did; its attention to the source is called `source`, (B, T, S)."""

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        super()._initialise(rng, vectors)
        if not self.config.shared_words:
            self.source_embedding.initialise(rng, None, bound=self.word_bound)

    @classmethod
    def from_tensors(cls, config: Seq2SeqConfig, tensors: Mapping[str, Array], *, vocab_size: int) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "seq2seq")
        sources = words if config.shared_words else tensors.get("source_embedding.weight", words)
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words, vocab_size), source_vocab_size=len(sources))
        model.load_tensors(tensors)
        return model

    def encode(self, source: Array, lengths: Array) -> NeuralState:
        """The state before anything was written. source (B, S), lengths (B,)"""
        with torch.inference_mode():
            return self._begin(self._encode(self._to_ids(source).t(), self._to_ids(lengths), is_noisy=False))

    def exported(self) -> NetGraphs:
        """The encoder, and a step of the decoder from what it gives."""
        net = in_float32(self)

        def encode(net: Self, source_BS: Tensor, lengths_B: Tensor) -> Carried:
            return net._encode(source_BS.t(), lengths_B, is_noisy=False)

        source_BS = torch.full((ROWS, EXAMPLE_LENGTH), EOS_ID)
        lengths_B = torch.tensor([EXAMPLE_LENGTH, 1])
        encoder = Graph(
            "encoder",
            TensorModule(net, encode),
            {"source": source_BS, "lengths": lengths_B},
            {"source": {0: BATCH, 1: SOURCE}, "lengths": {0: BATCH}},
            net.carried_names(),
        )
        with torch.no_grad():
            carried = encode(net, source_BS, lengths_B)
        step = step_graph(net, "decoder", carried, lambda leaf: {0: BATCH, **({1: SOURCE} if leaf.ndim == 3 else {})})

        def compare(run: Run, steps: int) -> float:
            rng, found = np.random.default_rng(steps), []
            for _ in range(-(-steps // SOURCE_STEPS)):
                lengths = rng.integers(1, SOURCE_STEPS, CHECKED_ROWS)
                source = rng.integers(0, len(net.source_embedding.weight), (CHECKED_ROWS, lengths.max()))
                begin = run("encoder", {"source": source, "lengths": lengths})
                state = net.encode(source, lengths)
                found.append(step_difference(net, run, step, state=state, carried=begin, steps=SOURCE_STEPS))
            return largest(found)

        return NetGraphs([encoder, step], compare, state_of(step))

    def vectors(self, source: Array, lengths: Array) -> list[LayerVectors]:
        """What each layer of the encoder makes of every source token; the first is the words. source (B, S)"""
        words_SBE = self.source_embedding(self._to_ids(source).t())
        return [LayerVectors(words_SBE), *self.encoder.vectors(words_SBE, self._to_ids(lengths))]

    def attention_weights(self, source: Array, lengths: Array, target: Array) -> Array:
        """How much each target token looked at each source token, by reading the target again. -> (B, T, S)

        source (B, S), lengths (B,), target (B, T). Row t is about the step that wrote token t.
        """
        if self.config.context != "attention":
            raise UsageError(
                f"a model with context={self.config.context} has no attention to show", code="not-for-this-model"
            )
        with torch.inference_mode():
            carried = self._encode(self._to_ids(source).t(), self._to_ids(lengths), is_noisy=False)
            return self._to_numpy(self._weights(shifted(self._to_ids(target).t()), carried))

    def words_read(self, source: Array, target: Array) -> tuple[Tensor, Tensor]:
        """The vectors of a source (S,), and of what is read to predict its target (T,). -> (S, 1, E), (T, 1, E)"""
        source_SBE: Tensor = self.source_embedding(self._to_ids(source)[:, None])
        target_TBE: Tensor = self.embedding(shifted(self._to_ids(target)[:, None]))
        return source_SBE, target_TBE

    def trace(self, source_SBE: Tensor, target_TBE: Tensor) -> PairTrace:
        """What was done with one pair whose words are vectors already."""
        lengths_B = torch.tensor([len(source_SBE)], device=self.device)
        layers, outputs, carried = self._trace_source(source_SBE, lengths_B)
        target = self._trace_target(target_TBE, carried)
        return PairTrace(
            NetTrace(source_SBE, outputs[-1], layers, outputs), target, self.head.log_probs(target.features[:, 0])
        )

    def start_training(self, rows: int) -> None:
        """Nothing is carried from one batch of pairs to the next."""

    def batch_loss(self, batch: PairBatch, state: None) -> tuple[Loss, None]:
        """The loss of the targets given their sources, each target word read as it should have been written."""
        is_noisy = self.training
        sources_SB, lengths_B = self._to_ids(batch.sources).t(), self._to_ids(batch.source_lengths)
        targets_TB = self._to_ids(batch.targets).t()
        carried = self._encode(sources_SB, lengths_B, is_noisy=is_noisy)
        read_TB = shifted(targets_TB)
        if is_noisy and self.config.own_words:
            read_TB = self._with_own_words(read_TB, carried)
        features_TBP = self._read(read_TB, carried, is_noisy=is_noisy).features
        times_T1 = torch.arange(len(targets_TB), device=self.device)[:, None]
        real = (times_T1 < self._to_ids(batch.target_lengths)).flatten().nonzero()[:, 0]
        features_NP = features_TBP.flatten(0, 1).index_select(0, real)
        targets_N = targets_TB.flatten()[real]
        mean, nats = self.head.loss(features_NP, targets_N, is_noisy=is_noisy)
        if is_noisy and self.config.label_smoothing:
            assert isinstance(self.head, FullHead)
            mean = mean + self.config.label_smoothing * _smoothing(self.head, features_NP, targets_N)
        return Loss(mean, nats.detach(), len(targets_N), not (is_noisy and self.head.is_sampled)), None

    @torch.no_grad()
    def _with_own_words(self, read_TB: Tensor, carried: Carried) -> Tensor:
        """The words to read, some of them replaced by what the net would have written there (Bengio et al. 2015).

        What it would have written is taken from a first reading of the right words (Mihaylova & Martins 2019), so that
        both readings are one call each.
        """
        config = self.config
        share = config.own_words * min(1.0, self._num_batches.item() / (config.own_words_steps or OWN_WORDS_STEPS))
        self._num_batches += 1
        features_NP = self._read(read_TB, carried, is_noisy=False).features.flatten(0, 1)
        guesses = [self.head.log_probs(part).argmax(1) for part in torch.split(features_NP, OWN_WORDS_ROWS)]
        own_TB = shifted(torch.cat(guesses).view(read_TB.shape))
        is_own_TB = torch.rand(read_TB.shape, device=read_TB.device) < share
        is_own_TB[0] = False
        return torch.where(is_own_TB, own_TB, read_TB)


def padded_leaves(carried: Carried, longest: int) -> Carried:
    """With source positions up to `longest`: the leaves of three axes have them on the second."""
    return tuple(F.pad(leaf, (0, 0, 0, longest - leaf.shape[1])) if leaf.ndim == 3 else leaf for leaf in carried)


def shifted(targets_TB: Tensor) -> Tensor:
    """What is read to predict the targets: the start symbol, then all but the last."""
    start_1B = torch.full_like(targets_TB[:1], EOS_ID)
    return torch.cat([start_1B, targets_TB[:-1]])


def _smoothing(head: FullHead, features_NP: Tensor, targets_N: Tensor) -> Tensor:
    """By how much the targets' logits are above the mean logit, on average.

    With e of it, the loss is (1 - e) (-log p(target)) + e (the mean over all words of -log p(word)): in both, what the
    softmax is normalised by is the same, and drops out of the difference.
    """
    weight_VP, bias_V = head.weight, head.bias
    target_N = (features_NP * F.embedding(targets_N, weight_VP)).sum(-1) + bias_V[targets_N]
    mean_N = features_NP @ weight_VP.mean(0) + bias_V.mean()
    return (target_N - mean_N).mean() * head.scale
