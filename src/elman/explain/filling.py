"""How a model fills a gap in a text, for those who look inside.

N texts · V symbols · C candidates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elman.core.arrays import Array
from elman.text.gaps import Gapped
from elman.text.units.tokenizer import Tokenizer


@dataclass(frozen=True)
class Filler:
    """The symbols a model knows, and what it thinks of each of them at the first gap of a text."""

    how: str  # what it reads: "left to right"
    tokenizer: Tokenizer
    log_probs: Callable[[Sequence[Gapped]], Array]  # (N, V)
    sentence_log_probs: Callable[[Gapped, Array], Array] | None = None  # of the sentence with each candidate, (C,)
