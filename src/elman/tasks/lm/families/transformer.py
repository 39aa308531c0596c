"""`transformer`: a net that attends to a sliding window of tokens (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.config import LanguageNetConfig, fitting_heads
from elman.tasks.lm.family import NetFamily

if TYPE_CHECKING:
    from elman.tasks.lm.families.transformer_net import TransformerModel


class TransformerConfig(LanguageNetConfig):
    """A net that attends to the last tokens, wherever they stand (Vaswani et al. 2017), with relative positions only."""

    family: Literal["transformer"] = "transformer"
    hidden: int = Field(256, ge=1, description="width of the hidden layers")
    layers: int = Field(2, ge=1, description="number of layers")
    window: int = Field(
        128, ge=1, le=100_000, description="tokens that a layer attends to, the last one read among them"
    )
    attention_heads: int | None = Field(None, ge=1, description="heads of attention; about hidden / 64 if not given")
    feed_forward: int | None = Field(
        None, ge=1, description="width of the feed-forward layers; 4 * hidden if not given"
    )
    activation: Literal["gelu", "relu"] = Field("gelu", description="activation of the feed-forward layers")
    dropout_layers: float | None = Field(
        None, ge=0, lt=1, description="dropout of what attention and feed-forward layers add; `dropout` if not given"
    )

    @property
    def num_heads(self) -> int:
        """Of attention."""
        return self.attention_heads or fitting_heads(self.hidden)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        if self.hidden % self.num_heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of attention_heads ({self.num_heads})")
        return self


class TransformerFamily(NetFamily[TransformerConfig]):
    """Nets of causal self-attention."""

    record = TransformerConfig

    def check(self, config: TransformerConfig, ids: Array) -> None:
        """A window longer than the text would never be full."""
        if config.window > len(ids):
            raise UsageError(
                f"a window of {config.window} is longer than the text of {len(ids)} tokens",
                code="bad-value",
                hint=f"set model.window to {len(ids)} or less",
            )

    def net_class(self) -> type[TransformerModel]:
        """Imported when it is needed: torch takes seconds."""
        from elman.tasks.lm.families.transformer_net import TransformerModel

        return TransformerModel
