"""The families of language models, one file each: its settings, what it costs, how it is made and restored.

A new family is one file and one line in FAMILIES.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elman.core.arrays import Array
from elman.core.errors import UsageError, no_such
from elman.core.settings import Config
from elman.tasks.lm.families.hf import HfFamily
from elman.tasks.lm.families.int8 import Int8Family
from elman.tasks.lm.families.kneser_ney import KneserNeyFamily
from elman.tasks.lm.families.mixed import CacheFamily, MixtureFamily, NeuralCacheFamily
from elman.tasks.lm.families.recurrent import RecurrentFamily
from elman.tasks.lm.families.smoothed import BigramConfig, NgramConfig, SmoothedFamily, UnigramConfig
from elman.tasks.lm.families.snm import SnmFamily
from elman.tasks.lm.families.transformer import TransformerFamily
from elman.tasks.lm.families.uniform import UniformFamily
from elman.tasks.lm.families.window import WindowFamily
from elman.tasks.lm.family import Family, Saveable, Shape

FAMILIES: tuple[Family[Any], ...] = (
    UniformFamily(),
    SmoothedFamily(UnigramConfig),
    SmoothedFamily(BigramConfig),
    SmoothedFamily(NgramConfig),
    KneserNeyFamily(),
    SnmFamily(),
    WindowFamily(),
    RecurrentFamily(),
    TransformerFamily(),
    Int8Family(),
    HfFamily(),
    MixtureFamily(),
    CacheFamily(),
    NeuralCacheFamily(),
)


def add_family(family: Family[Any]) -> None:
    """Let `elman.train`, `load` and `mix` know a family of your own, from now on and in this process (docs/own-models.md)."""
    global FAMILIES
    taken = set(family.names) & set(family_names())
    if taken:
        raise UsageError(
            f"there is a model {min(taken)!r} already", code="given-twice", hint="give the family another name"
        )
    FAMILIES = (*FAMILIES, family)


def family_names(*, from_text: bool = False) -> list[str]:
    """What --model can be; `from_text` leaves out what is only made by mixing."""
    return [name for family in FAMILIES for name in family.names if not (from_text and family.needs_members)]


def find_family(name: object) -> Family[Any]:
    """The family of that name."""
    for family in FAMILIES:
        if name in family.names:
            return family
    raise no_such("model", name, family_names(from_text=True))


def restore_model(config: Config, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
    """The model that was saved with these settings and tensors."""
    family = find_family(getattr(config, "family", None))
    if not family.is_built:
        return family.restore(config, tensors, shape)
    from elman.nets.allocation import BoundedBy

    with BoundedBy(tensors):
        return family.restore(config, tensors, shape)
