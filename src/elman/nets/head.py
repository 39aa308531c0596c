"""The base class of output heads."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Module

from elman.nets.maxent import SparseLogits
from elman.nets.ngrams import HeadSymbols


class Head(Module):
    """Maps features to a distribution over words. N rows · P features · V words

    All logits are divided by a temperature, 1 until it is fitted; it is part of the model, in training too. `extra` is
    added to the logits of each row: the weights of n-gram features.
    """

    is_sampled: ClassVar[bool] = False  # in training its loss is that of a sampled criterion, no -log p
    log_temperature: Tensor

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

    @abstractmethod
    def score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of each row's target, without gradients. -> (N,)"""

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
        return math.exp(-self.log_temperature.item())
