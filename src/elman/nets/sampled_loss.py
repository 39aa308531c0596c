"""Losses that compare each target with a few words drawn for the whole batch, instead of with all words.

With x_w = s_w - log c_w, where s_w = scale (W_w h + b_w) and c_w is the chance of w to be drawn, i the target, S the
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

from elman.nets.cross_entropy import LogitSpace
from elman.nets.maxent import Entries, SparseLogits, add_entries, add_gradient

LEAST_REST = 8.0  # times the precision: what is left for all others beside a word, at least, for 1 - p must not be zero

# From x of the words drawn in the first K columns, that of the target in column K and -inf in all others, to the loss
# of each row; x is overwritten with the gradient of that.
Criterion = Callable[[Tensor, int], Tensor]


def softmax_criterion(x_RW: Tensor, own: int) -> Tensor:
    """-log p_i. -> (R,)"""
    target_R = x_RW[:, own].clone()
    nats_R = torch.logsumexp(x_RW, 1) - target_R
    torch.softmax(x_RW, 1, out=x_RW)
    x_RW[:, own] = torch.expm1(-nats_R)  # p_i - 1
    return nats_R


def nce_criterion(x_RW: Tensor, own: int) -> Tensor:
    """Tell the target from noise: a yes or no for each word. -> (R,)"""
    x_RW[:, own].neg_()
    nats_R = F.softplus(x_RW).sum(1)
    torch.sigmoid(x_RW, out=x_RW)
    x_RW[:, own].neg_()
    return nats_R


def blackout_criterion(x_RW: Tensor, own: int) -> Tensor:
    """-log p_i - sum log(1 - p_j). With r = p / (1 - p), the slope at x_j is p_j (2 - sum of the others' r). -> (R,)"""
    nats_R = torch.logsumexp(x_RW, 1) - x_RW[:, own]
    probs_RW = torch.softmax(x_RW, 1, out=x_RW)
    rest_RW = (1.0 - probs_RW).clamp_(min=LEAST_REST * torch.finfo(x_RW.dtype).eps)
    rest_RW[:, own] = 1.0
    nats_R = nats_R - rest_RW.log().sum(1)
    odds_RW = probs_RW / rest_RW
    odds_RW[:, own] = 0.0
    odds_R = odds_RW.sum(1)
    target_R = probs_RW[:, own] * (1.0 - odds_R) - 1.0
    probs_RW.mul_(odds_RW.add_(2.0).sub_(odds_R[:, None]))
    probs_RW[:, own] = target_R
    return nats_R


CRITERIA: dict[str, Criterion] = {
    "sampled": softmax_criterion,
    "nce": nce_criterion,
    "blackout": blackout_criterion,
}


class Drawn(NamedTuple):
    """Words that were drawn, and the chances of all."""

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
    """The mean of a criterion over the rows, to descend on; and each row's, without gradient. `extra` adds to W h + b."""
    ngrams_F = None if extra is None else extra.weight
    found: tuple[Tensor, Tensor] = _SampledLoss.apply(  # type: ignore[no-untyped-call]
        kind, features_NP, weight_VP, bias_V, ngrams_F, targets_N, drawn, extra, scale
    )
    return found


class _SampledLoss(torch.autograd.Function):
    """Chunk by chunk, the gradient made on the way, as in cross_entropy.py. Only rows of W that take part are touched:
    the rest of their gradient is zeros, which cost a fifteenth of the products (measured for 33,000 words of 256)."""

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
        shift_V = bias_V * scale - log_chances_V
        shift_K = shift_V.index_select(0, words_K)
        columns_V = torch.full_like(log_chances_V, -1, dtype=torch.int64)
        columns_V[words_K] = torch.arange(num_drawn, device=words_K.device)
        keeps_hits = kind == "nce"  # there a word is told from noise, and noise may be the target; else it counts once
        share = scale / max(1, len(targets_N))
        grad_NP = torch.empty_like(features_NP)
        grad_KP = torch.zeros_like(weight_KP)
        grad_VP, grad_V = torch.zeros_like(weight_VP), torch.zeros_like(bias_V)
        grad_F = None if ngrams_F is None else torch.zeros_like(ngrams_F)
        nats_N = features_NP.new_empty(len(features_NP))
        space = LogitSpace(features_NP, num_drawn + 1)
        for first, last in space.chunks:
            rows_RP, targets_R = features_NP[first:last], targets_N[first:last]
            own_RP = weight_VP.index_select(0, targets_R)
            x_RW = space.products(rows_RP, weight_KP, shift_K, alpha=scale)
            x_RW[:, num_drawn] = (rows_RP * own_RP).sum(1).mul_(scale).add_(shift_V.index_select(0, targets_R))
            if extra is not None and ngrams_F is not None:
                entries = _taking_part(extra.entries(first, last), columns_V, targets_R, own=num_drawn)
                places_M = add_entries(x_RW, entries, ngrams_F, scale=scale)
            if not keeps_hits:
                hits_R = columns_V[targets_R]
                hit = (hits_R >= 0).nonzero()[:, 0]
                x_RW[hit, hits_R[hit]] = -math.inf
            nats_N[first:last] = CRITERIA[kind](x_RW, num_drawn)
            if grad_F is not None:
                add_gradient(grad_F, entries, places_M, x_RW, share=share)
            errors_RK, error_R = x_RW[:, :num_drawn], x_RW[:, num_drawn] * share
            torch.addmm(own_RP.mul_(error_R[:, None]), errors_RK, weight_KP, alpha=share, out=grad_NP[first:last])
            torch.addmm(grad_KP, errors_RK.t(), rows_RP, alpha=share, out=grad_KP)
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
            raise RuntimeError("the gradient of a sampled loss can be taken only once")
        factor = grad.item()
        if factor != 1:
            for own in grads:
                if own is not None:
                    own.mul_(factor)
        return None, *grads, None, None, None, None


def _taking_part(entries: Entries, columns_V: Tensor, targets_R: Tensor, *, own: int) -> Entries:
    """The n-grams of words that were drawn, in their columns, and of the targets, in theirs."""
    columns_M = columns_V.index_select(0, entries.columns)
    is_drawn = (columns_M >= 0).nonzero()[:, 0]
    is_target = (entries.columns == targets_R.index_select(0, entries.rows)).nonzero()[:, 0]
    both = torch.cat([is_drawn, is_target])
    columns = torch.cat([columns_M[is_drawn], torch.full_like(is_target, own)])
    return Entries(entries.rows[both], columns, entries.ngrams[both])
