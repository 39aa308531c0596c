"""Softmax cross-entropy in chunks of rows, with the gradient computed in the forward pass.

Done naively, logits, probabilities and their gradient are three tensors of rows x words that no cache holds; written
once, a few rows at a time, the same products take two thirds of the time. V words · H features · N rows · R of a chunk

Under `torch.autocast` the factors of the products are rounded to its type; logits, probabilities and the gradients of weights
keep the type of the weights.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.nets.maxent import SparseLogits, add_entries, add_gradient

# Logits of one chunk: 30 MB, which fit the last-level cache and are reused by the allocator from step to step. Below 448
# rows the matrix products are inefficient (10% slower at 224), so large vocabularies take more memory, up to 128 MB.
CHUNK_ELEMENTS, MAX_ELEMENTS = 7_600_000, 32_000_000
MIN_ROWS, MAX_ROWS = 448, 2048
CACHE_LINE = 16  # floats per cache line; rows of logits that were not aligned to it made their product a third slower
TOO_SMALL = 1e-30  # a probability this near the smallest float32 has lost precision


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
    log_probs_N = weight_VH.new_empty(len(features_NH))
    buffer = LogitBuffer(features_NH, len(weight_VH), dtype=weight_VH.dtype)
    with torch.no_grad():
        for first, last in buffer.chunks:
            rows_RH = features_NH[first:last].to(weight_VH.dtype)
            logits_RW = buffer.products(rows_RH, weight_VH, bias_V, alpha=scale, beta=scale)
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
    """The sum of -log softmax(scale (W h + b + extra)) at the targets over `divisor`; and each row's, without gradient."""
    if torch.is_grad_enabled():
        losses: tuple[Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            rounded(features_NH),
            weight_VH,
            bias_V,
            None if extra is None else extra.weight,
            targets_N,
            extra,
            scale,
            divisor,
        )
        return losses
    nats_N = -target_log_probs(features_NH, weight_VH, bias_V, targets_N, scale=scale, extra=extra)
    return nats_N.sum() / divisor, nats_N


def rounded(features: Tensor) -> Tensor:
    """In the type that autocast computes products in, where it is on."""
    kind = features.device.type
    return features.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else features


def add_product_(total: Tensor, left: Tensor, right: Tensor, *, alpha: float, is_first: bool = False) -> None:
    """total += alpha left @ right, or = where it is the first. The factors may be of fewer bits than the total."""
    if total.dtype == left.dtype:
        torch.addmm(total, left, right, beta=0 if is_first else 1, alpha=alpha, out=total)
    elif is_first:
        torch.mul(left @ right, alpha, out=total)
    else:
        total.add_(left @ right, alpha=alpha)


class _CrossEntropy(torch.autograd.Function):
    """The gradient is written over the logits in the forward pass, so backward works only once."""

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
        probs_N = weight_VH.new_empty(len(features_NH))
        ones_N = torch.ones_like(probs_N)
        factor_VH = weight_VH.to(features_NH.dtype)
        buffer = LogitBuffer(features_NH, len(weight_VH), dtype=weight_VH.dtype)
        share = scale / divisor  # d loss / d (W h + b) = (p - [word is target]) * share
        for first, last in buffer.chunks:
            rows_RH, targets_R1 = features_NH[first:last], targets_N[first:last, None]
            probs_RW = buffer.products(rows_RH, factor_VH, bias_V, alpha=scale, beta=scale)
            if extra is not None and ngrams_F is not None:
                entries = extra.entries(first, last)
                places_M = add_entries(probs_RW, entries, ngrams_F, scale=scale)
            torch.softmax(probs_RW, 1, out=probs_RW)
            probs_N[first:last] = probs_RW.gather(1, targets_R1)[:, 0]
            probs_RW.scatter_add_(1, targets_R1, probs_RW.new_full((last - first, 1), -1.0))
            errors_RV = probs_RW[:, : len(weight_VH)]
            factor_RV = errors_RV.to(features_NH.dtype)
            if grad_NH is not None:
                add_product_(grad_NH[first:last], factor_RV, factor_VH, alpha=share, is_first=True)
            if grad_VH is not None:
                add_product_(grad_VH, factor_RV.t(), rows_RH, alpha=share, is_first=first == 0)
            if grad_V is not None:
                torch.addmv(grad_V, errors_RV.t(), ones_N[first:last], alpha=share, out=grad_V)
            if grad_F is not None:
                add_gradient(grad_F, entries, places_M, probs_RW, share=share)
        nats_N = -probs_N.log()
        small = (probs_N < TOO_SMALL).nonzero()[:, 0]
        if len(small):
            small_extra = None if extra is None else extra.select(small)
            nats_N[small] = -target_log_probs(
                features_NH[small], weight_VH, bias_V, targets_N[small], scale=scale, extra=small_extra
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
        grads, ctx.grads = ctx.grads, None  # moved, so that autograd need not copy them
        if grads is None:
            raise RuntimeError("backward through a chunked cross-entropy works only once")
        factor = grad.item()
        if factor != 1:
            for one in grads:
                if one is not None:
                    one.mul_(factor)
        return *grads, None, None, None, None


class LogitBuffer:
    """A buffer for the logits of a chunk, reused for every chunk. W: the columns, rounded up to whole cache lines."""

    def __init__(self, features_NH: Tensor, columns: int, *, dtype: torch.dtype) -> None:
        width = -(-columns // CACHE_LINE) * CACHE_LINE
        if width % 256 == 0:
            width += CACHE_LINE  # rows a power of two apart would map to the same cache sets
        self.chunks = _chunks(len(features_NH), columns)
        rows = max((last - first for first, last in self.chunks), default=0)
        self._logits = features_NH.new_empty(rows, width, dtype=dtype)

    def products(
        self, rows_RH: Tensor, weight_VH: Tensor, bias_V: Tensor, *, alpha: float, beta: float = 1.0
    ) -> Tensor:
        """alpha W h + beta b of some rows, -inf in the padding columns. -> (R, W)"""
        logits_RW = self._logits[: len(rows_RH)]
        logits_RV = logits_RW[:, : len(weight_VH)]
        if logits_RW.dtype == rows_RH.dtype:
            torch.addmm(bias_V, rows_RH, weight_VH.t(), beta=beta, alpha=alpha, out=logits_RV)
        else:
            torch.add(bias_V * beta, rows_RH @ weight_VH.t(), alpha=alpha, out=logits_RV)
        logits_RW[:, len(weight_VH) :] = -math.inf
        return logits_RW


def _chunks(num_rows: int, vocab_size: int) -> list[tuple[int, int]]:
    """(first, last) rows of each chunk: as few chunks as the cache allows, of nearly equal size."""
    min_rows = min(MIN_ROWS, MAX_ELEMENTS // vocab_size)
    max_rows = min(MAX_ROWS, max(1, min_rows, CHUNK_ELEMENTS // vocab_size))
    count = max(1, -(-num_rows // max_rows))
    size = -(-num_rows // count // CACHE_LINE) * CACHE_LINE
    return [(first, min(first + size, num_rows)) for first in range(0, num_rows, max(1, size))]
