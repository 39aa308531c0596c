"""The exact softmax over all words."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Parameter

from elman.nets.cross_entropy import cross_entropy, target_log_probs
from elman.nets.head import Head


class FullHead(Head):
    """p = softmax(W h + b). W is its own, or the input words' vectors where they are handed in as `tied`."""

    def __init__(self, features: int, vocab_size: int, *, tied: Parameter | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._is_tied = tied is not None
        self.weight = Parameter(torch.zeros(vocab_size, features, dtype=dtype)) if tied is None else tied
        self.bias = Parameter(torch.zeros(vocab_size, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Small weights, so that the first prediction is nearly uniform."""
        with torch.no_grad():
            self.bias.zero_()
            if not self._is_tied:
                self.weight.uniform_(-0.05, 0.05, generator=rng)

    def log_probs(self, features_NP: Tensor) -> Tensor:
        """Of every word. -> (N, V)"""
        return F.log_softmax(F.linear(features_NP, self.weight, self.bias) * self.scale, dim=1)

    def score(self, features_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Log-probability of each row's target, without gradients. -> (N,)"""
        return target_log_probs(features_NP, self.weight, self.bias, targets_N, scale=self.scale)

    def loss(self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), to descend on, and the plain sum in float64."""
        mean, nats_N = cross_entropy(
            features_NP, self.weight, self.bias, targets_N, scale=self.scale, divisor=len(targets_N)
        )
        return mean, nats_N.sum(dtype=torch.float64)

    def multiply_adds(self) -> float:
        """Of one row, forward."""
        return float(self.weight.numel())
