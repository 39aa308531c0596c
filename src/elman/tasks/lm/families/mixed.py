"""`mixture`, `cache` and `neural-cache`: what `elman mix` makes of other models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.core.tensors import under_prefix
from elman.lm.cache import CacheConfig, CacheModel
from elman.lm.mixture import Mixture
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig
from elman.tasks.lm.family import MemberFamily, Saveable, Shape


def parse_model(value: Any) -> Any:
    """The settings of a language model, of whatever family they name."""
    if not isinstance(value, Mapping):
        return value
    from elman.tasks.lm.families import find_family

    return find_family(value.get("family")).record.model_validate(value)


ModelConfig = Annotated[SerializeAsAny[Config], BeforeValidator(parse_model)]


class MixtureConfig(Config):
    """Weighted models. The weights are fitted by EM and kept with the model."""

    family: Literal["mixture"] = "mixture"
    members: tuple[ModelConfig, ...] = Field(
        min_length=1, description="settings of the models that are mixed; made by `elman mix`"
    )
    bucketed: bool = Field(
        False, description="a set of weights for each frequent last word, and for each class of rarer ones"
    )


class MixtureFamily(MemberFamily[MixtureConfig]):
    """Weighted members."""

    record = MixtureConfig

    def restore(self, config: MixtureConfig, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The members, each from its own tensors, and their weights."""
        from elman.tasks.lm.families import restore_model

        members: list[Any] = [
            NeuralCache(member, vocab_size=shape.vocab_size)
            if isinstance(member, NeuralCacheConfig)
            else restore_model(member, under_prefix(tensors, f"members.{i}."), shape)
            for i, member in enumerate(config.members)
        ]
        return Mixture.from_tensors(members, tensors, bucketed=config.bucketed)


class CacheFamily(MemberFamily[CacheConfig]):
    """What was just read."""

    record = CacheConfig

    def restore(self, config: CacheConfig, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """A cache has no tensors."""
        return CacheModel.from_tensors(config, tensors, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines)


class NeuralCacheFamily(MemberFamily[NeuralCacheConfig]):
    """What was read after like histories of a net."""

    record = NeuralCacheConfig

    def restore(self, config: NeuralCacheConfig, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """It follows a net of its mixture, which restores it."""
        raise TypeError("a neural cache is restored by its mixture")
