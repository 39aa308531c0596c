"""`rnn`, `gru` and `lstm`: nets that keep a hidden state (Elman 1990)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from elman.core.arrays import Array
from elman.nets.config import LanguageNetConfig, Reset, Skip, check_reset, check_stack
from elman.tasks.lm.family import NetFamily, Saveable, Shape

if TYPE_CHECKING:
    from elman.tasks.lm.families.recurrent_net import RecurrentModel


class RecurrentConfig(LanguageNetConfig):
    """A net that keeps a hidden state: `rnn` (Elman 1990), `gru` (Cho et al. 2014), `lstm` (Gers et al. 2000)."""

    family: Literal["rnn", "gru", "lstm"] = "lstm"
    hidden: int = Field(512, ge=0, description="width of the hidden layers; 0 with maxent: n-gram features alone")
    layers: int = Field(1, ge=1, description="number of layers")
    activation: Literal["tanh", "sigmoid", "relu"] | None = Field(
        None, description="rnn: activation of the state; tanh if not given"
    )
    recurrence: Literal["plain", "additive", "gated"] | None = Field(
        None, description="rnn: how the state is carried on; plain if not given"
    )
    reset: Reset = Field(
        None, description="gru: reset the state before or after its product with the weights; after if not given"
    )
    forget_bias: float | None = Field(None, description="lstm: bias of the forget gate at the start; 1 if not given")
    initial_state: Literal["zero", "learned"] = Field("zero", description="the state before anything was read")
    skip: Skip = Field("none", description="connections past a layer, from what it reads to what it gives")
    layer_norm: bool = Field(False, description="normalise what each layer and the output read")
    weight_drop: float = Field(
        0.0, ge=0, lt=1, description="share of the recurrent weights left out in training (Merity et al. 2018)"
    )
    activation_penalty: float = Field(0.0, ge=0, description="penalty on large outputs (AR, Merity et al. 2018)")
    temporal_penalty: float = Field(
        0.0, ge=0, description="penalty on outputs that change quickly (TAR, Merity et al. 2018)"
    )

    nets: int = Field(
        1,
        ge=1,
        le=20,
        description="nets that are trained side by side, each with weights of its own; their mean predicts",
        exclude_if=lambda value: value == 1,  # the records of single nets are as those of version 0.1.0
    )

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        for name, family in (("activation", "rnn"), ("recurrence", "rnn"), ("forget_bias", "lstm")):
            if getattr(self, name) is not None and self.family != family:
                raise ValueError(f"{name} is for {family}, not for {self.family}")
        check_reset(self.family, self.reset)
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


class RecurrentFamily(NetFamily[RecurrentConfig]):
    """Recurrent nets."""

    record = RecurrentConfig

    def net_class(self) -> type[RecurrentModel]:
        """Imported when it is needed: torch takes seconds."""
        from elman.tasks.lm.families.recurrent_net import RecurrentModel

        return RecurrentModel

    def build(self, config: RecurrentConfig, ids: Array, shape: Shape, *, seed: int, vectors: Array | None) -> Any:
        """One net, or several, each drawn by a seed of its own."""
        one, build = config.model_copy(update={"nets": 1}), super().build
        nets = [build(one, ids, shape, seed=_own_seed(seed, i), vectors=vectors) for i in range(config.nets)]
        if config.nets == 1:
            return nets[0]
        from elman.tasks.lm.families.committee_net import Committee

        return Committee(config, nets)

    def restore(self, config: RecurrentConfig, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The net or the nets that were saved."""
        if config.nets == 1:
            return super().restore(config, tensors, shape)
        from elman.tasks.lm.families.committee_net import Committee

        return Committee.from_tensors(config, tensors, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines)


def _own_seed(seed: int, place: int) -> int:
    """Of a net among several: runs with other seeds have none of them."""
    import numpy as np

    return seed if place == 0 else int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
