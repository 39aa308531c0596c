"""Several nets that are trained side by side and asked together: the mean of their probabilities is better than any of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleList

from elman.core.arrays import Array
from elman.core.tensors import under_prefix
from elman.lm.trace import Trace
from elman.nets.neural_lm import NeuralState
from elman.nets.trainable import Loss, StreamNet
from elman.nets.vocabulary_net import tensors_of
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.tasks.lm.net import NeuralModel


@dataclass(frozen=True)
class CommitteeState:
    """The state of each net."""

    nets: tuple[NeuralState, ...]


class Committee(StreamNet):
    """p = the mean of what the nets say. They read the same batches; weights and dropout are each one's own.

    Its vector for what was read is those of the nets, one after the other. N targets
    """

    def __init__(self, config: RecurrentConfig, nets: Sequence[NeuralModel[Any]]) -> None:
        super().__init__()
        self.config = nets[0].config.model_copy(update={"nets": config.nets})
        self.nets = ModuleList(nets)
        self.vocab_size = nets[0].vocab_size

    @property
    def parts(self) -> list[NeuralModel[Any]]:
        """The nets."""
        return cast(list[NeuralModel[Any]], list(self.nets))

    # --------------------------------------------------------------------------------------------- as a language model

    def start(self, rows: int) -> CommitteeState:
        """As if the end of a line had just been read."""
        return CommitteeState(tuple(net.start(rows) for net in self.parts))

    def predict(self, state: CommitteeState) -> Array:
        """-> (B, V)"""
        return _mean(np.stack([net.predict(part) for net, part in zip(self.parts, state.nets, strict=True)]))

    def advance(self, tokens: Array, state: CommitteeState) -> CommitteeState:
        """Read one token per row."""
        pairs = zip(self.parts, state.nets, strict=True)
        return CommitteeState(tuple(net.advance(tokens, part) for net, part in pairs))

    def join(self, states: Sequence[CommitteeState]) -> CommitteeState:
        """The rows of several states as one batch."""
        return CommitteeState(tuple(net.join([state.nets[i] for state in states]) for i, net in enumerate(self.parts)))

    def score(self, tokens: Array, lengths: Array, state: CommitteeState) -> tuple[Array, CommitteeState]:
        """Log-probability of each token, 0 at padding, and the new state."""
        scored = [net.score(tokens, lengths, part) for net, part in zip(self.parts, state.nets, strict=True)]
        return _mean(np.stack([nats for nats, _ in scored])), CommitteeState(tuple(part for _, part in scored))

    def features(self, state: CommitteeState) -> Array:
        """The hidden vectors that the output heads read. -> (B, P)"""
        return np.concatenate([net.features(part) for net, part in zip(self.parts, state.nets, strict=True)], axis=-1)

    def score_features(
        self, tokens: Array, lengths: Array, state: CommitteeState
    ) -> tuple[Array, Array, CommitteeState]:
        """Like `score`, with the features that each token was predicted from in the middle, 0 at padding, (B, T, P)."""
        scored = [net.score_features(tokens, lengths, part) for net, part in zip(self.parts, state.nets, strict=True)]
        nats, features, after = zip(*scored, strict=True)
        return _mean(np.stack(nats)), np.concatenate(features, axis=-1), CommitteeState(after)

    def explain(self, tokens: Array, state: CommitteeState) -> Trace:
        """The log-probabilities; the nets' layers are each net's own."""
        log_probs, _ = self.score(tokens[None], np.array([len(tokens)]), state)
        return Trace(log_probs[0], {})

    # -------------------------------------------------------------------------------------------------------- training

    def start_training(self, rows: int) -> tuple[Tensor, ...]:
        """What each net's stream carries, one after the other."""
        return tuple(leaf for net in self.parts for leaf in net.start_training(rows))

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Any) -> tuple[Loss, Any]:
        """Where a gradient is wanted, the sum of the nets' losses, and their mean to report; else the cost by the mean net."""
        parts = zip(self.parts, self._split(state), strict=True)
        if not torch.is_grad_enabled():
            scored = [net.target_log_probs(inputs, targets, lengths, part) for net, part in parts]
            log_probs_N = torch.logsumexp(torch.stack([each for each, _ in scored]), 0) - math.log(len(self.nets))
            nats = -log_probs_N.sum(dtype=torch.float64)
            loss = Loss(nats / len(log_probs_N), nats, len(log_probs_N))
            return loss, tuple(leaf for _, after in scored for leaf in after)
        found = [net.loss(inputs, targets, lengths, part) for net, part in parts]
        losses = [loss for loss, _ in found]
        total = torch.stack([loss.total for loss in losses]).sum()
        nats = torch.stack([loss.nats for loss in losses]).mean()
        carried = tuple(leaf for _, after in found for leaf in after)
        return Loss(total, nats, losses[0].tokens, losses[0].is_likelihood), carried

    def _split(self, state: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        sizes = [len(net.start_training(0)) for net in self.parts]
        edges = np.cumsum([0, *sizes]).tolist()
        return [tuple(state[first:last]) for first, last in pairwise(edges)]

    def learn_ngrams(self, ids: Array) -> None:
        """The features of every net."""
        for net in self.parts:
            net.learn_ngrams(ids)

    def count_flops(self) -> float:
        """Multiply-adds of the matrix products for one token, forward."""
        return sum(net.count_flops() for net in self.parts)

    # ----------------------------------------------------------------------------------------------- saved and restored

    def tensors(self) -> dict[str, Array]:
        """Those of each net, under `nets.0.`, `nets.1.`, ..."""
        return tensors_of(self)

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Restore the weights from what `tensors()` returned."""
        for i, net in enumerate(self.parts):
            net.load_tensors(under_prefix(tensors, f"nets.{i}."))

    @classmethod
    def from_tensors(
        cls, config: RecurrentConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> Self:
        """The nets whose settings and `tensors()` these were."""
        one = config.model_copy(update={"nets": 1})
        parts = (under_prefix(tensors, f"nets.{i}.") for i in range(config.nets))
        nets = [
            RecurrentModel.from_tensors(one, part, vocab_size=vocab_size, reset_lines=reset_lines) for part in parts
        ]
        return cls(config, nets)


def _mean(log_probs_MBT: Array) -> Array:
    """The log of the mean probability. (M, ...) -> (...) float32"""
    best = log_probs_MBT.max(axis=0)
    base = np.where(np.isneginf(best), np.float32(0), best)
    with np.errstate(divide="ignore"):
        return np.asarray(base + np.log(np.exp(log_probs_MBT - base).mean(axis=0)), np.float32)
