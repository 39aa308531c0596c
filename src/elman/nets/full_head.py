"""The exact softmax over all words."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Parameter

from elman.core.arrays import Array
from elman.nets.cross_entropy import cross_entropy, target_log_probs
from elman.nets.head import Head
from elman.nets.int8 import linear
from elman.nets.maxent import SparseLogits
from elman.nets.ngrams import HeadSymbols
from elman.nets.sampling import log_frequencies


class FullHead(Head):
    """p = softmax(W h + b). W is its own, or the input embeddings if given as `tied`."""

    def __init__(self, features: int, vocab_size: int, *, tied: Parameter | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._is_tied = tied is not None
        self.weight = Parameter(torch.zeros(vocab_size, features, dtype=dtype)) if tied is None else tied
        self.bias = Parameter(torch.zeros(vocab_size, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Small weights, so that the initial prediction is nearly uniform."""
        with torch.no_grad():
            self.bias.zero_()
            if not self._is_tied:
                self.weight.uniform_(-0.05, 0.05, generator=rng)

    def begin_with(self, counts: Array) -> None:
        """Let the bias predict the unigram distribution. counts: (V,)"""
        with torch.no_grad():
            self.bias.copy_(torch.from_numpy(log_frequencies(counts)))

    def symbols(self) -> HeadSymbols:
        """One column for each word."""
        vocab_size = len(self.bias)
        return HeadSymbols(np.arange(vocab_size), np.full(vocab_size, -1), np.array([0, vocab_size]))

    def log_probs(self, features_NP: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of every word. -> (N, V)"""
        logits_NV = linear(features_NP, self.weight, self.bias)
        if extra is not None:
            logits_NV = logits_NV + extra.dense(len(self.bias))
        return F.log_softmax(self._scaled(logits_NV), dim=1)

    def _score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None) -> Tensor:
        return target_log_probs(features_NP, self.weight, self.bias, targets_N, scale=self.scale, extra=extra)

    def loss(
        self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool, extra: SparseLogits | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), with a gradient, and the sum in float64."""
        mean, nats_N = cross_entropy(
            features_NP, self.weight, self.bias, targets_N, scale=self.scale, divisor=len(targets_N), extra=extra
        )
        return mean, nats_N.sum(dtype=torch.float64)

    def multiply_adds(self) -> float:
        """Multiply-adds for one row, forward."""
        return float(self.weight.numel())
