"""Everything a user can set, as frozen records. Unknown keys are refused, and the nearest valid one is named.

A setting that cannot apply is not a field of that family's record, so it is refused like any other unknown key.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from elman.errors import MissingError, UsageError


class Config(BaseModel):
    """A frozen record of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _split_commas(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Integers = Annotated[tuple[int, ...], BeforeValidator(_split_commas)]


class DataConfig(Config):
    """How text becomes symbols."""

    units: str = Field("auto", pattern=r"^(auto|space|word|char|byte|bpe:[1-9][0-9]*)$")
    reset_lines: bool = False  # each line alone (the n-gram tools' way) instead of one stream
    min_count: int = Field(2, ge=1)  # words seen less often are <unk>, unless the text has <unk> itself
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    errors: Literal["strict", "replace"] = "strict"  # broken UTF-8: refuse, or put U+FFFD
    skip_bad: bool = False  # drop malformed lines and count them
    separator: str | None = Field(None, min_length=1)  # for `space` units whose symbols contain spaces
    heldout: float = Field(0.05, gt=0, lt=1)  # the part of DATA held out where no --valid is given


Units = Annotated[str, Field(pattern=r"^(auto|space|word|char|byte|bpe:[1-9][0-9]*)$")]


class PairsConfig(Config):
    """How pairs of a source and a target become symbols."""

    units: Units = "auto"  # of both sides
    source_units: Units | None = None  # `units` where they are not given
    target_units: Units | None = None
    shared: bool = False  # one vocabulary for both sides
    source: Integers = ()  # columns of a table, from 1; several are joined by a space
    target: Integers = ()
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


def _check_columns(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    if bool(source) != bool(target):
        raise ValueError("source and target are columns of one table: give both or neither")
    if any(column < 1 for column in (*source, *target)):
        raise ValueError("columns are numbered from 1")


class LabelledConfig(Config):
    """How texts with labels become symbols."""

    units: str = Field("auto", pattern=r"^(auto|space|word|char)$")
    lower_case: bool = True  # letters are made small first
    source: Integers = ()  # columns of a table, from 1: of the text; several are joined by a space
    target: Integers = ()  # the same: of the label
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


class UniformConfig(Config):
    """Every symbol as likely as any other: the model every other one has to beat."""

    family: Literal["uniform"] = "uniform"


Skip = Literal["none", "residual", "highway", "dense"]  # between layers
# The output: one softmax; frequent words first and rare ones in clusters; or one softmax trained on a few words at a time
Head = Literal["full", "adaptive", "sampled", "nce", "blackout"]

Smoothing = Literal["ml", "add", "interpolated", "witten-bell", "absolute"]


class UnigramConfig(Config):
    """Words by their frequency alone."""

    family: Literal["unigram"] = "unigram"
    smoothing: Literal["ml", "add"] = "add"
    alpha: float | None = Field(None, gt=0)  # tuned on held-out text if not given

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, ())
        return self

    @property
    def order(self) -> int:
        return 1


class BigramConfig(Config):
    """One word of history."""

    family: Literal["bigram"] = "bigram"
    smoothing: Smoothing = "add"
    alpha: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, ())
        return self

    @property
    def order(self) -> int:
        return 2


class NgramConfig(Config):
    """order - 1 words of history, smoothed in one of the classic ways."""

    family: Literal["ngram"] = "ngram"
    order: int = Field(3, ge=1, le=20)
    smoothing: Smoothing = "interpolated"
    alpha: float | None = Field(None, gt=0)  # `add` only
    prune: Integers = ()  # drop k-grams seen at most prune[k-1] times; the last number holds for higher orders

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, self.prune)
        return self


class KneserNeyConfig(Config):
    """Interpolated Kneser-Ney: `kn` with one discount an order, `mkn` with three (Chen & Goodman 1998)."""

    family: Literal["kn", "mkn"] = "mkn"
    order: int = Field(5, ge=1, le=20)
    prune: Integers = ()

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)


class SnmConfig(Config):
    """Sparse non-negative matrix estimation: n-gram and skip-gram features, adjustment fitted on held-out text."""

    family: Literal["snm"] = "snm"
    order: int = Field(5, ge=1, le=10)  # n-gram features of 0 .. order-1 words
    skip_words: int = Field(2, ge=0, le=4)  # words of context in a skip-gram feature; 0 for none
    max_skip: int = Field(3, ge=1, le=10)  # words a skip-gram may leave out
    reach: int = Field(20, ge=0, le=200)  # single words beyond, as far back as this, wherever they stand; 0 for none


class CacheConfig(Config):
    """What was said is said again: p from the text just read. Only useful inside a mixture."""

    family: Literal["cache"] = "cache"
    window: int | None = Field(None, ge=1)  # only the last so many words; without a decay all of them equally
    decay: float | None = Field(None, gt=0, le=1)  # each step's weight times this; 0.995 where there is no window

    @model_validator(mode="after")
    def _forgets(self) -> Self:
        if self.window is None and self.decay == 1:
            raise ValueError("a cache that never forgets needs a window")
        return self

    @property
    def kept(self) -> float:
        """What is left of a word's weight after one more word."""
        return self.decay or (0.995 if self.window is None else 1.0)


class NeuralCacheConfig(Config):
    """What was said after a like history is said again (Grave et al. 2017). Only beside a net, inside a mixture."""

    family: Literal["neural-cache"] = "neural-cache"
    window: int = Field(2000, ge=1)  # so many histories are kept
    theta: float | None = Field(None, ge=0)  # how much likeness counts; tuned if not given
    decay: float | None = Field(None, gt=0, le=1)  # each step's weight times this; tuned if not given
    net: int | None = Field(None, ge=0)  # whose histories: a place among the members; the first net if not given


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
        _check_stack(self)
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
        _check_stack(self)
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


def _check_stack(config: WindowConfig | RecurrentConfig | MaskedConfig) -> None:
    """Refuse what needs two layers where there are not two."""
    if config.skip != "none" and config.layers < 2:
        raise ValueError(f"skip={config.skip} joins layers, and there are not two")
    if config.dropout_layers and config.layers < 2:
        raise ValueError("dropout_layers is between layers, and there are not two")


HEAD_WIDTH = 48  # of attention, at least, where the number of heads is not given


def fitting_heads(hidden: int) -> int:
    """As many heads of attention as divide `hidden` and are not too narrow."""
    return max(n for n in range(1, max(1, hidden // HEAD_WIDTH) + 1) if hidden % n == 0)


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


class MaskedConfig(NetConfig):
    """A net that restores tokens left out of a text, from both sides: `rnn`, `gru`, `lstm` or `transformer`."""

    family: Literal["rnn", "gru", "lstm", "transformer"] = "lstm"
    hidden: int = Field(256, ge=1)  # of each direction; of a transformer, in all
    layers: int = Field(2, ge=1)
    mask: float = Field(0.15, gt=0, lt=1)  # the part of the tokens to restore; of these 8 in 10 are hidden (BERT)
    window: int | None = Field(None, ge=1)  # transformer only: distances told apart, to either side; 64 if not given
    attention_heads: int | None = Field(None, ge=1)  # transformer only; about hidden / 64 if not given
    feed_forward: int | None = Field(None, ge=1)  # transformer only; 4 * hidden if not given
    activation: Literal["gelu", "relu"] | None = None  # transformer only; gelu if not given
    skip: Skip = "none"  # between recurrent layers
    layer_norm: bool = False  # of what each recurrent layer and the output read

    @property
    def num_heads(self) -> int:
        """Of attention."""
        return self.attention_heads or fitting_heads(self.hidden)

    @property
    def stride(self) -> int:
        """Every so many-th token is hidden at once where a text is measured: as few as in training, or fewer."""
        return max(2, math.ceil(1 / self.mask))

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        for name in ("window", "attention_heads", "feed_forward", "activation"):
            if getattr(self, name) is not None and self.family != "transformer":
                raise ValueError(f"{name} is for transformer, not for {self.family}")
        if self.family == "transformer" and (self.skip != "none" or self.layer_norm):
            raise ValueError("skip and layer_norm are for rnn, gru and lstm: a transformer has its own")
        if self.family == "transformer" and self.hidden % self.num_heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of attention_heads ({self.num_heads})")
        if self.family != "transformer":
            _check_stack(self)
        return self


Context = Literal["initial", "every", "all", "fixed", "attention"]
Score = Literal["dot", "scaled", "bilinear", "additive"]


class Seq2SeqConfig(NetConfig):
    """A source is read, then a target is written (Sutskever et al. 2014), looking back at it (Bahdanau et al. 2015)."""

    family: Literal["rnn", "gru", "lstm", "transformer"] = "lstm"
    hidden: int = Field(256, ge=1)  # of the decoder; the encoder's two directions share it
    layers: int = Field(1, ge=1)  # of the decoder
    encoder_layers: int | None = Field(None, ge=1)  # as many as the decoder's if not given
    bidirectional: bool = True
    bridge: Literal["dense", "copy", "zero"] = "dense"  # from the encoder's last state to the decoder's first
    context: Context = "attention"  # how the source reaches the decoder
    positions: int | None = Field(None, ge=1)  # all and fixed: of the source; as the longest one if not given
    score: Score | None = None  # attention only; bilinear if not given
    attend: Literal["before", "after"] | None = None  # attention only: before or after the recurrence; after
    input_feeding: bool = False  # attention only: what was written last, as the output saw it, is read with the word
    shared_words: bool = False  # source and target words have the same vectors; needs data.shared
    skip: Skip = "none"
    layer_norm: bool = False
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    own_words: float = Field(0.0, ge=0, le=1)  # scheduled sampling: the part of its own words that it reads at last
    attention_heads: int | None = Field(None, ge=1)  # transformer only: about hidden / 64 if not given
    feed_forward: int | None = Field(None, ge=1)  # transformer only: 4 * hidden if not given
    window: int | None = Field(None, ge=1, le=100_000)  # transformer only: of the target; as longest_target
    longest_target: int | None = Field(None, ge=1)  # tokens; as in training
    length_ratio: float | None = Field(None, gt=0)  # targets are at most so many times as long as their sources, and 10
    own_words_steps: int | None = Field(None, ge=1)  # scheduled sampling: steps until that part is reached; 2,000

    @property
    def cell(self) -> Literal["rnn", "gru", "lstm"]:
        """The kind of a recurrent encoder and decoder."""
        if self.family == "transformer":
            raise ValueError("a transformer has no cells")
        return self.family

    @property
    def num_heads(self) -> int:
        """A transformer's attention heads."""
        return self.attention_heads or fitting_heads(self.hidden)

    @model_validator(mode="after")
    def _family_applies(self) -> Self:
        of_cells = ("bidirectional", "bridge", "context", "positions", "score", "attend", "input_feeding", "skip")
        of_blocks = ("attention_heads", "feed_forward", "window")
        others = (*of_cells, "layer_norm") if self.family == "transformer" else of_blocks
        for name in others:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does not apply to {self.family}")
        if self.family == "transformer" and self.hidden % self.num_heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of attention_heads ({self.num_heads})")
        return self

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        for name in ("score", "attend"):
            if getattr(self, name) is not None and self.context != "attention":
                raise ValueError(f"{name} is for context=attention, not for {self.context}")
        if self.input_feeding and self.context != "attention":
            raise ValueError(f"input_feeding is for context=attention, not for {self.context}")
        if self.positions is not None and self.context not in ("all", "fixed"):
            raise ValueError(f"positions is for context=all and context=fixed, not for {self.context}")
        if self.own_words_steps is not None and not self.own_words:
            raise ValueError("own_words_steps needs own_words")
        if self.vectors is not None:
            raise ValueError("vectors are not for seq2seq")
        if self.bidirectional and self.hidden % 2:
            raise ValueError(f"hidden ({self.hidden}) is shared by the encoder's two directions: make it even")
        if self.bridge == "zero" and self.context == "initial":
            raise ValueError("bridge=zero and context=initial: nothing would lead from the source to the target")
        if self.bridge == "copy" and (self.encoder_layers or self.layers) != self.layers:
            raise ValueError("bridge=copy needs as many encoder_layers as layers")
        if self.head not in ("full", "adaptive") or (self.head == "adaptive" and self.label_smoothing):
            raise ValueError(f"head={self.head} is not for seq2seq with these settings")
        if self.skip != "none" and max(self.layers, self.encoder_layers or 0) < 2:
            raise ValueError(f"skip={self.skip} joins layers, and there are not two")
        return self


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

    characters: Literal["rnn", "cnn", "none"] = "rnn"  # how the spelling of a word is read
    character_embedding: int = Field(32, ge=1)
    character_hidden: int = Field(50, ge=1)  # of each direction of an rnn; half the filters of a cnn
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
    """An answer to a question about a text, at whose sentences it looks several times (Sukhbaatar et al. 2015)."""

    family: Literal["rnn", "gru", "lstm"] = "gru"
    hidden: int = Field(64, ge=1)
    embedding: int | None = Field(None, ge=1)  # 100 if not given, or what the vectors have
    hops: int = Field(3, ge=1)  # how often it looks at the text
    positions: int = Field(100, ge=1)  # sentences told apart by how long ago they were


class MixtureConfig(Config):
    """Weighted models. The weights are fitted by EM and kept with the model."""

    family: Literal["mixture"] = "mixture"
    members: tuple[ModelConfig, ...] = Field(min_length=1)
    bucketed: bool = False  # a set of weights for each frequent last word, and for each class of rarer ones


ModelConfig = Annotated[
    UniformConfig
    | UnigramConfig
    | BigramConfig
    | NgramConfig
    | KneserNeyConfig
    | SnmConfig
    | CacheConfig
    | NeuralCacheConfig
    | WindowConfig
    | RecurrentConfig
    | TransformerConfig
    | MixtureConfig,
    Field(discriminator="family"),
]
MixtureConfig.model_rebuild()


class TrainConfig(Config):
    """How a net descends. What is None is chosen from the data and the budget, and said."""

    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = "adam"
    learning_rate: float | None = Field(None, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)  # sgd and rmsprop
    beta1: float = Field(0.0, ge=0, lt=1)  # adam: 0 is what tuned LSTMs use (Melis et al. 2018)
    beta2: float = Field(0.999, gt=0, lt=1)  # adam; the smoothing of rmsprop
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(2.0, ge=0)  # the largest norm of a gradient; 0 for any
    schedule: Literal["linear", "cosine", "one-cycle", "plateau", "constant"] | None = None
    warmup: float = Field(0.05, ge=0, lt=1)  # the part of the run in which the rate rises
    flat: float = Field(0.4, ge=0, lt=1)  # linear: where the rate begins to fall
    decay: float = Field(0.5, gt=0, lt=1)  # plateau: of the rate, when a validation is no better than the best
    batch: int | None = Field(None, ge=1)  # streams side by side
    bptt: int | None = Field(None, ge=1)  # tokens a gradient goes back
    bptt_spread: float = Field(0.0, ge=0)  # standard deviation of bptt from step to step, the rate scaled with it
    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, ge=1)
    patience: int | None = Field(None, ge=1)  # validations without a gain before the end
    validate_steps: int | None = Field(None, ge=1)  # between validations; else once a pass
    average: Literal["ema", "tail", "none"] = "ema"  # of the weights; the average is what is evaluated and kept
    average_decay: float = Field(0.999, gt=0, lt=1)  # ema, at its longest
    average_tail: float = Field(0.25, gt=0, le=1)  # tail: the last part of the run, averaged evenly
    fit_temperature: bool = True  # one number for the softmax, fitted on the validation text at the end
    checkpoint_seconds: float = Field(60.0, gt=0)
    checkpoint_steps: int | None = Field(None, ge=1)
    log_steps: int = Field(10, ge=1)
    tensorboard: bool = False

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        owners: dict[str, tuple[str, set[str | None]]] = {
            "momentum": ("optimiser", {"sgd", "rmsprop"}),
            "beta1": ("optimiser", {"adam", "adamw"}),
            "beta2": ("optimiser", {"adam", "adamw", "rmsprop"}),
            "flat": ("schedule", {"linear", None}),
            "decay": ("schedule", {"plateau", None}),
            "average_decay": ("average", {"ema"}),
            "average_tail": ("average", {"tail"}),
        }
        for name, (owner, values) in owners.items():
            is_set = getattr(self, name) != type(self).model_fields[name].default  # a dump sets every field
            if is_set and getattr(self, owner) not in values:
                raise ValueError(f"{name} does not apply with {owner}={getattr(self, owner)}")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self


class TaskSettings(NamedTuple):
    """The records of a task that is not language modelling."""

    data: type[Config]
    model: type[Config]


def tasks() -> dict[str, TaskSettings]:
    """The name of every task besides `lm`, and its records."""
    return {
        "masked": TaskSettings(DataConfig, MaskedConfig),
        "bilm": TaskSettings(DataConfig, RecurrentConfig),
        "seq2seq": TaskSettings(PairsConfig, Seq2SeqConfig),
        "tag": TaskSettings(SentencesConfig, TaggerConfig),
        "classify": TaskSettings(LabelledConfig, ClassifierConfig),
        "qa": TaskSettings(StoriesConfig, ReaderConfig),
    }


def families() -> dict[str, type[Config]]:
    """The name of every family and its record."""
    found: dict[str, type[Config]] = {}
    for record in get_args(get_args(ModelConfig)[0]):
        for name in get_args(record.model_fields["family"].annotation):
            found[name] = record
    return found


def _checked_prune(value: tuple[int, ...]) -> tuple[int, ...]:
    if any(count < 0 for count in value) or list(value) != sorted(value):
        raise ValueError("prune takes counts that never fall from one order to the next, like 0,0,1")
    if value and value[0] > 0:
        raise ValueError("words are not pruned, so prune begins with 0; data.min_count leaves out rare words")
    return value


def _check_smoothing(smoothing: str, alpha: float | None, prune: tuple[int, ...]) -> None:
    if alpha is not None and smoothing != "add":
        raise ValueError(f"alpha is for smoothing=add, not for {smoothing}")
    if any(prune) and smoothing in ("ml", "add"):
        raise ValueError(f"prune needs a smoothing that backs off, and {smoothing} does not")


def make(record: type[Config], settings: Mapping[str, Any], *, section: str) -> Any:
    """A record from settings, or a UsageError that names the nearest valid key."""
    for key in settings:
        if key not in record.model_fields:
            valid = [name for name in record.model_fields if name != "family"]
            close = difflib.get_close_matches(key, valid, n=1, cutoff=0.4)
            family = f" of {settings['family']}" if "family" in settings else ""
            hint = f"did you mean {section}.{close[0]}?" if close else None
            if not close:
                hint = f"valid here: {', '.join(f'{section}.{name}' for name in valid) or 'nothing can be set'}"
            raise UsageError(f"{section}.{key} is not a setting{family}", hint=hint)
    try:
        return record.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (section, *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        got = f" (got {first['input']!r})" if first["loc"] else ""
        raise UsageError(f"{place}: {message[:1].lower()}{message[1:]}{got}") from None


def parse_settings(pairs: Iterable[str], recipe: Path | None = None) -> dict[str, dict[str, Any]]:
    """`section.key=value` pairs and a recipe file as {section: {key: value}}; pairs win over the file."""
    settings: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "train": {}}
    if recipe is not None:
        for section, values in read_recipe(recipe).items():
            _section(settings, section, f"[{section}] in {recipe}").update(values)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise UsageError(f"--set {pair} is not of the form section.key=value", hint="for example model.order=5")
        _section(settings, section, f"--set {pair}")[name] = value
    return settings


def _section(settings: dict[str, dict[str, Any]], section: str, where: str) -> dict[str, Any]:
    if section not in settings:
        raise UsageError(f"{where}: there is no section {section!r}", hint=f"sections: {', '.join(settings)}")
    return settings[section]


RECIPES = Path(__file__).with_name("recipes")


def recipes() -> list[str]:
    """The names of the recipes that are shipped."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML recipe: a file, or a shipped one by its name."""
    if str(path) in recipes() and not path.exists():
        path = RECIPES / f"{path}.toml"
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        hint = f"a file, or one of {', '.join(recipes())}"
        raise MissingError(f"cannot read the recipe {path}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    for section, values in tables.items():
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {section} is outside a table", hint="put it under [data], [model] or [train]")
    return tables
