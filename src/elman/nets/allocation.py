"""What a net takes of memory, known before it is taken."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.nets.memory import free_memory

ALLOCATING = (torch.empty, torch.zeros, torch.ones, torch.full)

BYTES_FACTOR = 8  # of a file's tensors: weights of 8 bits are made of others with 32
SPARE_BYTES = 32 << 20  # of buffers that are in no file; what is refused must not have taken much already
TENSORS_FACTOR = 50
SPARE_TENSORS = 1_000


class _Watched(TorchFunctionMode):
    """While a net is built: its weights are counted before they are allocated."""

    def __init__(self) -> None:
        super().__init__()
        self._num_bytes = 0
        self._num_tensors = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ALLOCATING:
            planned = func(*args, **{**kwargs, "device": "meta"})  # its size, and nothing of its memory
            self._num_bytes += planned.numel() * planned.element_size()
            self._num_tensors += 1
            self._check()
        return func(*args, **kwargs)

    @abstractmethod
    def _check(self) -> None:
        """Refuse what has become too much."""


class LimitedMemory(_Watched):
    """Refuse a net that cannot be trained in the memory there is. copies: of its weights, that are held at once."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        self._copies = copies
        self._free = free_memory()

    def _check(self) -> None:
        needed = self._copies * self._num_bytes
        if self._free is not None and needed > self._free:
            raise UsageError(
                f"a net of these sizes needs at least {_format_bytes(needed)} of memory to be trained; "
                f"{_format_bytes(self._free)} are free",
                code="too-little-memory",
                hint="try a smaller one, like model.hidden=512, or leave its sizes to --budget",
            )


class BoundedBy(_Watched):
    """Refuse a net far larger than the tensors of the file that it is built for, whatever its settings claim.

    Settings and tensors are two files: a small model could ask for terabytes, or for a million layers, before they are compared.
    """

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        super().__init__()
        self._most_bytes = BYTES_FACTOR * sum(array.nbytes for array in tensors.values()) + SPARE_BYTES
        self._most_tensors = TENSORS_FACTOR * len(tensors) + SPARE_TENSORS

    def _check(self) -> None:
        if self._num_bytes > self._most_bytes or self._num_tensors > self._most_tensors:
            raise DataError(
                "the tensors do not fit the settings, which are those of a far larger net", code="damaged-model"
            )


def _format_bytes(num_bytes: int) -> str:
    amount, unit = (num_bytes / 1e12, "TB") if num_bytes >= 1e12 else (num_bytes / 1e9, "GB")
    return f"{amount:,.1f} {unit}" if amount < 10 else f"{amount:,.0f} {unit}"
