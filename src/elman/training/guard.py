"""Watch for numbers that are none. Finds them before a step is made, and says where they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from elman.core.errors import ElmanError

MAX_FAILURES = 5
FORGIVEN_AFTER = 500  # steps without trouble
RATE_FACTOR = 0.5
GRADIENT_JUMP = 1e4  # times its usual norm, for runs that do not clip


class TrainingError(ElmanError):
    """The run cannot go on: it met numbers that are none, again and again."""


def loss_limit(vocab_size: int) -> float:
    """Nats a token above which a loss has exploded: more than twice as bad as knowing nothing."""
    return 2.0 * math.log(max(vocab_size, 2)) + 5.0


def first_bad(named: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """The name of the first tensor with a NaN or an infinity in it."""
    for name, tensor in named:
        if tensor is not None and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def blame_module(model: nn.Module, forward: Callable[[], Any]) -> str | None:
    """The first module whose output is not finite when the step's forward pass is repeated."""
    culprits: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not culprits and any(not bool(torch.isfinite(part).all()) for part in _tensors(output)):
                culprits.append(name)

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return culprits[0] if culprits else None


def _tensors(output: Any) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, tuple | list):
        for part in output:
            yield from _tensors(part)


def explain_loss(model: nn.Module, forward: Callable[[], Any]) -> str:
    """Where a loss that is no number came from, in words."""
    weight = first_bad(model.named_parameters()) or first_bad(model.named_buffers())
    if weight is not None:
        return f"the weight {weight} is not finite"
    module = blame_module(model, forward)
    return f"the output of {module} is the first that is not finite" if module else "every module's output is finite"


def explain_gradient(model: nn.Module) -> str:
    """Which gradient is no number, in words."""
    name = first_bad((name, parameter.grad) for name, parameter in model.named_parameters())
    return f"the gradient of {name} is not finite" if name else "the norms of the gradients add up to infinity"
