"""Settings of `elman train qa`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.nets.config import TextEncoderConfig
from elman.text.settings import ReadingConfig


class StoriesConfig(ReadingConfig):
    """How questions about texts become symbols."""

    lower_case: bool = Field(True, description="make letters small first")
    min_count: int = Field(1, ge=1, description="words seen less often are <unk>")
    max_words: int = Field(
        60_000, ge=1, le=2_000_000, description="size of the vocabulary, at most; the most frequent words are kept"
    )
    max_sentences: int = Field(200, ge=1, description="sentences of a context that are read, the last ones")
    heldout: float = Field(0.05, gt=0, lt=1, description="share of DATA that is held out where no --valid is given")


class ReaderConfig(TextEncoderConfig):
    """An answer to a question about a text: chosen after several looks at it, marked in it, or written."""

    family: Literal["rnn", "gru", "lstm"] = "gru"
    hidden: int = Field(64, ge=1, description="width of the hidden layers, of each direction")
    embedding: int | None = Field(
        None, ge=1, description="width of the word vectors; 100 if not given, or what the vectors have"
    )
    answer: Literal["word", "span", "generated"] | None = Field(
        None,
        description="chosen from those in training, marked in the text, or written; by the look of the data if not given",
    )
    hops: int = Field(3, ge=1, description="answer=word: how often it looks at the text (Sukhbaatar et al. 2015)")
    positions: int = Field(100, ge=1, description="answer=word: sentences told apart by how long ago they were")
    longest: int | None = Field(
        None, ge=1, description="answer=span and generated: words of an answer, at most; as in training if not given"
    )

    @model_validator(mode="after")
    def _answer_applies(self) -> Self:
        if self.answer in ("span", "generated"):
            for name in ("hops", "positions"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is for answer=word, not for {self.answer}")
        elif self.answer == "word" and self.longest is not None:
            raise ValueError("longest is for answer=span and answer=generated: a word is one of those in training")
        return self
