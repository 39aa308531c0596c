"""Settings of `elman train classify`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Columns, Config
from elman.nets.config import TextEncoderConfig
from elman.text.settings import check_columns


class LabelledConfig(Config):
    """How texts with labels become symbols."""

    units: str = Field("auto", pattern=r"^(auto|space|word|char)$")
    lower_case: bool = True  # letters are made small first
    source: Columns = ()  # the text: columns of a table, from 1 or by name, or keys of records; several are joined by a space
    target: Columns = ()  # the same: of the label
    header: bool | None = None  # whether a file's first row names its columns; by its look if not given
    min_count: int = Field(2, ge=1)
    max_words: int = Field(60_000, ge=1, le=2_000_000)  # those of the word vectors among them
    max_length: int = Field(400, ge=2)  # words that are read of a text: of longer ones half from either end
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False
    heldout: float = Field(0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _columns_apply(self) -> Self:
        check_columns(self.source, self.target)
        return self


class ClassifierConfig(TextEncoderConfig):
    """What a whole text is, from layers that read it and one vector for all of it."""

    pool: Literal["last", "mean", "max", "attention"] = "max"  # how the words become one vector
    output: Literal["softmax", "sigmoid", "linear"] = "softmax"  # one class, several labels at once, a number
    baseline: bool = True  # a linear model of one- and two-word phrases is trained and measured beside it
