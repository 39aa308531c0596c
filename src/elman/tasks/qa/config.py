"""Settings of `elman train qa`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config
from elman.nets.config import TextEncoderConfig


class StoriesConfig(Config):
    """How questions about texts become symbols."""

    lower_case: bool = True  # letters are made small first
    min_count: int = Field(1, ge=1)
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    max_sentences: int = Field(200, ge=1)  # of a context only the last so many are read
    errors: Literal["strict", "replace"] = "strict"
    skip_bad: bool = False
    heldout: float = Field(0.05, gt=0, lt=1)


class ReaderConfig(TextEncoderConfig):
    """An answer to a question about a text: chosen after several looks at it, marked in it, or written."""

    family: Literal["rnn", "gru", "lstm"] = "gru"
    hidden: int = Field(64, ge=1)
    embedding: int | None = Field(None, ge=1)  # 100 if not given, or what the vectors have
    answer: Literal["word", "span", "generated"] | None = None  # one of training's, a part of the text, or written
    hops: int = Field(3, ge=1)  # word only: how often it looks at the text (Sukhbaatar et al. 2015)
    positions: int = Field(100, ge=1)  # word only: sentences told apart by how long ago they were
    longest: int | None = Field(None, ge=1)  # span and generated: words of an answer, at most; as in training

    @model_validator(mode="after")
    def _answer_applies(self) -> Self:
        if self.answer in ("span", "generated"):
            for name in ("hops", "positions"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is for answer=word, not for {self.answer}")
        elif self.answer == "word" and self.longest is not None:
            raise ValueError("longest is for answer=span and answer=generated: a word is one of those in training")
        return self
