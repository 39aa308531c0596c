"""Settings shared by several nets: embeddings, output heads, dropout; the cost of layers and their learning rates."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config, Integers

Skip = Literal["none", "residual", "highway", "dense"]  # connections between layers
# The output: a full softmax; an adaptive one, with rare words in clusters; or a full softmax trained on sampled words
Head = Literal["full", "adaptive", "sampled", "nce", "blackout"]

# How attention scores a query against a key
Score = Literal["dot", "scaled", "bilinear", "additive"]

# Where a GRU's reset gate acts: on the state, before it is multiplied (Cho et al. 2014), or after. Not written where it
# is not given, so that the records of models without it are as those of version 0.1.0.
Reset = Annotated[Literal["before", "after"] | None, Field(exclude_if=lambda value: value is None)]

# Matrices of hidden x hidden, for inputs and state each, that a layer of this kind has
GATES = {"rnn": 1, "gru": 3, "lstm": 4, "transformer": 6}
RATES = {"rnn": 0.0015, "gru": 0.0025, "transformer": 0.002}  # Adam's peak rate for wide nets; the LSTM takes more
HEAD_WIDTH = 48  # smallest width of an attention head, where the number of heads is not given


class WordsConfig(Config):
    """What every net has that reads words: where their vectors come from, and dropout."""

    vectors: str | None = Field(None, description="file of word vectors to begin with, word2vec or GloVe text")
    tune_vectors: bool = Field(True, description="train the word vectors that came from a file, too")
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the units left out in training, where no dropout_* setting says otherwise",
    )
    dropout_input: float | None = Field(
        None, ge=0, lt=1, description="dropout of the word vectors; `dropout` if not given"
    )
    dropout_layers: float | None = Field(None, ge=0, lt=1, description="dropout between layers; `dropout` if not given")
    dropout_output: float | None = Field(
        None, ge=0, lt=1, description="dropout before the output; `dropout` if not given"
    )

    def rate(self, place: Literal["input", "layers", "output"]) -> float:
        """The dropout rate at this place."""
        rate: float | None = getattr(self, f"dropout_{place}")
        return self.dropout if rate is None else rate

    @model_validator(mode="after")
    def _vectors_apply(self) -> Self:
        if self.vectors is None and not self.tune_vectors:
            raise ValueError("tune_vectors=false needs vectors=FILE")
        return self


class NetConfig(WordsConfig):
    """What every net has that writes words: embeddings, layers, an output head."""

    family: str
    hidden: int
    layers: int
    embedding: int | None = Field(
        None, ge=1, description="width of the word vectors; as `hidden` if not given, or what the vectors have"
    )
    tied: bool = Field(
        False, description="input and output words share their vectors; projected where the sizes differ"
    )
    projection: int | None = Field(
        None, ge=1, description="width of a narrower layer before the output; none if not given"
    )
    head: Head = Field(
        "full",
        description="output: one softmax; rare words in clusters (adaptive); or a softmax trained on a few words at a time",
    )
    cutoffs: Integers = Field(
        (), description="head=adaptive: ranks at which a rarer cluster begins; chosen by cost if not given"
    )
    tail_shrink: float | None = Field(
        None, ge=1, description="head=adaptive: each rarer cluster is so many times narrower; 4 if not given, 1 if tied"
    )
    samples: int | None = Field(
        None,
        ge=1,
        description="head=sampled, nce or blackout: words drawn a batch; vocabulary / 16, at least 512, if not given",
    )
    alpha: float | None = Field(
        None,
        ge=0,
        le=1,
        description="head=sampled, nce or blackout: words are drawn by count^alpha; 0.75, nce 1, blackout 0.4 if not given",
    )
    dropout_embedding: float = Field(0.0, ge=0, lt=1, description="share of whole words left out, for a whole step")
    dropout_tail: float = Field(
        0.0, ge=0, lt=1, description="head=adaptive: dropout inside the clusters of rarer words"
    )

    @property
    def usual_embedding(self) -> int:
        """The default width of a word vector, without a setting or a file of vectors."""
        return self.hidden

    @property
    def embedding_width(self) -> int:
        """The width of a word vector, without a file of vectors."""
        return self.embedding or (self.projection if self.tied else None) or self.usual_embedding

    @classmethod
    def layer_weights(cls, family: str, *, hidden: int, layers: int) -> float:
        """Multiply-adds per token in the layers of a net of this size."""
        return layers * GATES[family] * 2 * hidden**2

    @classmethod
    def usual_rate(cls, family: str) -> float | None:
        """Adam's peak learning rate for a wide net; None for the highest."""
        return RATES.get(family)

    @model_validator(mode="after")
    def _head_applies(self) -> Self:
        if self.head != "adaptive" and (self.cutoffs or self.tail_shrink or self.dropout_tail):
            raise ValueError("cutoffs, tail_shrink and dropout_tail are for head=adaptive")
        if self.head in ("full", "adaptive") and (self.samples is not None or self.alpha is not None):
            raise ValueError("samples and alpha are for head=sampled, nce or blackout")
        if any(low >= high for low, high in zip((0, *self.cutoffs), self.cutoffs, strict=False)):
            raise ValueError("cutoffs must be increasing ranks, like 1000,4000")
        if self.tied and self.tail_shrink not in (None, 1):
            raise ValueError("tied embeddings have one width at input and output: tail_shrink must be 1")
        if self.tied and not self.tune_vectors:
            raise ValueError("tied embeddings would be frozen at the output too; leave out tied or tune_vectors=false")
        if self.tied and self.projection is not None and self.embedding not in (None, self.projection):
            raise ValueError(
                f"tied: the projection ({self.projection}) must be as wide as the embedding ({self.embedding})"
            )
        return self


class TextEncoderConfig(WordsConfig):
    """What every net has that maps a text to labels: word embeddings and recurrent layers."""

    family: Literal["rnn", "gru", "lstm"] = "lstm"
    hidden: int = Field(200, ge=1, description="width of the hidden layers, of each direction")
    layers: int = Field(1, ge=1, description="number of layers")
    reset: Reset = Field(
        None, description="gru: reset the state before or after its product with the weights; after if not given"
    )
    bidirectional: bool = Field(True, description="read the text from both ends")
    embedding: int | None = Field(
        None, ge=1, description="width of the word vectors; 100 if not given, or what the vectors have"
    )
    vectors: str | None = Field(
        None,
        description="file of word vectors, word2vec or GloVe text; a word that is not there has that of its lower case",
    )
    rare: float = Field(
        0.25, ge=0, description="in training a word seen n times is unknown with probability rare / (rare + n)"
    )

    @model_validator(mode="after")
    def _layers_apply(self) -> Self:
        check_reset(self.family, self.reset)
        if self.dropout_layers and self.layers < 2:
            raise ValueError("dropout_layers needs at least 2 layers")
        return self


class TextNetConfig(NetConfig):
    """A net that reads running text, by which its word vectors may begin."""

    initial_vectors: Literal["random", "counted"] = Field(
        "random",
        description="word vectors begin at random, or by which words stand beside which in the training text",
        exclude_if=lambda value: value == "random",  # the records of such nets are as those of version 0.1.0
    )

    @model_validator(mode="after")
    def _counted_vectors_apply(self) -> Self:
        if self.initial_vectors == "counted" and self.vectors is not None:
            raise ValueError("initial_vectors=counted does not apply with vectors=FILE, which are the initial ones")
        return self


class LanguageNetConfig(TextNetConfig):
    """A language model that is a net; weights of n-grams may be added to its logits (Mikolov et al. 2011)."""

    maxent: int | None = Field(
        None,
        ge=2,
        le=20,
        description="words of the longest n-gram that has a weight of its own at the output (Mikolov et al. 2011)",
    )
    maxent_size: int | None = Field(
        None,
        ge=1,
        description="maxent: so many n-grams have a weight, the most frequent; all that occur twice if not given",
    )

    @model_validator(mode="after")
    def _ngrams_apply(self) -> Self:
        if self.maxent is None and self.maxent_size is not None:
            raise ValueError("maxent_size needs maxent=ORDER")
        return self


def check_reset(family: str, reset: Reset) -> None:
    """Refuse a reset where there is no gate for it."""
    if reset is not None and family != "gru":
        raise ValueError(f"reset is for gru, not for {family}")


def check_stack(*, layers: int, skip: Skip, dropout_layers: float | None) -> None:
    """Refuse settings that need two layers where there is one."""
    if skip != "none" and layers < 2:
        raise ValueError(f"skip={skip} needs at least 2 layers")
    if dropout_layers and layers < 2:
        raise ValueError("dropout_layers needs at least 2 layers")


def fitting_heads(hidden: int) -> int:
    """The largest number of attention heads that divides `hidden` and keeps each at least HEAD_WIDTH wide."""
    return max(n for n in range(1, max(1, hidden // HEAD_WIDTH) + 1) if hidden % n == 0)
