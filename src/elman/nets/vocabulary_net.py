"""The base of nets whose inputs and outputs are tokens of one vocabulary.

A family defines the layers in between (`_build_stack`). P features that the output head reads · V vocabulary · E width of a word
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.core.tensors import refuse_not_finite
from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.config import NetConfig
from elman.nets.embedding import SMALL, Embedding
from elman.nets.encoder import BidirectionalStack
from elman.nets.heads import build_head
from elman.nets.inputs import NetInputs
from elman.nets.layer import draw_weights
from elman.nets.stack import Stack
from elman.nets.transformer import CausalStack
from elman.nets.transformer_decoder import DecoderStack

C = TypeVar("C", bound=NetConfig)
Layers = Stack | CausalStack | BidirectionalStack | AttentionEncoder | DecoderStack


class VocabularyNet(Module, Generic[C]):
    """Embeddings, layers, an output head.

    Heads other than `full` need the counts of words. The net's own `config` is the given one with every size filled
    in: all that is needed to build the net again.
    """

    word_bound = SMALL  # random word vectors are uniform in +-word_bound

    def __init__(self, config: C, inputs: NetInputs) -> None:
        super().__init__()
        vocab_size, dtype = inputs.vocab_size, inputs.dtype
        self.vocab_size = vocab_size
        width = _embedding_width(config, inputs.vectors)
        self.embedding = Embedding(vocab_size, width, is_frozen=not config.tune_vectors, dtype=dtype)
        self.config: C = config.model_copy(update={"embedding": width or None})
        self.stack = self._build_stack(dtype)
        outputs = self._output_width()
        features = width if config.tied else config.projection or outputs
        has_projection = config.projection is not None or features != outputs
        self.projection = Linear(outputs, features, dtype=dtype) if has_projection else None
        tied = self.embedding.weight if config.tied else None
        self.head, chosen = build_head(self.config, features, vocab_size, counts=inputs.counts, tied=tied, dtype=dtype)
        self.config = self.config.model_copy(update=chosen)
        if inputs.rng is not None:
            self._initialise(inputs.rng, inputs.vectors)

    @abstractmethod
    def _build_stack(self, dtype: torch.dtype) -> Layers:
        """The layers between the embeddings and the output."""

    @abstractmethod
    def _output_width(self) -> int:
        """The width of their output."""

    @property
    def device(self) -> torch.device:
        return self.embedding.floats.device

    def tensors(self) -> dict[str, Array]:
        """Every learned or fitted tensor by name; shared ones once."""
        return tensors_of(self)

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Restore the weights from what `tensors()` returned."""
        load_tensors(self, tensors)

    def count_flops(self) -> float:
        """Multiply-adds of the matrix products for one token, forward."""
        projection = 0 if self.projection is None else self.projection.weight.numel()
        return self.stack.multiply_adds() + projection + self.head.multiply_adds()

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        self.embedding.initialise(rng, vectors, bound=self.word_bound)
        self.stack.initialise(rng)
        if self.projection is not None:
            draw_weights(rng, self.projection.weight, inputs=self.projection.in_features)
            with torch.no_grad():
                self.projection.bias.zero_()
        self.head.initialise(rng)

    def _project(self, outputs: Tensor) -> Tensor:
        return outputs if self.projection is None else self.projection(outputs)

    def _to_ids(self, tokens: Array) -> Tensor:
        return torch.from_numpy(np.array(tokens, dtype=np.int64)).to(self.device)

    @staticmethod
    def _to_numpy(tensor: Tensor) -> Array:
        return tensor.to(torch.float32).cpu().numpy()


def tensors_of(net: Module) -> dict[str, Array]:
    """Every learned or fitted tensor of a net by name; shared ones once."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in _saved_tensors(net).items()}


def load_tensors(net: Module, tensors: Mapping[str, Array]) -> None:
    """Restore a net from what `tensors_of` returned."""
    expected = _saved_tensors(net)
    for name in sorted(expected.keys() ^ tensors.keys()):
        problem = "missing" if name in expected else "not part of this model"
        raise DataError(f"the tensors do not match the settings: {name} is {problem}", code="damaged-model")
    with torch.no_grad():
        for name, tensor in expected.items():
            array = tensors[name]
            if array.shape != tuple(tensor.shape):
                shape = tuple(tensor.shape)
                raise DataError(
                    f"the tensors do not fit the settings: {name} has shape {array.shape}, not {shape}",
                    code="damaged-model",
                )
            # of what was not learned but counted, logarithms may be those of zero
            refuse_not_finite(f"the weight {name}", array, zeros=not isinstance(tensor, Parameter))
            tensor.copy_(torch.from_numpy(np.array(array)))  # a copy: the file may be mapped read-only


def _saved_tensors(net: Module) -> dict[str, Tensor]:
    """The tensors that are saved: parameters, each once, and persistent buffers."""
    everything = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    persistent = net.state_dict()
    return {name: tensor for name, tensor in everything.items() if name in persistent}


def embedding_of(tensors: Mapping[str, Array], family: str, *, within: str = "") -> Array:
    """The embedding matrix among a model's tensors, (V, E). `within`: prefix of its name."""
    name = f"{within}embedding.weight"
    if name not in tensors or tensors[name].ndim != 2:
        raise DataError(f"not the tensors of a {family} model: {name} is missing", code="damaged-model")
    return tensors[name]


def _embedding_width(config: NetConfig, vectors: Array | None) -> int:
    if vectors is None:
        return config.embedding_width
    width = int(vectors.shape[1])
    wanted = config.embedding or (config.projection if config.tied else None) or width
    if wanted != width:
        raise UsageError(
            f"the word vectors have {width} dimensions, the settings ask for {wanted}",
            code="bad-value",
            hint=f"leave model.embedding out, or set it to {width}",
        )
    return width
