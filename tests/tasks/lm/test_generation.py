"""Recurrent models write for ever in the same memory and at the same speed."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch

from elman.lm.protocol import leaves
from elman.lm.search import draw
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.slow
def test_a_hundred_thousand_tokens_take_no_more_memory_than_a_thousand() -> None:
    config = RecurrentConfig(hidden=16, layers=2)
    model = RecurrentModel(config, NetInputs(30, rng=torch.Generator().manual_seed(0)), reset_lines=False)
    rng = np.random.default_rng(0)
    state = model.start(1)
    size = sum(leaf.nbytes for leaf in leaves(state))
    after_a_thousand = 0
    for step in range(100_000):
        state = model.advance(draw(model.predict(state), rng), state)
        if step == 1000:
            after_a_thousand = resident_kilobytes()
    assert sum(leaf.nbytes for leaf in leaves(state)) == size
    assert resident_kilobytes() - after_a_thousand < 4096  # a leak of one state a token would be 25 MB
