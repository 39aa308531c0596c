"""Random numbers that concern a whole batch, not a row of it: the same in all processes that train a net together.

They come from torch's global generator, as all noise of training does, unless several processes train: then from a
generator that is in the same state in all of them, while noise of rows, as dropout, differs from process to process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_common: list[torch.Generator] = []  # of the blocks that are open, the last one is used


@contextmanager
def common_draws(generator: torch.Generator | None) -> Iterator[None]:
    """Draw what concerns whole batches from a generator inside the block; None for torch's global one."""
    if generator is None:
        yield
        return
    _common.append(generator)
    try:
        yield
    finally:
        _common.pop()


def draw_alike(shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers between 0 and 1."""
    if not _common:
        return torch.rand(tuple(shape), dtype=dtype, device=device)
    return torch.rand(tuple(shape), dtype=dtype, generator=_common[-1]).to(device)


def draw_ids_alike(most: int, shape: Sequence[int], *, device: torch.device) -> Tensor:
    """Whole numbers below `most`."""
    if not _common:
        return torch.randint(most, tuple(shape), device=device)
    return torch.randint(most, tuple(shape), generator=_common[-1]).to(device)
