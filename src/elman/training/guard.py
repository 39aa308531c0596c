"""Finds losses, gradients and weights that are NaN, infinite or far too large, and says where they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from elman.core.errors import ElmanError

# A run gives up when it has been rolled back so many times and meets another bad step.
MAX_FAILURES = 5
# After so many good steps, earlier bad ones no longer count.
FORGIVEN_AFTER = 500
# Each roll back multiplies the learning rate by this.
RATE_FACTOR = 0.5
# Without clipping, a gradient so many times larger than its usual norm is a bad step.
GRADIENT_JUMP = 1e4


class TrainingError(ElmanError):
    """The run cannot go on: it met NaN, infinite or exploding numbers again and again."""

    code = "diverged"


def loss_limit(vocab_size: int) -> float:
    """Nats per token above which a loss has exploded: more than twice that of a uniform guess."""
    return 2.0 * math.log(max(vocab_size, 2)) + 5.0


def first_bad(named: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """The name of the first tensor that has a NaN or an infinity."""
    for name, tensor in named:
        if tensor is not None and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def first_bad_module(model: nn.Module, forward: Callable[[], Any]) -> str | None:
    """The first module whose output is not finite when the step's forward pass is repeated."""
    found: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not found and any(not bool(torch.isfinite(part).all()) for part in _tensors(output)):
                found.append(name)

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _tensors(output: Any) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, tuple | list):
        for part in output:
            yield from _tensors(part)


def explain_loss(model: nn.Module, forward: Callable[[], Any]) -> str:
    """Where a loss that is NaN or infinite came from, for a message."""
    weight = first_bad(model.named_parameters()) or first_bad(model.named_buffers())
    if weight is not None:
        return f"the weight {weight} is not finite"
    module = first_bad_module(model, forward)
    return f"the output of {module} is the first that is not finite" if module else "every module's output is finite"


def explain_gradient(model: nn.Module) -> str:
    """Which gradient is NaN or infinite, for a message."""
    name = first_bad((name, parameter.grad) for name, parameter in model.named_parameters())
    return f"the gradient of {name} is not finite" if name else "the norms of the gradients add up to infinity"
