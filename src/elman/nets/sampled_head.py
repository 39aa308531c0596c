"""A full softmax that is trained on sampled words."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from elman.core.arrays import Array
from elman.nets.full_head import FullHead
from elman.nets.maxent import SparseLogits
from elman.nets.noise import draw_alike
from elman.nets.sampled_loss import Drawn, sampled_loss
from elman.nets.sampling import inclusion_chances, log_frequencies


class SampledHead(FullHead):
    """p = softmax(W h + b), exact in prediction and scoring; only training samples words (see sampled_loss.py).

    In training (`is_noisy`), `loss` is the criterion on words drawn for the whole batch, and so is the sum it reports:
    the exact one would cost what sampling saves. Otherwise both are those of the full softmax.

    kind: `sampled`, `nce` or `blackout`. counts: (V,), how often each word was seen; without them `log_chances` must be
    loaded. The bias starts at the log-frequencies of words: `nce`, whose Z is fixed at one, is then normalised from the
    start, and a word that is rarely drawn already has its frequency.
    """

    log_chances: (
        Tensor  # (V,) log-probability of each word to be drawn; saved with the model, so that training can resume
    )

    is_sampled = True

    def __init__(
        self,
        features: int,
        vocab_size: int,
        *,
        kind: str,
        samples: int,
        alpha: float,
        counts: Array | None,
        tied: Parameter | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(features, vocab_size, tied=tied, dtype=dtype)
        self.kind = kind
        self.samples = samples
        counts = np.ones(vocab_size) if counts is None else counts
        chances = np.log(inclusion_chances(counts, samples, alpha))
        self.register_buffer("log_chances", torch.from_numpy(chances).to(dtype))
        self._log_frequencies = torch.from_numpy(log_frequencies(counts)).to(dtype)

    def initialise(self, rng: torch.Generator) -> None:
        """Small weights, so that the initial prediction is nearly the unigram distribution."""
        super().initialise(rng)
        with torch.no_grad():
            self.bias.copy_(self._log_frequencies)

    def draw(self) -> Drawn:
        """Draw the words for one batch, the same for all its rows."""
        log_chances_V = self.log_chances
        draws_V = draw_alike(log_chances_V.shape, dtype=log_chances_V.dtype, device=log_chances_V.device)
        return Drawn((draws_V.log() <= log_chances_V).nonzero()[:, 0], log_chances_V)

    def loss(
        self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool, extra: SparseLogits | None = None
    ) -> tuple[Tensor, Tensor]:
        """In training the mean and sum of the criterion; otherwise the mean of -log p(target) and the sum in float64."""
        if not is_noisy:
            return super().loss(features_NP, targets_N, is_noisy=False, extra=extra)
        mean, nats_N = sampled_loss(
            self.kind, features_NP, self.weight, self.bias, targets_N, self.draw(), scale=self.scale, extra=extra
        )
        return mean, nats_N.sum(dtype=torch.float64)

    def multiply_adds(self) -> float:
        """Multiply-adds for one row in training, forward."""
        return float((self.samples + 1) * self.weight.shape[1])
