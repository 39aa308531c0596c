"""The random state of a run: what its noise is drawn from, saved with its checkpoints.

Of several processes each has noise of its own, and all of them one generator more, in the same state everywhere, for what
concerns whole batches (`nets.noise`). Without dropout they draw what one process would have drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from elman.nets.noise import common_draws
from elman.training.world import World

COMMON, OWN = "torch", "own"  # names in a checkpoint


class Randomness:
    """The state of a run's generators."""

    def __init__(self, seed: int, world: World) -> None:
        self._seed, self._world = seed, world
        common = torch.Generator().manual_seed(seed)
        self._common = None if world.size == 1 else common
        self._own = common.get_state() if world.size == 1 else self._own_state(step=0)

    @contextmanager
    def used(self) -> Iterator[Tensor]:
        """Give torch's global generator this run's state inside the block, and the caller's state back afterwards."""
        callers = torch.get_rng_state()
        torch.set_rng_state(self._own)
        try:
            with common_draws(self._common):
                yield self._own
            self._own = torch.get_rng_state()
        finally:
            torch.set_rng_state(callers)

    def tensors(self) -> dict[str, Tensor]:
        """The states, for a snapshot of this process."""
        if self._common is None:
            return {COMMON: self._own}
        return {COMMON: self._common.get_state(), OWN: self._own}

    def whole_tensors(self) -> dict[str, Tensor]:
        """The states of all processes, for a checkpoint."""
        found = self.tensors()
        return {name: self._world.stacked(state) if name == OWN else state for name, state in found.items()}

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        """Go on from saved states. Without one for this process, as when their number changed, its noise begins anew."""
        if self._common is None:
            self._own = tensors[COMMON].clone()
            return
        self._common.set_state(tensors[COMMON].clone())
        self._own = tensors[OWN].clone() if OWN in tensors else self._own_state(step=step)

    def _own_state(self, *, step: int) -> Tensor:
        word = np.random.SeedSequence([self._seed, step, self._world.rank, self._world.size]).generate_state(1)
        return torch.Generator().manual_seed(int(word[0])).get_state()
