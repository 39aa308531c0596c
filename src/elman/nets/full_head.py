"""The exact softmax over all words, never holding the logits of more than a few rows.

V words · H features · N rows · R rows of one chunk
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Module, Parameter

# Logits of one chunk: about what the last level of cache holds, so that softmax and both products find them there.
CHUNK_ELEMENTS = 4_000_000
MIN_ROWS, MAX_ROWS = 256, 1024  # fewer rows starve the matrix products, more gain nothing


class FullHead(Module):
    """log p(word) = (W h + b) / temperature, normalised. Ties the words to W where one is handed in."""

    log_temperature: Tensor

    def __init__(self, features: int, vocab_size: int, *, tied: Parameter | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = Parameter(torch.zeros(vocab_size, features, dtype=dtype)) if tied is None else tied
        self.bias = Parameter(torch.zeros(vocab_size, dtype=dtype))
        self.register_buffer("log_temperature", torch.zeros((), dtype=torch.float64))
        self._is_tied = tied is not None

    def initialise(self, rng: torch.Generator) -> None:
        """Small weights, so that the first prediction is nearly uniform; a tied matrix is the embedding's business."""
        with torch.no_grad():
            if not self._is_tied:
                self.weight.uniform_(-0.05, 0.05, generator=rng)
            self.bias.zero_()

    def log_probs(self, features_NH: Tensor) -> Tensor:
        """Log-probability of every word. -> (N, V)"""
        scale = math.exp(-self.log_temperature.item())
        return F.log_softmax(F.linear(features_NH, self.weight, self.bias).mul_(scale), dim=1)

    def score(self, features_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Log-probability of each row's target, without gradients. -> (N,)"""
        scale = math.exp(-self.log_temperature.item())
        with torch.no_grad():
            return _score(features_NH, self.weight, self.bias, targets_N, scale)

    def loss(self, features_NH: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), with its gradient, and the plain sum in float64."""
        scale = math.exp(-self.log_temperature.item())
        if not torch.is_grad_enabled():
            nats_N = -_score(features_NH, self.weight, self.bias, targets_N, scale)
        else:
            mean, nats_N = _CrossEntropy.apply(features_NH, self.weight, self.bias, targets_N, scale)  # type: ignore[no-untyped-call]
        nats = nats_N.sum(dtype=torch.float64)
        return (mean if torch.is_grad_enabled() else (nats / len(targets_N)).to(nats_N.dtype)), nats

    def multiply_adds(self) -> float:
        """Of one row, forward."""
        return float(self.weight.numel())


def _chunks(num_rows: int, vocab_size: int) -> list[tuple[int, int]]:
    """Rows from, to: chunks of nearly equal size, as few as the cache allows."""
    most = min(MAX_ROWS, max(MIN_ROWS, CHUNK_ELEMENTS // vocab_size))
    count = max(1, -(-num_rows // most))
    edges = [num_rows * i // count for i in range(count + 1)]
    return list(zip(edges, edges[1:], strict=False))


def _logits(space: Tensor, rows_RH: Tensor, weight_VH: Tensor, bias_V: Tensor, scale: float) -> Tensor:
    """A chunk's logits, words first: the product is faster that way round by a tenth. -> (V, R)"""
    logits_VR = space[: len(weight_VH) * len(rows_RH)].view(len(weight_VH), len(rows_RH))
    return torch.addmm(bias_V[:, None], weight_VH, rows_RH.t(), beta=scale, alpha=scale, out=logits_VR)


def _score(features_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, scale: float) -> Tensor:
    log_probs_N = features_NH.new_empty(len(features_NH))
    chunks = _chunks(len(features_NH), len(weight_VH))
    space = features_NH.new_empty(max(end - start for start, end in chunks) * len(weight_VH))
    for start, end in chunks:
        logits_VR = _logits(space, features_NH[start:end], weight_VH, bias_V, scale)
        torch.log_softmax(logits_VR, 0, out=logits_VR)
        log_probs_N[start:end] = logits_VR.gather(0, targets_N[None, start:end])[0]
    return log_probs_N


class _CrossEntropy(torch.autograd.Function):
    """Mean -log p(target) whose gradient is made on the way forward, in the place where the logits were."""

    @staticmethod
    def forward(
        ctx: Any, features_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        num_rows, vocab_size = len(features_NH), len(weight_VH)
        grad_NH = torch.empty_like(features_NH) if ctx.needs_input_grad[0] else None
        grad_VH = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        grad_V = torch.zeros_like(bias_V) if ctx.needs_input_grad[2] else None
        probs_N = features_NH.new_empty(num_rows)
        chunks = _chunks(num_rows, vocab_size)
        space = features_NH.new_empty(max(end - start for start, end in chunks) * vocab_size)
        share = scale / num_rows  # d mean / d logit = (p - [word is target]) * share
        for start, end in chunks:
            rows_RH = features_NH[start:end]
            targets_1R = targets_N[None, start:end]
            probs_VR = _logits(space, rows_RH, weight_VH, bias_V, scale)
            torch.softmax(probs_VR, 0, out=probs_VR)
            probs_N[start:end] = probs_VR.gather(0, targets_1R)[0]
            errors_VR = probs_VR.scatter_add_(0, targets_1R, probs_VR.new_full((1, 1), -1.0).expand(1, end - start))
            if grad_NH is not None:
                torch.addmm(grad_NH[start:end], errors_VR.t(), weight_VH, beta=0, alpha=share, out=grad_NH[start:end])
            if grad_VH is not None:
                torch.addmm(grad_VH, errors_VR, rows_RH, beta=0 if start == 0 else 1, alpha=share, out=grad_VH)
            if grad_V is not None:
                grad_V.add_(errors_VR.sum(1), alpha=share)
        nats_N = -probs_N.log()
        small = (probs_N < 1e-30).nonzero()[:, 0]  # denormal or 0: the logarithm has to come from the logits
        if len(small):
            nats_N[small] = -_score(features_NH[small], weight_VH, bias_V, targets_N[small], scale)
        ctx.grads = (grad_NH, grad_VH, grad_V)
        ctx.mark_non_differentiable(nats_N)
        ctx.set_materialize_grads(False)
        return nats_N.mean(), nats_N

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_mean: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None  # given away: whoever accumulates them need not copy
        if grad_mean is None:
            return None, None, None, None, None
        if grads is None:
            raise RuntimeError("the gradient of a chunked cross-entropy can be taken only once")
        factor = grad_mean.item()
        if factor != 1:
            for grad in grads:
                if grad is not None:
                    grad.mul_(factor)
        return *grads, None, None
