"""Settings of `elman train classify`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Columns
from elman.nets.config import TextEncoderConfig
from elman.text.settings import ReadingConfig, check_columns


class LabelledConfig(ReadingConfig):
    """How texts with labels become symbols."""

    units: Literal["auto", "space", "word", "char"] = Field(
        "auto", description="how text is cut into tokens; auto looks at the data"
    )
    lower_case: bool = Field(True, description="make letters small first")
    source: Columns = Field(
        (),
        description="columns of a table that are the text, from 1 or by name, or keys of records; several are joined",
    )
    target: Columns = Field(
        (), description="columns of a table that are the label, from 1 or by name, or keys of records"
    )
    header: bool | None = Field(
        None, description="whether a file's first row names its columns; by its look if not given"
    )
    min_count: int = Field(2, ge=1, description="words seen less often are <unk>")
    max_words: int = Field(
        60_000,
        ge=1,
        le=2_000_000,
        description="size of the vocabulary, at most; the most frequent words are kept; those of the word vectors among them",
    )
    max_length: int = Field(400, ge=2, description="words that are read of a text; of longer ones half from either end")
    heldout: float = Field(0.05, gt=0, lt=1, description="share of DATA that is held out where no --valid is given")

    @model_validator(mode="after")
    def _columns_apply(self) -> Self:
        check_columns(self.source, self.target)
        return self


class ClassifierConfig(TextEncoderConfig):
    """What a whole text is, from layers that read it and one vector for all of it."""

    pool: Literal["last", "mean", "max", "attention"] = Field(
        "max", description="how the words of a text become one vector"
    )
    output: Literal["softmax", "sigmoid", "linear"] = Field(
        "softmax", description="softmax: one class; sigmoid: several labels at once; linear: a number"
    )
    nets: int = Field(
        1,
        ge=1,
        le=20,
        exclude_if=lambda value: value == 1,  # so that the records of single nets are as those of version 0.1.0
        description="nets that are trained side by side, each with weights of its own; their mean predicts",
    )
    baseline: bool = Field(
        True, description="train a linear model of one- and two-word phrases beside the net, and predict with both"
    )
