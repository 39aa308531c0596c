"""Every net keeps every law."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elman.lm.protocol import FreeModel
from elman.testing import LAWS, Law, saving_and_loading_is_exact
from tests.tasks.lm.zoo import NAMES, build


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_every_net_keeps_the_law(name: str, law: Law) -> None:
    law(build(name), np.random.default_rng(0), 1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn gated", "adaptive, tied", "window", "transformer, wide window"])
def test_in_single_precision_too(name: str) -> None:
    model = build(name, dtype=torch.float32)
    for law in LAWS:
        law(model, np.random.default_rng(1), 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_net_that_comes_back_from_its_tensors_is_the_same_to_the_bit(name: str) -> None:
    def roundtrip(model: FreeModel) -> FreeModel:  # type: ignore[type-arg]
        tensors = {key: array.copy() for key, array in model.tensors().items()}  # type: ignore[attr-defined]
        for array in tensors.values():
            array.flags.writeable = False  # as from a mapped file
        config = type(model.config).model_validate_json(model.config.model_dump_json())  # type: ignore[attr-defined]
        return type(model).from_tensors(config, tensors, vocab_size=model.vocab_size, reset_lines=False)  # type: ignore[attr-defined]

    saving_and_loading_is_exact(build(name), np.random.default_rng(0), roundtrip=roundtrip)
