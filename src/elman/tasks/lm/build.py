"""From settings to a model: the only place that lists the families. A new family is one more case here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import Config
from elman.counts.fit import fit_counts, restore_counts
from elman.counts.scratch import Scratch
from elman.lm.cache import CacheModel
from elman.lm.neural_cache import NeuralCache
from elman.lm.protocol import FreeModel
from elman.nets.config import RecurrentConfig, TransformerConfig, WindowConfig
from elman.tasks.choices import MixtureConfig
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

if TYPE_CHECKING:
    from elman.nets.neural_lm import NeuralModel


class Saveable(FreeModel[Any], Protocol):
    """A model that can be saved: everything but its settings is in its tensors."""

    def tensors(self) -> dict[str, Array]:
        """Every array that `restore` needs."""


def fit(
    config: Config,
    ids: Array,
    *,
    vocab_size: int,
    reset_lines: bool,
    heldout_ids: Array | None,
    scratch: Scratch,
    report: Callable[[str], None],
) -> Saveable:
    """A model made from a stream of ids. It may live in the scratch's files: save it before they go."""
    match config:
        case SnmConfig():
            from elman.counts.snm import fit_snm

            # thousands of weights: fitted on the end of the training text, so that the held-out text stays a fair judge
            return fit_snm(config, ids, vocab_size=vocab_size, reset_lines=reset_lines, heldout_ids=None, report=report)
        case UniformConfig() | UnigramConfig() | BigramConfig() | NgramConfig() | KneserNeyConfig():
            return fit_counts(
                config,
                ids,
                vocab_size=vocab_size,
                reset_lines=reset_lines,
                scratch=scratch,
                heldout_ids=heldout_ids,
                report=report,
            )
        case _:
            raise TypeError(f"no family has settings of type {type(config).__name__}")


def construct(
    config: Config, ids: Array, *, vocab_size: int, reset_lines: bool, seed: int, vectors: Array | None
) -> NeuralModel[Any]:
    """A net with fresh weights, to be trained on a stream of ids, whose words it has counted. vectors: its words' own."""
    import numpy as np
    import torch

    from elman.tasks.lm.families.recurrent_net import RecurrentModel
    from elman.tasks.lm.families.transformer_net import TransformerModel
    from elman.tasks.lm.families.window_net import WindowModel

    rng = torch.Generator().manual_seed(seed)
    counts = np.bincount(ids, minlength=vocab_size)
    net: NeuralModel[Any]
    match config:
        case WindowConfig():
            net = WindowModel(
                config, vocab_size=vocab_size, reset_lines=reset_lines, rng=rng, counts=counts, vectors=vectors
            )
        case RecurrentConfig():
            net = RecurrentModel(
                config, vocab_size=vocab_size, reset_lines=reset_lines, rng=rng, counts=counts, vectors=vectors
            )
        case TransformerConfig():
            if config.window > len(ids):
                raise UsageError(
                    f"a window of {config.window} is longer than the text of {len(ids)} tokens",
                    hint=f"set model.window to {len(ids)} or less",
                )
            net = TransformerModel(
                config, vocab_size=vocab_size, reset_lines=reset_lines, rng=rng, counts=counts, vectors=vectors
            )
        case _:
            raise TypeError(f"{type(config).__name__} is no net")
    net.learn_ngrams(ids)
    return net


def restore(config: Config, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool) -> Saveable:
    """The model that was saved with these settings and tensors."""
    match config:
        case SnmConfig():
            from elman.counts.snm import SnmModel

            return SnmModel.from_tensors(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case CacheConfig():
            return CacheModel.from_tensors(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case MixtureConfig():
            from elman.lm.mixture import Mixture

            members = [
                NeuralCache(member, vocab_size=vocab_size)
                if isinstance(member, NeuralCacheConfig)
                else restore(member, within(tensors, f"members.{i}."), vocab_size=vocab_size, reset_lines=reset_lines)
                for i, member in enumerate(config.members)
            ]
            return Mixture.from_tensors(config, members, tensors)
        case WindowConfig():
            from elman.tasks.lm.families.window_net import WindowModel

            return WindowModel.from_tensors(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case RecurrentConfig():
            from elman.tasks.lm.families.recurrent_net import RecurrentModel

            return RecurrentModel.from_tensors(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case TransformerConfig():
            from elman.tasks.lm.families.transformer_net import TransformerModel

            return TransformerModel.from_tensors(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case UniformConfig() | UnigramConfig() | BigramConfig() | NgramConfig() | KneserNeyConfig():
            return restore_counts(config, tensors, vocab_size=vocab_size, reset_lines=reset_lines)
        case _:
            raise TypeError(f"no family has settings of type {type(config).__name__}")


def within(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
