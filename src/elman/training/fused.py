"""Operations on many tensors in one call. The only module of training that uses private functions of PyTorch.

`torch.optim` runs on the same functions, but its classes first import torch's compiler, which takes seconds. All of them
work in place unless they return something. tests/training/test_fused.py says which one broke when PyTorch changes them.
"""

from __future__ import annotations

import torch
from torch import Tensor

Tensors = list[Tensor]


def scale_(tensors: Tensors, factor: float) -> None:
    """tensors *= factor"""
    torch._foreach_mul_(tensors, factor)


def shift_(tensors: Tensors, offset: float) -> None:
    """tensors += offset"""
    torch._foreach_add_(tensors, offset)


def add_(tensors: Tensors, others: Tensors, *, factor: float = 1.0) -> None:
    """tensors += factor * others"""
    torch._foreach_add_(tensors, others, alpha=factor)


def add(tensors: Tensors, others: Tensors, *, factor: float = 1.0) -> list[Tensor]:
    """tensors + factor * others"""
    return list(torch._foreach_add(tensors, others, alpha=factor))


def add_squares_(tensors: Tensors, others: Tensors, *, factor: float) -> None:
    """tensors += factor * others ** 2"""
    torch._foreach_addcmul_(tensors, others, others, factor)


def square_roots(tensors: Tensors) -> list[Tensor]:
    """sqrt(tensors)"""
    return list(torch._foreach_sqrt(tensors))


def divide(tensors: Tensors, others: Tensors) -> list[Tensor]:
    """tensors / others"""
    return list(torch._foreach_div(tensors, others))


def move_towards_(tensors: Tensors, targets: Tensors, *, weight: float) -> None:
    """tensors += weight * (targets - tensors)"""
    torch._foreach_lerp_(tensors, targets, weight)


def adam_(
    parameters: Tensors,
    gradients: Tensors,
    means: Tensors,
    squares: Tensors,
    counts: Tensors,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    epsilon: float,
    is_decoupled: bool,
) -> None:
    """One step of Adam in one pass over memory: 5 ms for 5.3 M parameters on one core, against 17 and 30 the usual ways.

    means, squares: the moving averages, which are updated. counts: steps of each parameter with this one, float32 scalars.
    is_decoupled: AdamW, whose weight decay is not part of the gradient.
    """
    step = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
    step(
        parameters,
        gradients,
        means,
        squares,
        [],
        counts,
        lr=rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )
