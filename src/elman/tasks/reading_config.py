"""The nets that read a text and answer with a few labels: taggers, classifiers, readers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config


class ReadingConfig(Config):
    """What every net has that reads a text and answers with a few labels: words as vectors, recurrent layers, noise."""

    family: Literal["rnn", "gru", "lstm"] = "lstm"
    hidden: int = Field(200, ge=1)  # of each direction
    layers: int = Field(1, ge=1)
    bidirectional: bool = True
    embedding: int | None = Field(None, ge=1)  # 100 if not given, or what the vectors have
    vectors: str | None = None  # word2vec or GloVe text; a word that is not there has the vector of its lower case
    tune_vectors: bool = True
    rare: float = Field(0.25, ge=0)  # in training a word seen n times is unknown with probability rare / (rare + n)
    dropout: float = Field(0.0, ge=0, lt=1)  # the three below where they are not given
    dropout_input: float | None = Field(None, ge=0, lt=1)
    dropout_layers: float | None = Field(None, ge=0, lt=1)
    dropout_output: float | None = Field(None, ge=0, lt=1)

    def rate(self, place: Literal["input", "layers", "output"]) -> float:
        """How much is dropped there."""
        own: float | None = getattr(self, f"dropout_{place}")
        return self.dropout if own is None else own

    @model_validator(mode="after")
    def _vectors_and_layers_apply(self) -> Self:
        if self.vectors is None and not self.tune_vectors:
            raise ValueError("tune_vectors=false needs vectors=FILE")
        if self.dropout_layers and self.layers < 2:
            raise ValueError("dropout_layers is between layers, and there are not two")
        return self


class TaggerConfig(ReadingConfig):
    """A tag for every word of a sentence, from both sides at once (Huang et al. 2015, Lample et al. 2016)."""

    rare: float = Field(1.0, ge=0)  # higher than elsewhere: what has no vector is told by its spelling
    characters: Literal["rnn", "cnn", "none"] = "cnn"  # how the spelling of a word is read
    character_embedding: int = Field(32, ge=1)
    character_hidden: int = Field(100, ge=1)  # of each direction of an rnn; half the filters of a cnn
    bilm: str | None = None  # the directory of a model of `train bilm`: its layers are read beside each word
    output: Literal["softmax", "crf"] | None = None  # crf where tags mark spans, if not given
    scheme: Literal["bio", "bioes", "none"] | None = None  # what tags may follow one another; by the look of the tags

    @model_validator(mode="after")
    def _scheme_applies(self) -> Self:
        if self.output == "softmax" and self.scheme in ("bio", "bioes"):
            raise ValueError("scheme is for output=crf: a softmax chooses each tag by itself")
        return self


class ClassifierConfig(ReadingConfig):
    """What a whole text is, from layers that read it and one vector for all of it."""

    pool: Literal["last", "mean", "max", "attention"] = "max"  # how the words become one vector
    output: Literal["softmax", "sigmoid", "linear"] = "softmax"  # one class, several labels at once, a number
    baseline: bool = True  # a linear model of one- and two-word phrases is trained and measured beside it


class ReaderConfig(ReadingConfig):
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
