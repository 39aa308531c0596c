"""What a net takes of memory, known before it is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from elman.core.errors import UsageError
from elman.nets.memory import free_memory

ALLOCATING = (torch.empty, torch.zeros, torch.ones, torch.full)


class LimitedMemory(TorchFunctionMode):
    """While a net is built: refuse one that cannot be trained in the memory there is, before its weights are allocated.

    copies: of its weights, that are held at once.
    """

    def __init__(self, copies: int) -> None:
        super().__init__()
        self._copies = copies
        self._free = free_memory()
        self._num_bytes = 0  # of the weights so far

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ALLOCATING:
            planned = func(*args, **{**kwargs, "device": "meta"})  # its size, and nothing of its memory
            self._num_bytes += planned.numel() * planned.element_size()
            needed = self._copies * self._num_bytes
            if self._free is not None and needed > self._free:
                raise UsageError(
                    f"a net of these sizes needs at least {_format_bytes(needed)} of memory to be trained; "
                    f"{_format_bytes(self._free)} are free",
                    hint="try a smaller one, like model.hidden=512, or leave its sizes to --budget",
                )
        return func(*args, **kwargs)


def _format_bytes(num_bytes: int) -> str:
    amount, unit = (num_bytes / 1e12, "TB") if num_bytes >= 1e12 else (num_bytes / 1e9, "GB")
    return f"{amount:,.1f} {unit}" if amount < 10 else f"{amount:,.0f} {unit}"
