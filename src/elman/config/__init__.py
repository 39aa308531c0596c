"""Everything a user can set, as frozen records. Unknown keys are refused, and the nearest valid one is named.

A setting that cannot apply is not a field of that family's record, so it is refused like any other unknown key.
"""

from elman.config.choices import MixtureConfig, ModelConfig, TaskSettings, families, tasks
from elman.config.counts import (
    BigramConfig,
    CacheConfig,
    KneserNeyConfig,
    NeuralCacheConfig,
    NgramConfig,
    Smoothing,
    SnmConfig,
    UniformConfig,
    UnigramConfig,
)
from elman.config.data import (
    CONLLU_COLUMNS,
    DataConfig,
    LabelledConfig,
    PairsConfig,
    SentencesConfig,
    StoriesConfig,
    Units,
)
from elman.config.masked import MaskedConfig
from elman.config.nets import (
    Head,
    NetConfig,
    RecurrentConfig,
    Skip,
    TextNetConfig,
    TransformerConfig,
    WindowConfig,
    fitting_heads,
)
from elman.config.reading import ClassifierConfig, ReaderConfig, ReadingConfig, TaggerConfig
from elman.config.record import Config, Integers
from elman.config.seq2seq import Context, Score, Seq2SeqConfig
from elman.config.settings import make, parse_settings, read_recipe, recipes
from elman.config.training import TrainConfig

__all__ = [
    "CONLLU_COLUMNS",
    "BigramConfig",
    "CacheConfig",
    "ClassifierConfig",
    "Config",
    "Context",
    "DataConfig",
    "Head",
    "Integers",
    "KneserNeyConfig",
    "LabelledConfig",
    "MaskedConfig",
    "MixtureConfig",
    "ModelConfig",
    "NetConfig",
    "NeuralCacheConfig",
    "NgramConfig",
    "PairsConfig",
    "ReaderConfig",
    "ReadingConfig",
    "RecurrentConfig",
    "Score",
    "SentencesConfig",
    "Seq2SeqConfig",
    "Skip",
    "Smoothing",
    "SnmConfig",
    "StoriesConfig",
    "TaggerConfig",
    "TaskSettings",
    "TextNetConfig",
    "TrainConfig",
    "TransformerConfig",
    "UniformConfig",
    "UnigramConfig",
    "Units",
    "WindowConfig",
    "families",
    "fitting_heads",
    "make",
    "parse_settings",
    "read_recipe",
    "recipes",
    "tasks",
]
