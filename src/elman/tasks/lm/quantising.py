"""Language models with the weights of their recurrent nets as 8-bit integers. What counts stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from elman.core.errors import UsageError
from elman.core.settings import Config
from elman.lm.mixture import Mixture
from elman.tasks.lm.families.int8 import Int8Config
from elman.tasks.lm.families.mixed import MixtureConfig
from elman.tasks.lm.families.recurrent import RecurrentConfig


def to_int8(lm: Any, config: Config) -> tuple[Any, Config]:
    """A model and its settings with 8-bit weights in its recurrent nets. A model without any is an error."""
    rounded, settings = _round(lm, config)
    if settings == config:
        family = getattr(config, "family", "this")
        raise UsageError(
            f"{family} has no recurrent net whose weights could have 8 bits",
            code="not-for-this-model",
            hint="rnn, gru and lstm have, and mixtures of them",
        )
    return rounded, settings


def _round(lm: Any, config: Config) -> tuple[Any, Config]:
    match config:
        case RecurrentConfig(nets=nets) if nets > 1:
            pairs = [_round(net, net.config) for net in lm.parts]
            members, settings = zip(*pairs, strict=True)
            return Mixture(members, np.full((1, nets), 1 / nets)), MixtureConfig(members=settings, bucketed=False)
        case RecurrentConfig(hidden=hidden) if hidden:
            from elman.tasks.lm.families.int8_net import Int8Model

            return Int8Model.of(lm), Int8Config(net=lm.config)
        case MixtureConfig(members=settings):
            pairs = [_round(member, each) for member, each in zip(lm.members, settings, strict=True)]
            members, settings = zip(*pairs, strict=True)
            mixture = Mixture(members, lm.weights, word_buckets=lm.word_buckets)
            return mixture, config.model_copy(update={"members": settings})
        case _:
            return lm, config
