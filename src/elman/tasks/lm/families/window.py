"""`window`: a feed-forward net over the last few words (Bengio et al. 2003)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from elman.nets.config import LanguageNetConfig, Skip, check_stack
from elman.tasks.lm.family import NetFamily

if TYPE_CHECKING:
    from elman.tasks.lm.families.window_net import WindowModel


class WindowConfig(LanguageNetConfig):
    """A feed-forward net over the embeddings of the last few words (Bengio et al. 2003)."""

    family: Literal["window"] = "window"
    hidden: int = Field(256, ge=1, description="width of the hidden layers")
    layers: int = Field(1, ge=0, description="number of layers; 0 with direct=true is the log-bilinear model")
    embedding: int | None = Field(
        None, ge=1, description="width of the word vectors; 128 if not given, or what the vectors have"
    )
    window: int = Field(5, ge=1, le=1000, description="words of history")
    activation: Literal["tanh", "sigmoid", "relu"] = Field("tanh", description="activation of the hidden layers")
    skip: Skip = Field("none", description="connections past a layer, from what it reads to what it gives")
    direct: bool = Field(False, description="the words also reach the output past the hidden layers")
    layer_norm: bool = Field(False, description="normalise what each layer reads")

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        if self.layers == 0 and not self.direct:
            raise ValueError("layers=0 needs direct=true, or nothing leads from the words to the output")
        if self.layer_norm and self.layers == 0:
            raise ValueError("layer_norm is for layers, and there are none")
        check_stack(layers=self.layers, skip=self.skip, dropout_layers=self.dropout_layers)
        return self

    @property
    def usual_embedding(self) -> int:
        """Narrower than the hidden layer: the words of a whole window stand side by side."""
        return 128

    @classmethod
    def layer_weights(cls, family: str, *, hidden: int, layers: int) -> float:
        """With words of a quarter of the width."""
        window = int(cls.model_fields["window"].default)
        return hidden * window * hidden / 4 + max(0, layers - 1) * hidden**2

    @classmethod
    def usual_rate(cls, family: str) -> float | None:
        """Of Adam, for a wide net."""
        return 0.002


class WindowFamily(NetFamily[WindowConfig]):
    """Feed-forward nets."""

    record = WindowConfig

    def net_class(self) -> type[WindowModel]:
        """Imported when it is needed: torch takes seconds."""
        from elman.tasks.lm.families.window_net import WindowModel

        return WindowModel
