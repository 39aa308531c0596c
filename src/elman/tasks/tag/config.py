"""Settings of `elman train tag`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config
from elman.nets.config import TextEncoderConfig

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


class TaggerConfig(TextEncoderConfig):
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
