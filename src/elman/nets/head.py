"""The base class of output heads."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Module

from elman.core.errors import DataError
from elman.nets.int8 import Int8Matrix
from elman.nets.maxent import SparseLogits
from elman.nets.ngrams import HeadSymbols

SCORED_ROWS = 256  # whose distributions are in memory at once


class Head(Module):
    """Maps features to a distribution over words. N rows · P features · V words

    All logits are divided by a temperature, 1 until it is fitted; it is part of the model, in training too. `extra` is
    added to the logits of each row: the weights of n-gram features.
    """

    int8_weights: ClassVar[tuple[str, ...]] = ("weight",)
    is_sampled: ClassVar[bool] = False  # in training its loss is that of a sampled criterion, no -log p
    log_temperature: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("log_temperature", torch.zeros((), dtype=torch.float64))

    @abstractmethod
    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""

    @abstractmethod
    def symbols(self) -> HeadSymbols:
        """The columns of logits that each word uses."""

    @abstractmethod
    def log_probs(self, features_NP: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of every word. -> (N, V)"""

    def score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of each row's target, without gradients. -> (N,)"""
        if not isinstance(self.weight, Int8Matrix):
            return self._score(features_NP, targets_N, extra)
        found = features_NP.new_empty(len(targets_N))
        for rows in torch.arange(len(targets_N), device=targets_N.device).split(SCORED_ROWS):
            log_probs_RV = self.log_probs(features_NP[rows], None if extra is None else extra.select(rows))
            found[rows] = log_probs_RV.gather(1, targets_N[rows, None])[:, 0]
        return found

    @abstractmethod
    def _score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None) -> Tensor:
        """`score`, of weights that are no 8-bit integers."""

    @abstractmethod
    def loss(
        self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool, extra: SparseLogits | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), with a gradient, and the sum in float64, without one.

        A head with a sampled criterion returns that criterion in both if `is_noisy` (in training).
        """

    @abstractmethod
    def multiply_adds(self) -> float:
        """Multiply-adds of the matrix products for one row, forward."""

    @property
    def scale(self) -> float:
        """The factor of the logits: 1 / temperature."""
        try:
            return math.exp(-self.log_temperature.item())
        except OverflowError:
            what = "the temperature of the softmax is out of range: the model is damaged, or its training diverged"
            raise DataError(what, code="damaged-model") from None

    def _scaled(self, logits: Tensor) -> Tensor:
        """Logits divided by the temperature; in an exported graph, where no tensor has a value yet, by a tensor."""
        if torch.compiler.is_exporting():
            return logits * (-self.log_temperature).exp().to(logits.dtype)
        return logits * self.scale
