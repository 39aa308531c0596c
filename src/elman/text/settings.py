"""Settings of data that several tasks share: how text becomes symbols."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.core.errors import UsageError
from elman.core.settings import Config
from elman.core.values import Form as ValueForm
from elman.text.units.forms import Form, FormWatch, Normalize

UNITS = ("auto", "space", "word", "char", "byte", "bpe:8000")  # the last with any number
Units = Annotated[
    str,
    ValueForm(
        "auto, space, word, char, byte or bpe:N, like bpe:8000", r"auto|space|word|char|byte|bpe:[1-9][0-9]*", UNITS
    ),
]


Errors = Literal["stop", "replace", "skip"]  # what becomes of lines that are no text, or not understood


class ReadingConfig(Config):
    """How lines are read, for every task."""

    errors: Literal["strict", "replace"] = Field(
        "strict", description="broken UTF-8: refuse it, or put U+FFFD in its place"
    )
    skip_bad: bool = Field(
        False, description="drop malformed lines (of words with tags: their sentence), and count them"
    )
    # Neither is written where it says nothing, so that the records of such models are as those of version 0.1.0.
    normalize: Normalize = Field(
        "none",
        description="rewrite texts in a Unicode form, so that é is one symbol however it is written",
        exclude_if=lambda value: value == "none",
    )
    form: Form | None = Field(
        None,
        description="the Unicode form that texts are expected in; as the training text if not given",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _form_applies(self) -> Self:
        if self.form is not None and self.normalize != "none":
            raise ValueError("form is for texts that are read as they are: with normalize all forms are read alike")
        return self

    def watch(self, text: str) -> None:
        """Warn of a text, given as it is and not in a file, that is in another form than the training text."""
        FormWatch(self.form).look(text, "the text")

    def with_form(self, form: Form | None) -> Self:
        """The same, a text in another form being warned of; unless that is said already, or cannot be."""
        return self if self.form is not None or self.normalize != "none" else self.model_copy(update={"form": form})

    def reading(self, errors: Errors | None) -> Self:
        """The same with --errors: stop at what is no text, skip it, or replace bad bytes and skip what is still no text.

        None: as the model was trained.
        """
        changes: dict[str | None, dict[str, object]] = {
            None: {},
            "stop": {"errors": "strict", "skip_bad": False},
            "replace": {"errors": "replace", "skip_bad": True},
            "skip": {"errors": "strict", "skip_bad": True},
        }
        if errors not in changes:
            raise UsageError(f"errors is {errors!r}", code="bad-value", hint="one of stop, replace, skip")
        return self.model_copy(update=changes[errors])


class DataConfig(ReadingConfig):
    """How text becomes symbols."""

    units: Units = Field("auto", description="how text is cut into tokens; auto looks at the data")
    reset_lines: bool = Field(
        False, description="read each line alone (the n-gram tools' way) instead of all as one stream"
    )
    min_count: int = Field(2, ge=1, description="words seen less often are <unk>, unless the text has <unk> itself")
    max_words: int = Field(
        60_000, ge=1, le=2_000_000, description="size of the vocabulary, at most; the most frequent words are kept"
    )
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
