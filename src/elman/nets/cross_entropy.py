"""Softmax cross-entropy that never holds the logits of more than a few rows, and makes its gradient on the way.

Plainly done, logits, probabilities and their gradient are three tensors of rows x words that no cache holds; written
once, a few rows at a time, the same products take two thirds of the time. V words · H features · N rows · R of a chunk
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Logits of one chunk: what the last level of cache holds beside the weights, so that softmax and both products find
# them there. Fewer rows starve the matrix products, more gain nothing.
CHUNK_ELEMENTS = 4_000_000
MIN_ROWS, MAX_ROWS = 256, 2048
ROW_MULTIPLE = 64  # rows of a chunk: 373 instead of 384 made the products a third slower
TOO_SMALL = 1e-30  # a probability near the smallest float32 has lost its digits


def target_log_probs(
    features_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, *, scale: float
) -> Tensor:
    """log softmax(scale (W h + b)) at each row's target, without gradients. -> (N,)"""
    chunks = _chunks(len(features_NH), len(weight_VH))
    space = _space(features_NH, weight_VH, chunks)
    probs_N = features_NH.new_empty(len(features_NH))
    with torch.no_grad():
        for first, last in chunks:
            probs_VR = _probs(space, features_NH[first:last], weight_VH, bias_V, scale)
            probs_N[first:last] = probs_VR.gather(0, targets_N[None, first:last])[0]
        return _log_probs(probs_N, features_NH, weight_VH, bias_V, targets_N, scale)


def cross_entropy(
    features_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, *, scale: float, divisor: int
) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(scale (W h + b)) at the targets, divided by `divisor`; and each row's, without gradient."""
    if torch.is_grad_enabled():
        found: tuple[Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            features_NH, weight_VH, bias_V, targets_N, scale, divisor
        )
        return found
    nats_N = -target_log_probs(features_NH, weight_VH, bias_V, targets_N, scale=scale)
    return nats_N.sum() / divisor, nats_N


class _CrossEntropy(torch.autograd.Function):
    """The gradient is made where the logits were, and can be taken once: it is handed on, not kept."""

    @staticmethod
    def forward(
        ctx: Any,
        features_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        scale: float,
        divisor: int,
    ) -> tuple[Tensor, Tensor]:
        grad_NH = torch.empty_like(features_NH) if ctx.needs_input_grad[0] else None
        grad_VH = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        grad_V = torch.zeros_like(bias_V) if ctx.needs_input_grad[2] else None
        probs_N = features_NH.new_empty(len(features_NH))
        chunks = _chunks(len(features_NH), len(weight_VH))
        space = _space(features_NH, weight_VH, chunks)
        share = scale / divisor  # d loss / d (W h + b) = (p - [word is target]) * share
        for first, last in chunks:
            rows_RH = features_NH[first:last]
            targets_1R = targets_N[None, first:last]
            probs_VR = _probs(space, rows_RH, weight_VH, bias_V, scale)
            probs_N[first:last] = probs_VR.gather(0, targets_1R)[0]
            errors_VR = probs_VR.scatter_add_(0, targets_1R, probs_VR.new_full((1, last - first), -1.0))
            if grad_NH is not None:
                torch.addmm(grad_NH[first:last], errors_VR.t(), weight_VH, beta=0, alpha=share, out=grad_NH[first:last])
            if grad_VH is not None:
                torch.addmm(grad_VH, errors_VR, rows_RH, beta=1 if first else 0, alpha=share, out=grad_VH)
            if grad_V is not None:
                grad_V.add_(errors_VR.sum(1), alpha=share)
        nats_N = -_log_probs(probs_N, features_NH, weight_VH, bias_V, targets_N, scale)
        ctx.grads = (grad_NH, grad_VH, grad_V)
        ctx.mark_non_differentiable(nats_N)
        ctx.set_materialize_grads(False)
        return nats_N.sum() / divisor, nats_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        grads, ctx.grads = ctx.grads, None  # handed on: nobody has to copy them
        if grads is None:
            raise RuntimeError("the gradient of a chunked cross-entropy can be taken only once")
        factor = grad.item()
        if factor != 1:
            for own in grads:
                if own is not None:
                    own.mul_(factor)
        return *grads, None, None, None


def _chunks(num_rows: int, vocab_size: int) -> list[tuple[int, int]]:
    """Rows from, to: as few chunks as the cache allows, nearly equal, of whole cache lines but for the last."""
    most = min(MAX_ROWS, max(MIN_ROWS, CHUNK_ELEMENTS // vocab_size))
    count = max(1, -(-num_rows // most))
    size = -(-num_rows // count // ROW_MULTIPLE) * ROW_MULTIPLE
    return [(first, min(first + size, num_rows)) for first in range(0, num_rows, max(1, size))]


def _space(features_NH: Tensor, weight_VH: Tensor, chunks: list[tuple[int, int]]) -> Tensor:
    """Memory for the logits of the largest chunk."""
    return features_NH.new_empty(max((last - first for first, last in chunks), default=0) * len(weight_VH))


def _probs(space: Tensor, rows_RH: Tensor, weight_VH: Tensor, bias_V: Tensor, scale: float) -> Tensor:
    """A chunk's probabilities, words first: on two threads the products are faster that way round. -> (V, R)"""
    probs_VR = space[: len(weight_VH) * len(rows_RH)].view(len(weight_VH), len(rows_RH))
    torch.addmm(bias_V[:, None], weight_VH, rows_RH.t(), beta=scale, alpha=scale, out=probs_VR)
    return torch.softmax(probs_VR, 0, out=probs_VR)


def _log_probs(
    probs_N: Tensor, features_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, scale: float
) -> Tensor:
    """Logarithms of the targets' probabilities; of those too small for a float, from the logits. -> (N,)"""
    log_probs_N = probs_N.log()
    small = (probs_N < TOO_SMALL).nonzero()[:, 0]
    for rows in torch.split(small, MIN_ROWS):
        logits_RV = torch.addmm(bias_V, features_NH[rows], weight_VH.t(), beta=scale, alpha=scale)
        log_probs_N[rows] = logits_RV.log_softmax(1).gather(1, targets_N[rows, None])[:, 0]
    return log_probs_N
