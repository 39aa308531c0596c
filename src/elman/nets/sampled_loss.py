"""Losses that compare each target with words sampled for the whole batch, instead of with all words.

With x_w = s_w - log c_w, where s_w = scale (W_w h + b_w) and c_w is the probability of drawing w, i the target, S the
words drawn, and p the softmax of x over i and S without i:

    sampled    -log p_i                                            (Jean et al. 2015)
    nce        -log sigma(x_i) - sum_{j in S} log sigma(-x_j)      (Gutmann & Hyvarinen 2010; Mnih & Teh 2012, Z = 1)
    blackout   -log p_i - sum_{j in S, j != i} log(1 - p_j)        (Ji et al. 2016)

V words · P features · N rows · R rows of a chunk · K words drawn · W at least K + 1, in whole cache lines
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.nets.cross_entropy import LogitBuffer, add_product_, rounded
from elman.nets.maxent import Entries, SparseLogits, add_entries, add_gradient

MIN_COMPLEMENT = 8.0  # lower bound of 1 - p in units of machine epsilon: its logarithm must be finite

# Takes x (sampled words in the first K columns, the target in column K, -inf in the rest) and K; returns the loss of each
# row and overwrites x with its gradient.
Criterion = Callable[[Tensor, int], Tensor]


def softmax_criterion(x_RW: Tensor, target_column: int) -> Tensor:
    """-log p_i. -> (R,)"""
    target_R = x_RW[:, target_column].clone()
    nats_R = torch.logsumexp(x_RW, 1) - target_R
    torch.softmax(x_RW, 1, out=x_RW)
    x_RW[:, target_column] = torch.expm1(-nats_R)  # p_i - 1
    return nats_R


def nce_criterion(x_RW: Tensor, target_column: int) -> Tensor:
    """Binary classification of each word as target or noise. -> (R,)"""
    x_RW[:, target_column].neg_()
    nats_R = F.softplus(x_RW).sum(1)
    torch.sigmoid(x_RW, out=x_RW)
    x_RW[:, target_column].neg_()
    return nats_R


def blackout_criterion(x_RW: Tensor, target_column: int) -> Tensor:
    """-log p_i - sum log(1 - p_j). With r = p / (1 - p), the gradient at x_j is p_j (2 - sum of the others' r). -> (R,)"""
    nats_R = torch.logsumexp(x_RW, 1) - x_RW[:, target_column]
    probs_RW = torch.softmax(x_RW, 1, out=x_RW)
    complements_RW = (1.0 - probs_RW).clamp_(min=MIN_COMPLEMENT * torch.finfo(x_RW.dtype).eps)
    complements_RW[:, target_column] = 1.0
    nats_R = nats_R - complements_RW.log().sum(1)
    odds_RW = probs_RW / complements_RW
    odds_RW[:, target_column] = 0.0
    odds_R = odds_RW.sum(1)
    target_R = probs_RW[:, target_column] * (1.0 - odds_R) - 1.0
    probs_RW.mul_(odds_RW.add_(2.0).sub_(odds_R[:, None]))
    probs_RW[:, target_column] = target_R
    return nats_R


CRITERIA: dict[str, Criterion] = {
    "sampled": softmax_criterion,
    "nce": nce_criterion,
    "blackout": blackout_criterion,
}


class Drawn(NamedTuple):
    """The sampled words, and the log-probability of each word to be drawn."""

    words: Tensor  # (K,) distinct
    log_chances: Tensor  # (V,)


def sampled_loss(
    kind: str,
    features_NP: Tensor,
    weight_VP: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    drawn: Drawn,
    *,
    scale: float,
    extra: SparseLogits | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean of a criterion, with a gradient; and each row's, without one. `extra` is added to W h + b."""
    ngrams_F = None if extra is None else extra.weight
    losses: tuple[Tensor, Tensor] = _SampledLoss.apply(  # type: ignore[no-untyped-call]
        kind, rounded(features_NP), weight_VP, bias_V, ngrams_F, targets_N, drawn, extra, scale
    )
    return losses


class _SampledLoss(torch.autograd.Function):
    """The gradient is computed in the forward pass, chunk by chunk, as in cross_entropy.py. Only rows of W that take part
    are touched: the rest of the gradient is zeros, which cost a fifteenth of the products (33,000 words of 256)."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: str,
        features_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        ngrams_F: Tensor | None,
        targets_N: Tensor,
        drawn: Drawn,
        extra: SparseLogits | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        words_K, log_chances_V = drawn
        num_drawn = len(words_K)
        weight_KP = weight_VP.index_select(0, words_K)
        factor_KP = weight_KP.to(features_NP.dtype)
        shift_V = bias_V * scale - log_chances_V
        shift_K = shift_V.index_select(0, words_K)
        columns_V = torch.full_like(log_chances_V, -1, dtype=torch.int64)
        columns_V[words_K] = torch.arange(num_drawn, device=words_K.device)
        keeps_hits = kind == "nce"  # in NCE a noise word may be the target itself; elsewhere the target must count once
        share = scale / max(1, len(targets_N))
        grad_NP = torch.empty_like(features_NP)
        grad_KP = torch.zeros_like(weight_KP)
        grad_VP, grad_V = torch.zeros_like(weight_VP), torch.zeros_like(bias_V)
        grad_F = None if ngrams_F is None else torch.zeros_like(ngrams_F)
        nats_N = weight_VP.new_empty(len(features_NP))
        buffer = LogitBuffer(features_NP, num_drawn + 1, dtype=weight_VP.dtype)
        for first, last in buffer.chunks:
            rows_RP, targets_R = features_NP[first:last], targets_N[first:last]
            own_RP = weight_VP.index_select(0, targets_R)
            x_RW = buffer.products(rows_RP, factor_KP, shift_K, alpha=scale)
            x_RW[:, num_drawn] = (rows_RP * own_RP).sum(1).mul_(scale).add_(shift_V.index_select(0, targets_R))
            if extra is not None and ngrams_F is not None:
                entries = _used_entries(extra.entries(first, last), columns_V, targets_R, target_column=num_drawn)
                places_M = add_entries(x_RW, entries, ngrams_F, scale=scale)
            if not keeps_hits:
                hits_R = columns_V[targets_R]
                hit = (hits_R >= 0).nonzero()[:, 0]
                x_RW[hit, hits_R[hit]] = -math.inf
            nats_N[first:last] = CRITERIA[kind](x_RW, num_drawn)
            if grad_F is not None:
                add_gradient(grad_F, entries, places_M, x_RW, share=share)
            errors_RK, error_R = x_RW[:, :num_drawn], x_RW[:, num_drawn] * share
            factor_RK = errors_RK.to(features_NP.dtype)
            grad_NP[first:last] = own_RP.mul_(error_R[:, None])
            add_product_(grad_NP[first:last], factor_RK, factor_KP, alpha=share)
            add_product_(grad_KP, factor_RK.t(), rows_RP, alpha=share)
            grad_VP.index_add_(0, targets_R, rows_RP * error_R[:, None])
            grad_V.index_add_(0, targets_R, error_R)
            grad_V.index_add_(0, words_K, errors_RK.sum(0).mul_(share))
        grad_VP.index_add_(0, words_K, grad_KP)
        ctx.grads = (grad_NP, grad_VP, grad_V, grad_F)
        ctx.mark_non_differentiable(nats_N)
        ctx.set_materialize_grads(False)
        return nats_N.mean(), nats_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 9
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError("backward through a sampled loss works only once")
        factor = grad.item()
        if factor != 1:
            for one in grads:
                if one is not None:
                    one.mul_(factor)
        return None, *grads, None, None, None, None


def _used_entries(entries: Entries, columns_V: Tensor, targets_R: Tensor, *, target_column: int) -> Entries:
    """The n-gram entries of the sampled words and of the targets, in the columns of the sampled logits."""
    columns_M = columns_V.index_select(0, entries.columns)
    is_drawn = (columns_M >= 0).nonzero()[:, 0]
    is_target = (entries.columns == targets_R.index_select(0, entries.rows)).nonzero()[:, 0]
    both = torch.cat([is_drawn, is_target])
    columns = torch.cat([columns_M[is_drawn], torch.full_like(is_target, target_column)])
    return Entries(entries.rows[both], columns, entries.ngrams[both])
