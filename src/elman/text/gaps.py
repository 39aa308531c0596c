"""Lines with gaps to fill: `The <mask> of a list` as ids, with the same ids around the gaps as if there were none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.text.units.alphabet import BYTE_CHARACTERS
from elman.text.units.letters import SPACE_MARK
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

MASK = "<mask>"
OTHER_MASK = "[MASK]"  # as BERT and fact files write it
GAP = -1  # stands for the id of a masked token
_APART = "("  # no word goes on after it


class Gapped(NamedTuple):
    """A line with gaps."""

    ids: Array  # (T,), GAP where something is missing
    is_spaced: tuple[bool, ...]  # for each gap: whether a space stands before it

    def before(self) -> Array:
        """What stands before the first gap."""
        return self.ids[: self._first]

    def behind(self) -> Array:
        """What stands behind the first gap; other gaps are unknown words."""
        rest = self.ids[self._first + 1 :]
        return np.where(rest == GAP, UNK_ID, rest)

    @property
    def _first(self) -> int:
        return int(np.argmax(self.ids == GAP))


def read_gaps(line: str, tokenizer: Tokenizer) -> Gapped:
    """The ids of a line with gaps."""
    parts = line.split(MASK)
    if len(parts) == 1:
        raise UsageError(
            f"there is no {MASK} in {line[:60]!r}", code="unsuitable-text", hint=f"write {MASK} where a word is missing"
        )
    pieces = [_encode(parts[0], tokenizer, is_first=True, is_last=False)]
    for place, part in enumerate(parts[1:], 2):
        pieces += [np.array([GAP]), _encode(part, tokenizer, is_first=False, is_last=place == len(parts))]
    is_spaced = tuple(part.endswith(" ") or (place == 0 and not part) for place, part in enumerate(parts[:-1]))
    return Gapped(np.concatenate(pieces).astype(np.int64), is_spaced)


def has_gap(text: str) -> bool:
    """Whether a gap is written in a text, either way."""
    return MASK in text or OTHER_MASK in text


def same_mask(text: str) -> str:
    """A text with every gap written as `<mask>`."""
    return text.replace(OTHER_MASK, MASK)


def fits_gap(tokenizer: Tokenizer, *, is_spaced: bool) -> Array:
    """Whether a symbol can be written in a gap: no end, nothing unknown, and with a space where there is one. -> (V,)"""
    mark = space_mark(tokenizer)
    fits = [mark is None or token.startswith(mark) == is_spaced for token in tokenizer.tokens]
    fits[UNK_ID] = fits[EOS_ID] = False
    return np.array(fits)


def words_for_gap(tokenizer: Tokenizer, *, is_spaced: bool) -> Mapping[str, int]:
    """The symbols that can be written in a gap, as they are written there, and their ids."""
    found: dict[str, int] = {}
    for token in np.flatnonzero(fits_gap(tokenizer, is_spaced=is_spaced)).tolist():
        found.setdefault(tokenizer.decode([token]), token)
    return found


def space_mark(tokenizer: Tokenizer) -> str | None:
    """What symbols begin with that bring the space before them; None where none does."""
    if not tokenizer.adds_space:
        return None
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
