"""`int8`: a recurrent net whose weights are 8-bit integers, made from a trained one by `elman export --format int8`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.family import MemberFamily, Saveable, Shape


class Int8Config(Config):
    """A trained net with weights of 8 bits."""

    family: Literal["int8"] = "int8"
    net: RecurrentConfig = Field(description="settings of the net it was made from")


class Int8Family(MemberFamily[Int8Config]):
    """Nets that are used, and no longer trained."""

    record = Int8Config
    is_built = True
    made_by = "elman export DIR --format int8 --out DIR"

    def restore(self, config: Int8Config, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The net that was saved."""
        from elman.tasks.lm.families.int8_net import Int8Model

        return Int8Model.from_tensors(config.net, tensors, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines)
