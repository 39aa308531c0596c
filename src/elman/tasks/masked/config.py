"""A net that restores what was left out of a text."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from elman.nets.config import Reset, Skip, TextNetConfig, check_reset, check_stack, fitting_heads


class MaskedConfig(TextNetConfig):
    """A net that restores tokens left out of a text, from both sides: `rnn`, `gru`, `lstm` or `transformer`."""

    family: Literal["rnn", "gru", "lstm", "transformer"] = "lstm"
    hidden: int = Field(
        256, ge=1, description="width of the hidden layers: of each direction; of a transformer, in all"
    )
    layers: int = Field(2, ge=1, description="number of layers")
    mask: float = Field(
        0.15, gt=0, lt=1, description="share of the tokens to restore; of these 8 in 10 are hidden (BERT)"
    )
    window: int | None = Field(
        None, ge=1, description="transformer: distances told apart, to either side; 64 if not given"
    )
    attention_heads: int | None = Field(
        None, ge=1, description="transformer: heads of attention; about hidden / 64 if not given"
    )
    feed_forward: int | None = Field(
        None, ge=1, description="transformer: width of the feed-forward layers; 4 * hidden if not given"
    )
    activation: Literal["gelu", "relu"] | None = Field(
        None, description="transformer: activation of the feed-forward layers; gelu if not given"
    )
    reset: Reset = Field(
        None, description="gru: reset the state before or after its product with the weights; after if not given"
    )
    skip: Skip = Field(
        "none", description="rnn, gru and lstm: connections past a layer, from what it reads to what it gives"
    )
    layer_norm: bool = Field(False, description="rnn, gru and lstm: normalise what each layer and the output read")

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
        check_reset(self.family, self.reset)
        for name in ("window", "attention_heads", "feed_forward", "activation"):
            if getattr(self, name) is not None and self.family != "transformer":
                raise ValueError(f"{name} is for transformer, not for {self.family}")
        if self.family == "transformer" and (self.skip != "none" or self.layer_norm):
            raise ValueError("skip and layer_norm are for rnn, gru and lstm: a transformer has its own")
        if self.family == "transformer" and self.hidden % self.num_heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of attention_heads ({self.num_heads})")
        if self.family != "transformer":
            check_stack(layers=self.layers, skip=self.skip, dropout_layers=self.dropout_layers)
        return self
