"""Settings of `elman train tag`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.core.values import Form
from elman.nets.config import TextEncoderConfig
from elman.text.settings import ReadingConfig

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
Column = Annotated[str, Form("a name in small letters, like xpos, or a number from 1", r"[a-z]+|[1-9][0-9]*")]


class SentencesConfig(ReadingConfig):
    """How words with tags become symbols."""

    column: Column | None = Field(
        None,
        description="column of the tags: a name in CoNLL-U, else a number from 1; upos, or the last, if not given",
    )
    min_count: int = Field(1, ge=1, description="words seen less often are <unk>")
    max_words: int = Field(
        60_000,
        ge=1,
        le=2_000_000,
        description="size of the vocabulary, at most; the most frequent words are kept; those of the word vectors among them",
    )
    heldout: float = Field(0.05, gt=0, lt=1, description="share of DATA that is held out where no --valid is given")


class TaggerConfig(TextEncoderConfig):
    """A tag for every word of a sentence, from both sides at once (Huang et al. 2015, Lample et al. 2016)."""

    rare: float = Field(
        1.0,
        ge=0,
        description="in training a word seen n times is unknown with probability rare / (rare + n): it is told by its spelling",
    )
    characters: Literal["rnn", "cnn", "none"] = Field("cnn", description="how the spelling of a word is read")
    character_embedding: int = Field(32, ge=1, description="width of the characters' vectors")
    character_hidden: int = Field(
        100, ge=1, description="width of each direction of characters=rnn; half the filters of a cnn"
    )
    bilm: str | None = Field(
        None, description="directory of a model of `train bilm`: its layers are read beside each word"
    )
    output: Literal["softmax", "crf"] | None = Field(
        None,
        description="choose each tag by itself, or all of a sentence at once; crf where tags mark spans, if not given",
    )
    scheme: Literal["bio", "bioes", "none"] | None = Field(
        None, description="which tags may follow one another; by the look of the tags if not given"
    )

    @model_validator(mode="after")
    def _scheme_applies(self) -> Self:
        if self.output == "softmax" and self.scheme in ("bio", "bioes"):
            raise ValueError("scheme is for output=crf: a softmax chooses each tag by itself")
        return self
