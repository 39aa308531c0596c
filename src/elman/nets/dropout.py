"""Dropout of features, words and recurrent weights. Masks come from torch's global generator, which checkpoints save."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def locked_dropout(values_TBH: Tensor, rate: float) -> Tensor:
    """Dropout with one mask per row for all steps (Gal & Ghahramani 2016). -> (T, B, H)"""
    if rate == 0:
        return values_TBH
    return values_TBH * draw_mask(values_TBH[:1], rate)


def draw_mask(like: Tensor, rate: float) -> Tensor:
    """What dropout multiplies with: zero at this rate, else so much that the mean stays one. In the shape of `like`."""
    return torch.empty_like(like).bernoulli_(1 - rate).div_(1 - rate)


def drop_words(weight_VE: Tensor, tokens: Tensor, rate: float) -> Tensor:
    """The tokens' embeddings, with some words zeroed wherever they occur in the batch (Merity et al. 2018). -> (..., E)"""
    embedded = F.embedding(tokens, weight_VE)
    if rate == 0:
        return embedded
    mask_V = torch.empty(len(weight_VE), dtype=weight_VE.dtype, device=weight_VE.device)
    mask_V.bernoulli_(1 - rate).div_(1 - rate)
    return embedded * mask_V[tokens].unsqueeze(-1)


def drop_weights(weight: Tensor, rate: float) -> Tensor:
    """Recurrent weights with some of them zero for the whole batch: a plain tensor, so fused kernels still accept it."""
    return F.dropout(weight, rate) if rate else weight
