"""Which records belong to which family of language models, and to which task."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from elman.core.settings import Config
from elman.nets.config import RecurrentConfig, TransformerConfig, WindowConfig
from elman.tasks.lm.count_config import (
    BigramConfig,
    CacheConfig,
    KneserNeyConfig,
    NeuralCacheConfig,
    NgramConfig,
    SnmConfig,
    UniformConfig,
    UnigramConfig,
)
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.reading_config import ClassifierConfig, ReaderConfig, TaggerConfig
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.text.settings import DataConfig, LabelledConfig, PairsConfig, SentencesConfig, StoriesConfig


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


def families() -> dict[str, type[Config]]:
    """The name of every family and its record."""
    found: dict[str, type[Config]] = {}
    for record in get_args(get_args(ModelConfig)[0]):
        for name in get_args(record.model_fields["family"].annotation):
            found[name] = record
    return found


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
