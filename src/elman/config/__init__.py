"""Temporary."""

from elman.core.parsing import make, parse_settings, read_recipe, recipes  # noqa: F401
from elman.core.settings import Config, Integers  # noqa: F401
from elman.nets.config import (  # noqa: F401
    Head,
    NetConfig,
    RecurrentConfig,
    Skip,
    TextNetConfig,
    TransformerConfig,
    WindowConfig,
    fitting_heads,
)
from elman.tasks.choices import MixtureConfig, ModelConfig, TaskSettings, families, tasks  # noqa: F401
from elman.tasks.lm.count_config import (  # noqa: F401
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
from elman.tasks.masked.config import MaskedConfig  # noqa: F401
from elman.tasks.reading_config import ClassifierConfig, ReaderConfig, ReadingConfig, TaggerConfig  # noqa: F401
from elman.tasks.seq2seq.config import Context, Score, Seq2SeqConfig  # noqa: F401
from elman.text.settings import (  # noqa: F401
    CONLLU_COLUMNS,
    DataConfig,
    LabelledConfig,
    PairsConfig,
    SentencesConfig,
    StoriesConfig,
    Units,
)
from elman.training.config import TrainConfig  # noqa: F401
