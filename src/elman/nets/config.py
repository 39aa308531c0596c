"""The nets that are language models, and what every net has."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config, Integers

Skip = Literal["none", "residual", "highway", "dense"]  # between layers
# The output: one softmax; frequent words first and rare ones in clusters; or one softmax trained on a few words at a time
Head = Literal["full", "adaptive", "sampled", "nce", "blackout"]

HEAD_WIDTH = 48  # of attention, at least, where the number of heads is not given


class NetConfig(Config):
    """What every net has: words as vectors, layers, an output head, and noise while it learns."""

    family: str
    hidden: int
    layers: int
    embedding: int | None = Field(None, ge=1)  # hidden if not given, or what the vectors have
    tied: bool = False  # output and input words share their vectors; projected where the sizes differ
    projection: int | None = Field(None, ge=1)  # a narrower layer before the output
    head: Head = "full"
    cutoffs: Integers = ()  # adaptive only: ranks at which a rarer cluster begins; by the cost rule if not given
    tail_shrink: float | None = Field(None, ge=1)  # adaptive only: each rarer cluster so many times narrower; 4, tied 1
    samples: int | None = Field(None, ge=1)  # sampled, nce, blackout: words drawn a batch; V/16, at least 512
    alpha: float | None = Field(None, ge=0, le=1)  # the same: they are drawn by count^alpha; .75, nce 1, blackout .4
    vectors: str | None = None  # word2vec or GloVe text, the input words' vectors
    tune_vectors: bool = True
    dropout: float = Field(0.0, ge=0, lt=1)  # the three below where they are not given
    dropout_input: float | None = Field(None, ge=0, lt=1)
    dropout_layers: float | None = Field(None, ge=0, lt=1)  # between layers
    dropout_output: float | None = Field(None, ge=0, lt=1)
    dropout_embedding: float = Field(0.0, ge=0, lt=1)  # of whole words, for a whole step
    dropout_tail: float = Field(0.0, ge=0, lt=1)  # adaptive only: inside the clusters of rarer words

    def rate(self, place: Literal["input", "layers", "output"]) -> float:
        """How much is dropped there."""
        own: float | None = getattr(self, f"dropout_{place}")
        return self.dropout if own is None else own

    @model_validator(mode="after")
    def _words_and_head_apply(self) -> Self:
        if self.vectors is None and not self.tune_vectors:
            raise ValueError("tune_vectors=false needs vectors=FILE")
        if self.head != "adaptive" and (self.cutoffs or self.tail_shrink or self.dropout_tail):
            raise ValueError("cutoffs, tail_shrink and dropout_tail are for head=adaptive")
        if self.head in ("full", "adaptive") and (self.samples is not None or self.alpha is not None):
            raise ValueError("samples and alpha are for head=sampled, nce or blackout")
        if any(low >= high for low, high in zip((0, *self.cutoffs), self.cutoffs, strict=False)):
            raise ValueError("cutoffs are ranks that rise, like 1000,4000")
        if self.tied and self.tail_shrink not in (None, 1):
            raise ValueError("tied words are as wide at the output as at the input: tail_shrink must be 1")
        if self.tied and not self.tune_vectors:
            raise ValueError("tied words would be frozen at the output too; leave out tied or tune_vectors=false")
        if self.tied and self.projection is not None and self.embedding not in (None, self.projection):
            raise ValueError(
                f"tied: the projection ({self.projection}) must be as wide as the words ({self.embedding})"
            )
        return self


class TextNetConfig(NetConfig):
    """A net that is a language model; n-grams of what it has read may add to its output (Mikolov et al. 2011)."""

    maxent: int | None = Field(None, ge=2, le=20)  # words of the longest n-gram that has a weight of its own
    maxent_size: int | None = Field(None, ge=1)  # so many n-grams, the most frequent; else all that occur twice

    @model_validator(mode="after")
    def _ngrams_apply(self) -> Self:
        if self.maxent is None and self.maxent_size is not None:
            raise ValueError("maxent_size needs maxent=ORDER")
        return self


class WindowConfig(TextNetConfig):
    """A feed-forward net over the embeddings of the last few words (Bengio et al. 2003)."""

    family: Literal["window"] = "window"
    hidden: int = Field(256, ge=1)
    layers: int = Field(1, ge=0)  # 0 with direct connections is the log-bilinear way
    embedding: int | None = Field(None, ge=1)  # 128 if not given, or what the vectors have
    window: int = Field(5, ge=1, le=1000)  # words of history
    activation: Literal["tanh", "sigmoid", "relu"] = "tanh"
    skip: Skip = "none"
    direct: bool = False  # the words also reach the output past the hidden layers
    layer_norm: bool = False

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        if self.layers == 0 and not self.direct:
            raise ValueError("layers=0 needs direct=true, or nothing leads from the words to the output")
        if self.layer_norm and self.layers == 0:
            raise ValueError("layer_norm is for layers, and there are none")
        check_stack(layers=self.layers, skip=self.skip, dropout_layers=self.dropout_layers)
        return self


class RecurrentConfig(TextNetConfig):
    """A net that keeps a hidden state: `rnn` (Elman 1990), `gru` (Cho et al. 2014), `lstm` (Gers et al. 2000)."""

    family: Literal["rnn", "gru", "lstm"] = "lstm"
    hidden: int = Field(512, ge=0)  # 0 with maxent: n-gram features alone
    layers: int = Field(1, ge=1)
    activation: Literal["tanh", "sigmoid", "relu"] | None = None  # rnn only; tanh if not given
    recurrence: Literal["plain", "additive", "gated"] | None = None  # rnn only; plain if not given
    forget_bias: float | None = None  # lstm only; 1 if not given
    initial_state: Literal["zero", "learned"] = "zero"
    skip: Skip = "none"
    layer_norm: bool = False  # of what each layer and the output read
    weight_drop: float = Field(0.0, ge=0, lt=1)  # of recurrent weights (Merity et al. 2018)
    activation_penalty: float = Field(0.0, ge=0)  # AR: large outputs
    temporal_penalty: float = Field(0.0, ge=0)  # TAR: outputs that change quickly

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        for name, family in (("activation", "rnn"), ("recurrence", "rnn"), ("forget_bias", "lstm")):
            if getattr(self, name) is not None and self.family != family:
                raise ValueError(f"{name} is for {family}, not for {self.family}")
        check_stack(layers=self.layers, skip=self.skip, dropout_layers=self.dropout_layers)
        if self.hidden == 0:
            self._check_alone()
        return self

    def _check_alone(self) -> None:
        """Refuse what needs layers or word vectors."""
        if self.maxent is None:
            raise ValueError("hidden=0 is n-gram features alone, and needs maxent=ORDER")
        kept = {"family", "hidden", "head", "cutoffs", "samples", "alpha", "maxent", "maxent_size"}
        for name, field in type(self).model_fields.items():
            if name not in kept and getattr(self, name) not in (field.default, 0):
                raise ValueError(f"{name} does not apply with hidden=0: there are no layers")


class TransformerConfig(TextNetConfig):
    """A net that attends to the last tokens, wherever they stand (Vaswani et al. 2017), with relative positions only."""

    family: Literal["transformer"] = "transformer"
    hidden: int = Field(256, ge=1)
    layers: int = Field(2, ge=1)
    window: int = Field(128, ge=1, le=100_000)  # tokens that a layer attends to, the last one read among them
    attention_heads: int | None = Field(None, ge=1)  # about hidden / 64 if not given
    feed_forward: int | None = Field(None, ge=1)  # 4 * hidden if not given
    activation: Literal["gelu", "relu"] = "gelu"
    dropout_layers: float | None = Field(None, ge=0, lt=1)  # of what attention and feed-forward nets add

    @property
    def num_heads(self) -> int:
        """Of attention."""
        return self.attention_heads or fitting_heads(self.hidden)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        if self.hidden % self.num_heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of attention_heads ({self.num_heads})")
        return self


def check_stack(*, layers: int, skip: Skip, dropout_layers: float | None) -> None:
    """Refuse what needs two layers where there are not two."""
    if skip != "none" and layers < 2:
        raise ValueError(f"skip={skip} joins layers, and there are not two")
    if dropout_layers and layers < 2:
        raise ValueError("dropout_layers is between layers, and there are not two")


def fitting_heads(hidden: int) -> int:
    """As many heads of attention as divide `hidden` and are not too narrow."""
    return max(n for n in range(1, max(1, hidden // HEAD_WIDTH) + 1) if hidden % n == 0)
