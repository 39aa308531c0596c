"""What a family of language models has to say of itself; `families/` has one file for each.

A counting family fits a model to a text at once; a family of nets builds one with fresh weights, to be trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.counts.scratch import Scratch
from elman.lm.protocol import FreeModel
from elman.nets.config import LanguageNetConfig
from elman.spark.estimate import Estimate

if TYPE_CHECKING:
    from elman.tasks.lm.net import NeuralModel

C = TypeVar("C", bound=Config)
N = TypeVar("N", bound=LanguageNetConfig)


class Saveable(FreeModel[Any], Protocol):
    """A language model that can be saved: everything but its settings is in its tensors."""

    def tensors(self) -> dict[str, Array]:
        """Every array that `restore` needs."""


@dataclass(frozen=True)
class Shape:
    """What a model has to know of the text besides its own settings."""

    vocab_size: int
    reset_lines: bool


class Family(ABC, Generic[C]):
    """One kind of language model, or several that share their settings (`rnn`, `gru`, `lstm`)."""

    record: ClassVar[type[Any]]  # its settings; the field `family` lists its names
    is_trained: ClassVar[bool] = False  # by descending on a loss, over minutes
    is_built: ClassVar[bool] = False  # as a net, by its settings, before it takes its tensors
    counts_on_disk: ClassVar[bool] = False  # within so much memory as --memory gives
    needs_members: ClassVar[bool] = False  # not made from text: of other models, or by another tool

    @property
    def names(self) -> tuple[str, ...]:
        """What --model calls it."""
        return get_args(self.record.model_fields["family"].annotation)

    @abstractmethod
    def restore(self, config: C, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The model that was saved with these settings and tensors."""


class CountingFamily(Family[C]):
    """Models that count."""

    @abstractmethod
    def fit(
        self,
        config: C,
        ids: Array,
        shape: Shape,
        *,
        heldout_ids: Array | None,
        scratch: Scratch,
        report: Callable[[str], None],
    ) -> Saveable:
        """A model of a stream of ids, each line ended by EOS_ID. It may live in the scratch's files: save it before they go."""

    def estimate(self, config: C) -> Estimate | None:
        """What another engine has to count and estimate; None where only `fit` can."""
        return None


class MemberFamily(Family[C]):
    """What is only useful inside a mixture, or is one; or was made elsewhere."""

    needs_members = True
    made_by: ClassVar[str] = "elman mix DIR cache --valid F --out DIR"


class NetFamily(Family[N]):
    """Nets. What one costs, and the learning rate it stands, are said by its record (`NetConfig.layer_weights`)."""

    is_trained = is_built = True

    @abstractmethod
    def net_class(self) -> type[NeuralModel[Any]]:
        """The net itself."""

    def check(self, config: N, ids: Array) -> None:
        """Refuse settings that do not suit a text."""

    def build(self, config: N, ids: Array, shape: Shape, *, seed: int, vectors: Array | None) -> NeuralModel[Any]:
        """A net with fresh weights, for a text whose words it counts. vectors: of its words, to begin with."""
        import numpy as np
        import torch

        from elman.nets.inputs import NetInputs

        self.check(config, ids)
        inputs = NetInputs(
            shape.vocab_size,
            rng=torch.Generator().manual_seed(seed),
            counts=np.bincount(ids, minlength=shape.vocab_size),
            vectors=vectors,
        )
        net = self.net_class()(config, inputs, reset_lines=shape.reset_lines)
        net.learn_ngrams(ids)
        return net

    def restore(self, config: N, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The net that was saved."""
        return self.net_class().from_tensors(
            config, tensors, vocab_size=shape.vocab_size, reset_lines=shape.reset_lines
        )
