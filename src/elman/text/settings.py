"""How data become symbols: of text, pairs, labelled texts, stories and tagged sentences."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config, Integers

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


class PairsConfig(Config):
    """How pairs of a source and a target become symbols."""

    units: Units = "auto"  # of both sides
    source_units: Units | None = None  # `units` where they are not given
    target_units: Units | None = None
    shared: bool = False  # one vocabulary for both sides
    source: Integers = ()  # columns of a table, from 1; several are joined by a space
    target: Integers = ()
    header: bool | None = None  # whether a file's first row names its columns; by its look if not given
    spelled: Integers = ()  # columns of the source that are spelt letter by letter, while the others are symbols
    min_count: int = Field(2, ge=1)
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    max_length: int | None = Field(None, ge=1)  # tokens of a source to train on; without it 1,000 of either side
    too_long: Literal["refuse", "truncate", "drop"] | None = None  # refuse; where max_length is given, drop
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False
    heldout: float = Field(0.05, gt=0, lt=1)  # the part of the sources held out where no --valid is given

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_columns(self.source, self.target)
        if not set(self.spelled) <= set(self.source):
            raise ValueError("spelled are columns of the source: give them in source too")
        if self.spelled and self.units_of("source") not in ("auto", "space"):
            raise ValueError("spelled says what the source's symbols are: leave its units to it")
        if self.shared and self.units_of("source") != self.units_of("target"):
            raise ValueError("a shared vocabulary needs the same units on both sides")
        return self

    def units_of(self, side: Literal["source", "target"]) -> str:
        """The units asked for on one side."""
        if side == "source" and self.spelled and self.source_units is None:
            return "space"
        return (self.source_units if side == "source" else self.target_units) or self.units


class LabelledConfig(Config):
    """How texts with labels become symbols."""

    units: str = Field("auto", pattern=r"^(auto|space|word|char)$")
    lower_case: bool = True  # letters are made small first
    source: Integers = ()  # columns of a table, from 1: of the text; several are joined by a space
    target: Integers = ()  # the same: of the label
    header: bool | None = None  # whether a file's first row names its columns; by its look if not given
    min_count: int = Field(2, ge=1)
    max_words: int = Field(60_000, ge=1, le=2_000_000)  # those of the word vectors among them
    max_length: int = Field(400, ge=2)  # words that are read of a text: of longer ones half from either end
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False
    heldout: float = Field(0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _columns_apply(self) -> Self:
        _check_columns(self.source, self.target)
        return self


def _check_columns(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    if bool(source) != bool(target):
        raise ValueError("source and target are columns of one table: give both or neither")
    if any(column < 1 for column in (*source, *target)):
        raise ValueError("columns are numbered from 1")


class StoriesConfig(Config):
    """How questions about texts become symbols."""

    lower_case: bool = True  # letters are made small first
    min_count: int = Field(1, ge=1)
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    max_sentences: int = Field(200, ge=1)  # of a context only the last so many are read
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False
    heldout: float = Field(0.05, gt=0, lt=1)


CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class SentencesConfig(Config):
    """How words with tags become symbols."""

    column: str | None = Field(
        None, pattern=r"^([a-z]+|[1-9][0-9]*)$"
    )  # CoNLL-U: a name; else from 1; upos, or the last
    min_count: int = Field(1, ge=1)  # words seen less often are <unk>
    max_words: int = Field(60_000, ge=1, le=2_000_000)  # those of the word vectors among them
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False  # drop sentences with malformed lines and count them
    heldout: float = Field(0.05, gt=0, lt=1)
