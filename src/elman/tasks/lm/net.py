"""Nets that are language models of a text: they begin from nothing, and are trained on streams or on lines.

A family says what its layers are (`_build_stack`), what they carry from token to token (`_start_layers`) and how they
read on (`_read`). T tokens · B rows · P features, as the output head reads them · K words of history
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.lm.trace import Trace
from elman.nets.config import LanguageNetConfig
from elman.nets.graphs import (
    BATCH,
    CHECKED_ROWS,
    ROWS,
    NetGraphs,
    Run,
    in_float32,
    start_values,
    state_of,
    step_difference,
    step_graph,
)
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors
from elman.nets.maxent import Maxent, SparseLogits
from elman.nets.neural_lm import Carried, NeuralLm, NeuralState
from elman.nets.ngrams import NgramTable, collect_ngrams
from elman.nets.stack import Stack
from elman.nets.trace import NetTrace, layer_arrays
from elman.nets.trainable import Loss, StreamNet
from elman.nets.transformer import CausalStack
from elman.nets.vocabulary_net import embedding_of
from elman.text.units.vocabulary import EOS_ID

L = TypeVar("L", bound=LanguageNetConfig)


class _ReadForTargets(NamedTuple):
    """What the targets of a batch are predicted from. N targets"""

    features: Tensor  # (N, P)
    targets: Tensor  # (N,)
    extra: SparseLogits | None
    penalty: Tensor | None  # (N,)
    carried: Carried


class NeuralModel(NeuralLm[L], StreamNet):
    """A net as a `FreeModel` and a `Trainable`: it begins from nothing, in both ways of reading."""

    stack: Stack | CausalStack

    def __init__(self, config: L, inputs: NetInputs, *, reset_lines: bool) -> None:
        super().__init__(config, inputs)
        self.reset_lines = reset_lines
        if config.maxent is not None:
            nothing = np.zeros(0, dtype=np.int64)
            self._attach(NgramTable(nothing, nothing.reshape(0, len(self.head.symbols().edges)), nothing))

    @abstractmethod
    def _start_layers(self, rows: int) -> Carried:
        """What the layers carry before the first input."""

    def start_training(self, rows: int) -> Carried:
        """What a stream carries before its first input. Before that there were only ends of lines."""
        if self.maxent is None:
            return self._start_layers(rows)
        ends_BK = torch.full((rows, self.maxent.length), EOS_ID, dtype=torch.int64, device=self.device)
        return *self._start_layers(rows), ends_BK

    @abstractmethod
    def _layer_names(self) -> list[str]:
        """What each of the tensors is called that the layers carry."""

    def carried_names(self) -> list[str]:
        """Those of the layers; `history` is the words that n-gram features look back to."""
        return self._layer_names() + ([] if self.maxent is None else ["history"])

    def exported(self) -> NetGraphs:
        """One graph, a step; it begins with the end of a line."""
        net = in_float32(self)
        step = step_graph(net, "model", net.start_training(ROWS), lambda leaf: {0: BATCH})

        def compare(run: Run, steps: int) -> float:
            first = zip(net.carried_names(), net.start_training(CHECKED_ROWS), strict=True)
            carried = {name: leaf.numpy() for name, leaf in first}
            return step_difference(net, run, step, state=net.start(CHECKED_ROWS), carried=carried, steps=steps)

        return NetGraphs([step], compare, state_of(step), start_values(step))

    def learn_ngrams(self, ids: Array) -> None:
        """Take the n-grams of a text for features, if the settings want any; their weights are zero."""
        if self.config.maxent is not None:
            self._attach(
                collect_ngrams(
                    ids,
                    order=self.config.maxent,
                    symbols=self.head.symbols(),
                    reset_lines=self.reset_lines,
                    max_ngrams=self.config.maxent_size,
                )
            )

    def take_ngrams(self, tensors: Mapping[str, Array]) -> None:
        """Take the features, not yet their weights, that a model with these tensors had."""
        names = [f"maxent.{name}" for name in NgramTable._fields]
        if self.config.maxent is not None and all(name in tensors for name in names):
            self._attach(NgramTable(*(np.array(tensors[name]) for name in names)))

    def _attach(self, table: NgramTable) -> None:
        assert self.config.maxent is not None
        self.maxent = Maxent(table, order=self.config.maxent, dtype=self.embedding.weight.dtype).to(self.device)

    def start(self, rows: int) -> NeuralState:
        """As if the end of a line had just been read."""
        with torch.inference_mode():
            return self._begin(self.start_training(rows))

    def vectors(self, tokens: Array, lengths: Array) -> list[LayerVectors]:
        """What each layer makes of all that was read up to a token; the first is the words. tokens (B, T)"""
        tokens_TB = self._to_ids(tokens).t()
        start_1B = torch.full_like(tokens_TB[:1], EOS_ID)
        layers, _ = self._layer_vectors(torch.cat([start_1B, tokens_TB]), self._start_layers(len(tokens)))
        return [LayerVectors(values[1:]) for values in layers]

    def vector_pieces(self, tokens: Array, size: int) -> Iterator[list[LayerVectors]]:
        """`vectors` of one row, so many tokens at a time, what is carried going on from piece to piece. tokens (T,)"""
        tokens_T1 = self._to_ids(tokens[None]).t()
        with torch.inference_mode():
            _, carried = self._layer_vectors(torch.full_like(tokens_T1[:1], EOS_ID), self._start_layers(1))
        for begin in range(0, len(tokens_T1), size):
            with torch.inference_mode():
                layers, carried = self._layer_vectors(tokens_T1[begin : begin + size], carried)
            yield [LayerVectors(values) for values in layers]

    def _layer_vectors(self, tokens_TB: Tensor, carried: Carried) -> tuple[list[Tensor], Carried]:
        """The words, and what is there after each layer. -> (T, B, D) each, and what to carry on"""
        words_TBE = self.embedding(tokens_TB)
        layers, after = self.stack.vectors(words_TBE, carried)
        return [words_TBE, *layers], after

    # ----------------------------------------------------------------------------------------------------- recording

    def trace(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        """What `_read` does with words that are vectors already: recorded, for one row, without noise."""
        layers, outputs, _ = self.stack.trace(words_TBE, carried)
        return NetTrace(words_TBE, self._project(outputs[-1]), layers, outputs if layers else [])

    def explain(self, tokens: Array, state: NeuralState) -> Trace:
        """Read tokens (T,) with recording on. What is recorded is after a token, its log-probability from before."""
        with torch.inference_mode():
            tokens_T1 = self._to_ids(tokens)[:, None]
            traced = self.trace(self.embedding(tokens_T1), self._of_layers(state.carried))
            features_TBP = torch.cat([state.features[None], traced.features[:-1]])
            histories = None
            if self.maxent is not None:
                histories = self.maxent.find(torch.cat([state.carried[-1].t(), tokens_T1[:-1]]))[:, 0]
            log_probs = self.head.score(features_TBP[:, 0], tokens_T1[:, 0], self._ngrams(histories))
            arrays = {"embeddings": self._to_numpy(traced.words[:, 0])} | layer_arrays(traced.layers, traced.outputs)
            return Trace(self._to_numpy(log_probs), arrays)

    def kinds(self) -> tuple[str, ...]:
        """Kinds of explanations that show its layers."""
        return ("states",)

    def words_read(self, tokens: Array) -> Tensor:
        """The vectors of what is read to predict tokens (T,): the start symbol, then all but the last. -> (T, 1, E)"""
        words: Tensor = self.embedding(self._read_for(tokens))
        return words

    def trace_text(self, tokens: Array, words_TBE: Tensor) -> tuple[NetTrace, Tensor]:
        """A text (T,) from its beginning, and the log-probabilities of all tokens at each place, (T, V).

        words_TBE: what is read, as `words_read` gives it, changed or cut off. Gradients flow as they are switched.
        """
        carried = self.start_training(1)
        traced = self.trace(words_TBE, self._of_layers(carried))
        histories = None
        if self.maxent is not None:
            read_XB = torch.cat([carried[-1].t(), self._read_for(tokens)[: len(words_TBE)]])
            histories = self.maxent.find(read_XB[1:])[:, 0]
        return traced, self.head.log_probs(traced.features[:, 0], self._ngrams(histories))

    def _read_for(self, tokens: Array) -> Tensor:
        tokens_T1 = self._to_ids(tokens)[:, None]
        return torch.cat([torch.full_like(tokens_T1[:1], EOS_ID), tokens_T1[:-1]])

    def _of_layers(self, carried: Carried) -> Carried:
        """Without the words that n-gram features look back to."""
        return carried if self.maxent is None else carried[:-1]

    # ------------------------------------------------------------------------------------------------------ training

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried) -> tuple[Loss, Carried]:
        """See `StreamNet`."""
        read = self._read_for_targets(inputs, targets, lengths, state)
        mean, nats = self.head.loss(read.features, read.targets, is_noisy=self.training, extra=read.extra)
        total = mean if read.penalty is None else mean + read.penalty.mean()
        is_likelihood = not (self.training and self.head.is_sampled)
        return Loss(total, nats.detach(), len(read.targets), is_likelihood), read.carried

    def target_log_probs(
        self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried
    ) -> tuple[Tensor, Carried]:
        """The log-probability of each target, without gradients, row after row at each time, and the new state. -> (N,)"""
        read = self._read_for_targets(inputs, targets, lengths, state)
        return self.head.score(read.features, read.targets, read.extra), read.carried

    def _read_for_targets(
        self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried
    ) -> _ReadForTargets:
        """Read the inputs of a batch; of what is left after padding is taken out, all that a loss needs."""
        reading = self._read_tokens(inputs.t(), state, is_noisy=self.training)
        features_NP = reading.features.flatten(0, 1)
        targets_N = targets.t().flatten()
        histories_NK = None if reading.histories is None else reading.histories.flatten(0, 1)
        penalty_N = None if reading.penalty is None else reading.penalty.flatten()
        carried = tuple(leaf.detach().to(own.dtype) for leaf, own in zip(reading.carried, state, strict=True))
        if lengths is not None:
            times = torch.arange(inputs.shape[1], device=inputs.device)
            real = (times[:, None] < lengths[None, :]).flatten().nonzero()[:, 0]
            features_NP, targets_N = features_NP.index_select(0, real), targets_N[real]
            penalty_N = None if penalty_N is None else penalty_N[real]
            histories_NK = None if histories_NK is None else histories_NK[real]
            carried = self.start_training(len(inputs))
        return _ReadForTargets(features_NP, targets_N, self._ngrams(histories_NK), penalty_N, carried)

    @classmethod
    def from_tensors(cls, config: L, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, config.family)
        config = config.model_copy(update={"embedding": words.shape[1] or None})
        model = cls(config, NetInputs.to_load(words, vocab_size), reset_lines=reset_lines)
        model.take_ngrams(tensors)
        model.load_tensors(tensors)
        return model
