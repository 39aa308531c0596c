"""Settings of data that several tasks share: how text becomes symbols."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elman.core.settings import Config

Units = Annotated[str, Field(pattern=r"^(auto|space|word|char|byte|bpe:[1-9][0-9]*)$")]


class DataConfig(Config):
    """How text becomes symbols."""

    units: Units = "auto"
    reset_lines: bool = False  # each line alone (the n-gram tools' way) instead of one stream
    min_count: int = Field(2, ge=1)  # words seen less often are <unk>, unless the text has <unk> itself
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    errors: Literal["strict", "replace"] = "strict"  # broken UTF-8: refuse, or put U+FFFD
    skip_bad: bool = False  # drop malformed lines and count them
    separator: str | None = Field(None, min_length=1)  # for `space` units whose symbols contain spaces
    heldout: float = Field(0.05, gt=0, lt=1)  # the part of DATA held out where no --valid is given


def check_columns(source: tuple[int | str, ...], target: tuple[int | str, ...]) -> None:
    """Refuse columns of a table of which only one side is chosen."""
    if bool(source) != bool(target):
        raise ValueError("source and target are columns of one table: give both or neither")
    if any(isinstance(column, int) and column < 1 for column in (*source, *target)):
        raise ValueError("columns are numbered from 1")
