"""Softmax cross-entropy that never holds the logits of more than a few rows, and makes its gradient on the way.

Plainly done, logits, probabilities and their gradient are three tensors of rows x words that no cache holds; written
once, a few rows at a time, the same products take two thirds of the time. V words · H features · N rows · R of a chunk
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.nets.maxent import SparseLogits, add_entries, add_gradient

# Logits of one chunk: 30 MB, what the last level of cache holds and the allocator keeps from step to step. With fewer
# rows than 448 the matrix products starve (10% slower at 224), so large vocabularies take more, up to 128 MB.
CHUNK_ELEMENTS, MOST_ELEMENTS = 7_600_000, 32_000_000
ENOUGH_ROWS, MAX_ROWS = 448, 2048
CACHE_LINE = 16  # floats; rows of logits that begin in the middle of one made their product a third slower
TOO_SMALL = 1e-30  # a probability near the smallest float32 has lost its digits


def target_log_probs(
    features_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    *,
    scale: float,
    extra: SparseLogits | None = None,
) -> Tensor:
    """log softmax(scale (W h + b + extra)) at each row's target, without gradients. -> (N,)"""
    log_probs_N = features_NH.new_empty(len(features_NH))
    space = LogitSpace(features_NH, len(weight_VH))
    with torch.no_grad():
        for first, last in space.chunks:
            logits_RW = space.products(features_NH[first:last], weight_VH, bias_V, alpha=scale, beta=scale)
            if extra is not None:
                add_entries(logits_RW, extra.entries(first, last), extra.weight, scale=scale)
            torch.log_softmax(logits_RW, 1, out=logits_RW)
            log_probs_N[first:last] = logits_RW.gather(1, targets_N[first:last, None])[:, 0]
    return log_probs_N


def cross_entropy(
    features_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    *,
    scale: float,
    divisor: int,
    extra: SparseLogits | None = None,
) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(scale (W h + b + extra)) at the targets, divided by `divisor`; and each row's, no gradient."""
    if torch.is_grad_enabled():
        found: tuple[Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            features_NH, weight_VH, bias_V, None if extra is None else extra.weight, targets_N, extra, scale, divisor
        )
        return found
    nats_N = -target_log_probs(features_NH, weight_VH, bias_V, targets_N, scale=scale, extra=extra)
    return nats_N.sum() / divisor, nats_N


class _CrossEntropy(torch.autograd.Function):
    """The gradient is made where the logits were, and can be taken once: it is handed on, not kept."""

    @staticmethod
    def forward(
        ctx: Any,
        features_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        ngrams_F: Tensor | None,
        targets_N: Tensor,
        extra: SparseLogits | None,
        scale: float,
        divisor: int,
    ) -> tuple[Tensor, Tensor]:
        grad_NH = torch.empty_like(features_NH) if ctx.needs_input_grad[0] else None
        grad_VH = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        grad_V = torch.zeros_like(bias_V) if ctx.needs_input_grad[2] else None
        grad_F = None if ngrams_F is None else torch.zeros_like(ngrams_F)
        probs_N = features_NH.new_empty(len(features_NH))
        ones_N = torch.ones_like(probs_N)
        space = LogitSpace(features_NH, len(weight_VH))
        share = scale / divisor  # d loss / d (W h + b) = (p - [word is target]) * share
        for first, last in space.chunks:
            rows_RH, targets_R1 = features_NH[first:last], targets_N[first:last, None]
            probs_RW = space.products(rows_RH, weight_VH, bias_V, alpha=scale, beta=scale)
            if extra is not None and ngrams_F is not None:
                entries = extra.entries(first, last)
                places_M = add_entries(probs_RW, entries, ngrams_F, scale=scale)
            torch.softmax(probs_RW, 1, out=probs_RW)
            probs_N[first:last] = probs_RW.gather(1, targets_R1)[:, 0]
            probs_RW.scatter_add_(1, targets_R1, probs_RW.new_full((last - first, 1), -1.0))
            errors_RV = probs_RW[:, : len(weight_VH)]
            if grad_NH is not None:
                torch.addmm(grad_NH[first:last], errors_RV, weight_VH, beta=0, alpha=share, out=grad_NH[first:last])
            if grad_VH is not None:
                torch.addmm(grad_VH, errors_RV.t(), rows_RH, beta=1 if first else 0, alpha=share, out=grad_VH)
            if grad_V is not None:
                torch.addmv(grad_V, errors_RV.t(), ones_N[first:last], alpha=share, out=grad_V)
            if grad_F is not None:
                add_gradient(grad_F, entries, places_M, probs_RW, share=share)
        nats_N = -probs_N.log()
        small = (probs_N < TOO_SMALL).nonzero()[:, 0]
        if len(small):
            few = None if extra is None else extra.select(small)
            nats_N[small] = -target_log_probs(
                features_NH[small], weight_VH, bias_V, targets_N[small], scale=scale, extra=few
            )
        ctx.grads = (grad_NH, grad_VH, grad_V, grad_F)
        ctx.mark_non_differentiable(nats_N)
        ctx.set_materialize_grads(False)
        return nats_N.sum() / divisor, nats_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        grads, ctx.grads = ctx.grads, None  # handed on: nobody has to copy them
        if grads is None:
            raise RuntimeError("the gradient of a chunked cross-entropy can be taken only once")
        factor = grad.item()
        if factor != 1:
            for own in grads:
                if own is not None:
                    own.mul_(factor)
        return *grads, None, None, None, None


class LogitSpace:
    """Memory for the logits of a chunk, used again for every one. W: the columns, rounded up to whole cache lines."""

    def __init__(self, features_NH: Tensor, columns: int) -> None:
        width = -(-columns // CACHE_LINE) * CACHE_LINE
        if width % 256 == 0:
            width += CACHE_LINE  # rows that are a power of two apart fall into the same few places of a cache
        self.chunks = _chunks(len(features_NH), columns)
        self._logits = features_NH.new_empty(max((last - first for first, last in self.chunks), default=0), width)

    def products(
        self, rows_RH: Tensor, weight_VH: Tensor, bias_V: Tensor, *, alpha: float, beta: float = 1.0
    ) -> Tensor:
        """alpha W h + beta b of some rows, -inf where there is no word. -> (R, W)"""
        logits_RW = self._logits[: len(rows_RH)]
        torch.addmm(bias_V, rows_RH, weight_VH.t(), beta=beta, alpha=alpha, out=logits_RW[:, : len(weight_VH)])
        logits_RW[:, len(weight_VH) :] = -math.inf
        return logits_RW


def _chunks(num_rows: int, vocab_size: int) -> list[tuple[int, int]]:
    """Rows from, to: as few chunks as the cache allows, nearly equal."""
    enough = min(ENOUGH_ROWS, MOST_ELEMENTS // vocab_size)
    most = min(MAX_ROWS, max(1, enough, CHUNK_ELEMENTS // vocab_size))
    count = max(1, -(-num_rows // most))
    size = -(-num_rows // count // CACHE_LINE) * CACHE_LINE
    return [(first, min(first + size, num_rows)) for first in range(0, num_rows, max(1, size))]
