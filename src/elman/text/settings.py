"""Settings of data that several tasks share: how text becomes symbols."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elman.core.settings import Config
from elman.core.values import Form

UNITS = ("auto", "space", "word", "char", "byte", "bpe:8000")  # the last with any number
Units = Annotated[
    str,
    Form("auto, space, word, char, byte or bpe:N, like bpe:8000", r"auto|space|word|char|byte|bpe:[1-9][0-9]*", UNITS),
]


class DataConfig(Config):
    """How text becomes symbols."""

    units: Units = Field("auto", description="how text is cut into tokens; auto looks at the data")
    reset_lines: bool = Field(
        False, description="read each line alone (the n-gram tools' way) instead of all as one stream"
    )
    min_count: int = Field(2, ge=1, description="words seen less often are <unk>, unless the text has <unk> itself")
    max_words: int = Field(
        60_000, ge=1, le=2_000_000, description="size of the vocabulary, at most; the most frequent words are kept"
    )
    errors: Literal["strict", "replace"] = Field(
        "strict", description="broken UTF-8: refuse it, or put U+FFFD in its place"
    )
    skip_bad: bool = Field(False, description="drop malformed lines, and count them")
    separator: str | None = Field(
        None,
        min_length=1,
        description="what stands between the symbols of `space` units that contain spaces; white space if not given",
    )
    heldout: float = Field(0.05, gt=0, lt=1, description="share of DATA that is held out where no --valid is given")


def check_columns(source: tuple[int | str, ...], target: tuple[int | str, ...]) -> None:
    """Refuse columns of a table of which only one side is chosen."""
    if bool(source) != bool(target):
        raise ValueError("source and target are columns of one table: give both or neither")
    if any(isinstance(column, int) and column < 1 for column in (*source, *target)):
        raise ValueError("columns are numbered from 1")
