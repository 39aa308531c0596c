"""Noise that keeps a net from learning by heart. Masks come from torch's own generator, which training saves."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def locked_dropout(values_TBH: Tensor, rate: float) -> Tensor:
    """Each row loses the same features at every step (Gal & Ghahramani 2016); the rest is scaled up. -> (T, B, H)"""
    if rate == 0:
        return values_TBH
    return values_TBH * draw_mask(values_TBH[:1], rate)


def draw_mask(like: Tensor, rate: float) -> Tensor:
    """What dropout multiplies with: zero at this rate, else so much that the mean stays one. In the shape of `like`."""
    return torch.empty_like(like).bernoulli_(1 - rate).div_(1 - rate)


def drop_words(weight_VE: Tensor, tokens: Tensor, rate: float) -> Tensor:
    """The tokens' embeddings, some words zero wherever they occur in the batch (Merity et al. 2018). -> (..., E)"""
    embedded = F.embedding(tokens, weight_VE)
    if rate == 0:
        return embedded
    mask_V = torch.empty(len(weight_VE), dtype=weight_VE.dtype, device=weight_VE.device)
    mask_V.bernoulli_(1 - rate).div_(1 - rate)
    return embedded * mask_V[tokens].unsqueeze(-1)


def drop_weights(weight: Tensor, rate: float) -> Tensor:
    """Recurrent weights with some of them zero for a whole step: a plain tensor, so fused kernels still take it."""
    return F.dropout(weight, rate) if rate else weight
