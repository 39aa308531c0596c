"""Columns of a table as one text: joined as they are, or some spelled out and the others taken as symbols.

`gehen TAB V;PST` with its first column spelled is `g e h e n +V +PST`: a letter is never taken for a feature of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from elman.text.units.letters import SPACE_MARK

_BETWEEN = re.compile(r"[ ;|,]+")


def join_columns(columns: Sequence[str], numbers: Sequence[int | str], spelled: Sequence[int | str]) -> str:
    """One text. `numbers` are the numbers or names of the columns, `spelled` the ones of them that are spelled out."""
    if not spelled:
        return " ".join(columns)
    symbols: list[str] = []
    for number, column in zip(numbers, columns, strict=True):
        if number in spelled:
            symbols += [SPACE_MARK if letter.isspace() else letter for letter in column.strip()]
        else:
            symbols += ["+" + symbol for symbol in _BETWEEN.split(column) if symbol]
    return " ".join(symbols)
