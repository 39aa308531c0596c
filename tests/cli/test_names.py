"""Made-up names and their noisy reversal."""

from __future__ import annotations

import numpy as np

from elman.cli.names import ALPHABET, make_names, noisy_reversal


def test_names_are_different_and_the_same_for_the_same_seed() -> None:
    names = make_names(2000, np.random.default_rng(1))
    assert len(set(names)) == 2000
    assert names == make_names(2000, np.random.default_rng(1))
    assert set("".join(names)) <= set(ALPHABET)


def test_every_other_letter_is_noise_and_the_rest_is_the_name() -> None:
    source, target = noisy_reversal("romulus", np.random.default_rng(0))
    assert (source[::2], target, len(source)) == ("romulus", "sulumor", 14)
    noise = "".join(noisy_reversal("romulus", np.random.default_rng(n))[0][1::2] for n in range(200))
    assert set(noise) == set(ALPHABET)
