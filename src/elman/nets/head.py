"""What every output head does."""

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
    """Features in, probabilities of words out. N rows · P features · V words

    All logits are divided by a temperature, 1 until it is fitted; it is part of the model, in training too. `extra` is
    added to the logits of each row: what the words just read say for themselves, beside the features.
    """

    is_sampled: ClassVar[bool] = False  # in training its loss is that of a sampled criterion, no -log p
    log_temperature: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("log_temperature", torch.zeros((), dtype=torch.float64))

    @abstractmethod
    def initialise(self, rng: torch.Generator) -> None:
        """Draw the weights to begin with."""

    @abstractmethod
    def symbols(self) -> HeadSymbols:
        """The columns of logits that each word stands for."""

    @abstractmethod
    def log_probs(self, features_NP: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Of every word. -> (N, V)"""

    @abstractmethod
    def score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of each row's target, without gradients. -> (N,)"""

    @abstractmethod
    def loss(
        self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool, extra: SparseLogits | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), to descend on, and the plain sum in float64, without gradient.

        A head that is trained by another criterion means that one in both while noise is wanted, and this one else.
        """

    @abstractmethod
    def multiply_adds(self) -> float:
        """Of matrix products, for one row, forward."""

    @property
    def scale(self) -> float:
        """What logits are multiplied by."""
        return math.exp(-self.log_temperature.item())
