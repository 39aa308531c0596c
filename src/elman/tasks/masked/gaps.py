"""Lines with gaps to fill: `The <mask> of a list` as ids, with the same ids around the gaps as if there were none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.text.units.alphabet import BYTE_CHARACTERS
from elman.text.units.letters import SPACE_MARK
from elman.text.units.tokenizer import Tokenizer

MASK = "<mask>"
GAP = -1  # stands for the id of a masked token
_APART = "("  # no word goes on after it


class Gapped(NamedTuple):
    """A line with gaps."""

    ids: Array  # (T,), GAP where something is missing
    is_spaced: tuple[bool, ...]  # for each gap: whether a space stands before it


def read_gaps(line: str, tokenizer: Tokenizer) -> Gapped:
    """The ids of a line with gaps."""
    parts = line.split(MASK)
    if len(parts) == 1:
        raise UsageError(f"there is no {MASK} in {line!r}", hint=f"write {MASK} where a word is missing")
    pieces = [_encode(parts[0], tokenizer, is_first=True, is_last=False)]
    for place, part in enumerate(parts[1:], 2):
        pieces += [np.array([GAP]), _encode(part, tokenizer, is_first=False, is_last=place == len(parts))]
    is_spaced = tuple(part.endswith(" ") or (place == 0 and not part) for place, part in enumerate(parts[:-1]))
    return Gapped(np.concatenate(pieces).astype(np.int64), is_spaced)


def space_mark(tokenizer: Tokenizer) -> str | None:
    """What symbols begin with that bring the space before them; None where none does."""
    return {"word": SPACE_MARK, "bpe": BYTE_CHARACTERS[ord(" ")]}.get(tokenizer.units.partition(":")[0])


def _encode(part: str, tokenizer: Tokenizer, *, is_first: bool, is_last: bool) -> Array:
    """The ids of what stands before, between or after gaps; a space before a gap is brought by what fills it."""
    if tokenizer.units == "space":
        return tokenizer.encode(part.strip())
    if space_mark(tokenizer) is None:
        return tokenizer.encode(part)
    part = part if is_last else part.removesuffix(" ")
    if is_first or part.startswith(" "):  # a line's first word is encoded as if a space stood before it
        return tokenizer.encode(part if is_first else part[1:])
    return tokenizer.encode(_APART + part)[len(tokenizer.encode(_APART)) :]
