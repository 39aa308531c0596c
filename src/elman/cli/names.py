"""Made-up names, and the noisy reversal of names: a task for sequence models that needs no data.

`rnommuudloutsv -> sulumor`: every letter of romulus is followed by a random one; the target is the name backwards.
"""

from __future__ import annotations

import numpy as np

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_ONSETS = " b br c ch d dr f g gr h j k kr l m n p ph r s sh st t th tr v w y z"
_VOWELS = "a a e e i i o o u y ae ai ea ia io ei"
_ENDS = "   n n s r l d k m nd th x ss rt"


def make_names(count: int, rng: np.random.Generator) -> list[str]:
    """So many different names of one to four syllables."""
    onsets, vowels, ends = (sounds.split(" ") for sounds in (_ONSETS, _VOWELS, _ENDS))
    found: dict[str, None] = {}
    while len(found) < count:
        num_syllables = int(rng.choice([1, 2, 3, 4], p=[0.1, 0.45, 0.35, 0.1]))
        syllables = [
            onsets[rng.integers(len(onsets))] + vowels[rng.integers(len(vowels))] for _ in range(num_syllables)
        ]
        found["".join(syllables) + ends[rng.integers(len(ends))]] = None
    return list(found)


def noisy_reversal(name: str, rng: np.random.Generator) -> tuple[str, str]:
    """The name with a random letter behind each of its own, and the name backwards."""
    noise = rng.integers(len(ALPHABET), size=len(name))
    return "".join(letter + ALPHABET[i] for letter, i in zip(name, noise, strict=True)), name[::-1]
