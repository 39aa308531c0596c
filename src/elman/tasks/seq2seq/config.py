"""Settings of `elman train seq2seq`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Columns
from elman.nets.config import NetConfig, Reset, Score, Skip, check_reset, fitting_heads
from elman.text.settings import ReadingConfig, Units, check_columns

Context = Literal["initial", "every", "all", "fixed", "attention"]


class PairsConfig(ReadingConfig):
    """How pairs of a source and a target become symbols."""

    units: Units = Field("auto", description="how text is cut into tokens; auto looks at the data; of both sides")
    source_units: Units | None = Field(None, description="units of the source; as `units` if not given")
    target_units: Units | None = Field(None, description="units of the target; as `units` if not given")
    shared: bool = Field(False, description="one vocabulary for both sides")
    source: Columns = Field(
        (),
        description="columns of a table that are the source, from 1 or by name, or keys of records; several are joined",
    )
    target: Columns = Field(
        (),
        description="columns of a table that are the target, from 1 or by name, or keys of records; several are joined",
    )
    header: bool | None = Field(
        None, description="whether a file's first row names its columns; by its look if not given"
    )
    spelled: Columns = Field(
        (), description="columns of the source that are spelt letter by letter, while the others are symbols"
    )
    min_count: int = Field(2, ge=1, description="words seen less often are <unk>")
    max_words: int = Field(
        60_000,
        ge=1,
        le=2_000_000,
        description="size of the vocabulary, at most; the most frequent words are kept, on each side",
    )
    max_length: int | None = Field(
        None, ge=1, description="tokens of a source to train on, at most; 1,000 of either side if not given"
    )
    too_long: Literal["refuse", "truncate", "drop"] | None = Field(
        None, description="what becomes of longer pairs; refuse if not given, drop where max_length is given"
    )
    heldout: float = Field(
        0.05, gt=0, lt=1, description="share of the sources that is held out where no --valid is given"
    )

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        check_columns(self.source, self.target)
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


class Seq2SeqConfig(NetConfig):
    """A source is read, then a target is written (Sutskever et al. 2014), looking back at it (Bahdanau et al. 2015)."""

    family: Literal["rnn", "gru", "lstm", "transformer"] = "lstm"
    hidden: int = Field(256, ge=1, description="width of the decoder; the encoder's two directions share it")
    layers: int = Field(1, ge=1, description="layers of the decoder")
    reset: Reset = Field(
        None, description="gru: reset the state before or after its product with the weights; after if not given"
    )
    encoder_layers: int | None = Field(
        None, ge=1, description="layers of the encoder; as many as the decoder's if not given"
    )
    bidirectional: bool = Field(True, description="read the source from both ends")
    bridge: Literal["dense", "copy", "zero"] = Field(
        "dense", description="from the encoder's last state to the decoder's first"
    )
    context: Context = Field("attention", description="how the source reaches the decoder")
    positions: int | None = Field(
        None,
        ge=1,
        description="context=all and fixed: source positions with weights of their own; as the longest source if not given",
    )
    fixed_reaches: Annotated[Literal["cells", "output"] | None, Field(exclude_if=lambda value: value is None)] = Field(
        None,
        description="context=fixed: the sum is read by the cells and the output; or by the output alone, as in 0.1.0",
    )
    score: Score | None = Field(
        None, description="context=attention: how a query is compared with the source; bilinear if not given"
    )
    attend: Literal["before", "after"] | None = Field(
        None, description="context=attention: look at the source before or after the recurrence; after if not given"
    )
    input_feeding: bool = Field(
        False, description="context=attention: what was written last, as the output saw it, is read with the word"
    )
    shared_words: bool = Field(False, description="source and target words have the same vectors; needs data.shared")
    skip: Skip = Field("none", description="connections past a layer, from what it reads to what it gives")
    layer_norm: bool = Field(False, description="normalise what each layer and the output read")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target probability that is spread over all words"
    )
    own_words: float = Field(
        0.0, ge=0, le=1, description="scheduled sampling: share of its own words that the decoder reads at last"
    )
    attention_heads: int | None = Field(
        None, ge=1, description="transformer: heads of attention; about hidden / 64 if not given"
    )
    feed_forward: int | None = Field(
        None, ge=1, description="transformer: width of the feed-forward layers; 4 * hidden if not given"
    )
    window: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="transformer: target tokens that a layer attends to; as longest_target if not given",
    )
    longest_target: int | None = Field(
        None, ge=1, description="tokens of the longest target; as in training if not given"
    )
    length_ratio: float | None = Field(
        None,
        gt=0,
        description="targets are at most so many times as long as their sources, and 10 more; as in training if not given",
    )
    own_words_steps: int | None = Field(
        None, ge=1, description="scheduled sampling: steps until own_words is reached; 2,000 if not given"
    )

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
        check_reset(self.family, self.reset)
        for name in ("score", "attend"):
            if getattr(self, name) is not None and self.context != "attention":
                raise ValueError(f"{name} is for context=attention, not for {self.context}")
        if self.input_feeding and self.context != "attention":
            raise ValueError(f"input_feeding is for context=attention, not for {self.context}")
        if self.positions is not None and self.context not in ("all", "fixed"):
            raise ValueError(f"positions is for context=all and context=fixed, not for {self.context}")
        if self.fixed_reaches is not None and self.context != "fixed":
            raise ValueError(f"fixed_reaches is for context=fixed, not for {self.context}")
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
            raise ValueError(f"skip={self.skip} needs at least two layers")
        return self
