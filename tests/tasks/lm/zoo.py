"""Tiny nets of every family and option, in float64, with weights large enough that it matters what was read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from elman.nets.config import NetConfig
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.tasks.lm.families.transformer import TransformerConfig
from elman.tasks.lm.families.transformer_net import TransformerModel
from elman.tasks.lm.families.window import WindowConfig
from elman.tasks.lm.families.window_net import WindowModel
from elman.tasks.lm.net import NeuralModel

COUNTS = np.array([1, 5, 2, 7, 3, 3])
VECTORS = np.array([[0.5, -1], [np.nan, np.nan], [1, 1], [0.3, 0.2], [-1, 0], [2, -0.7]])

RECURRENT: dict[str, dict[str, Any]] = {
    "lstm": {"family": "lstm"},
    "gru": {"family": "gru"},
    "gru, reset first": {"family": "gru", "reset": "before", "layers": 2},
    "rnn": {"family": "rnn"},
    "rnn sigmoid": {"family": "rnn", "activation": "sigmoid"},
    "rnn relu": {"family": "rnn", "activation": "relu"},
    "rnn additive": {"family": "rnn", "recurrence": "additive"},
    "rnn gated": {"family": "rnn", "recurrence": "gated"},
    "two layers": {"layers": 2},
    "residual": {"layers": 2, "skip": "residual"},
    "highway": {"family": "gru", "layers": 3, "skip": "highway"},
    "dense": {"family": "rnn", "layers": 3, "skip": "dense"},
    "layer norm": {"layers": 2, "layer_norm": True},
    "tied": {"tied": True},
    "tied, projected": {"tied": True, "embedding": 3},
    "projection": {"projection": 2},
    "adaptive": {"head": "adaptive", "cutoffs": (2, 4)},
    "adaptive, tied": {"head": "adaptive", "cutoffs": (2, 4), "tied": True},
    "adaptive, no cluster": {"head": "adaptive"},
    "sampled": {"head": "sampled", "samples": 3},
    "nce": {"family": "gru", "head": "nce", "samples": 2, "alpha": 0.5},
    "blackout, tied": {"family": "rnn", "head": "blackout", "tied": True, "embedding": 3},
    "maxent": {"family": "rnn", "maxent": 4},
    "maxent, learned start": {"family": "gru", "maxent": 3, "initial_state": "learned", "maxent_size": 12},
    "maxent, adaptive": {"maxent": 3, "head": "adaptive", "cutoffs": (2, 4)},
    "maxent, adaptive, tied": {"maxent": 2, "head": "adaptive", "cutoffs": (2,), "tied": True},
    "maxent, nce": {"maxent": 3, "head": "nce", "samples": 3},
    "maxent alone": {"family": "rnn", "maxent": 3, "hidden": 0},
    "maxent alone, adaptive": {"maxent": 9, "hidden": 0, "head": "adaptive", "cutoffs": (3,)},
    "learned start": {"layers": 2, "initial_state": "learned"},
    "learned start gru": {"family": "gru", "initial_state": "learned"},
    "vectors": {"vectors": "some.txt"},
    "frozen vectors": {"vectors": "some.txt", "tune_vectors": False},
    "noisy": {
        "layers": 2,
        "dropout": 0.3,
        "dropout_embedding": 0.2,
        "weight_drop": 0.4,
        "activation_penalty": 2.0,
        "temporal_penalty": 1.0,
    },
}
WINDOW: dict[str, dict[str, Any]] = {
    "window": {"window": 3},
    "window of one": {"window": 1},
    "window direct": {"window": 2, "direct": True, "activation": "relu"},
    "window, only direct": {"window": 2, "direct": True, "layers": 0},
    "window highway": {"window": 2, "layers": 2, "skip": "highway", "layer_norm": True},
    "window dense": {"window": 3, "layers": 3, "skip": "dense", "activation": "sigmoid"},
    "window tied": {"window": 2, "tied": True, "embedding": 4},
    "window adaptive": {"window": 2, "head": "adaptive", "cutoffs": (3,), "projection": 2},
    "window maxent": {"window": 2, "maxent": 5},
    "window nce": {"window": 2, "head": "nce", "samples": 4},
    "window vectors": {"window": 2, "vectors": "some.txt", "dropout": 0.4},
}
TRANSFORMER: dict[str, dict[str, Any]] = {
    "transformer": {"window": 3, "layers": 1},
    "transformer, two heads": {"window": 3, "attention_heads": 2, "hidden": 4},
    "transformer, window of one": {"window": 1},
    "transformer, wide window": {"window": 100, "activation": "relu", "feed_forward": 3},
    "transformer, tied": {"window": 4, "tied": True, "embedding": 3},
    "transformer, adaptive": {"window": 2, "head": "adaptive", "cutoffs": (3,), "dropout": 0.3},
}
NAMES = [*RECURRENT, *WINDOW, *TRANSFORMER]


def build(name: str, *, dtype: torch.dtype = torch.float64, vocab_size: int = 6, seed: int = 0) -> NeuralModel[Any]:
    """The net of that name, its weights spread out."""
    kinds: list[tuple[dict[str, dict[str, Any]], type[NetConfig], type[NeuralModel[Any]]]] = [
        (RECURRENT, RecurrentConfig, RecurrentModel),
        (WINDOW, WindowConfig, WindowModel),
        (TRANSFORMER, TransformerConfig, TransformerModel),
    ]
    options, record, kind = next((zoo[name], record, kind) for zoo, record, kind in kinds if name in zoo)
    config = record(**{"hidden": 5, **options})
    rng = torch.Generator().manual_seed(seed)
    counts = np.resize(COUNTS, vocab_size)
    vectors = np.resize(VECTORS, (vocab_size, 2)) if config.vectors else None
    model = kind(config, NetInputs(vocab_size, rng=rng, counts=counts, vectors=vectors, dtype=dtype), reset_lines=False)
    model.learn_ngrams(np.random.default_rng(seed).integers(0, vocab_size, 60))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=dtype), alpha=0.4)
        model.head.log_temperature.fill_(0.2)
    return model
