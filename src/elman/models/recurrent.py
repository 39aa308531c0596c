"""Recurrent language models: the state is what the layers carry from token to token (Elman 1990)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor
from torch.nn import Linear, Parameter

from elman.config import RecurrentConfig
from elman.lm import Array
from elman.models.neural import Carried, NeuralModel, Reading
from elman.nets.cells import LstmLayer
from elman.nets.dropout import locked_dropout
from elman.nets.embedding import Embedding
from elman.nets.full_head import FullHead
from elman.nets.stack import CellState, Stack, layer_inputs


class RecurrentModel(NeuralModel):
    """Embeddings, recurrent layers, an output head.

    vectors: (V, E), the words' vectors to begin with. counts: (V,), how often each word was seen; an adaptive head
    without cut-offs needs them. Without `rng` all weights are zero, to be loaded. `config` has every size filled in.
    """

    def __init__(
        self,
        config: RecurrentConfig,
        *,
        vocab_size: int,
        reset_lines: bool,
        rng: torch.Generator | None,
        counts: Array | None = None,
        vectors: Array | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(vocab_size=vocab_size, reset_lines=reset_lines)
        embedding = config.embedding or (config.projection if config.tied else None) or config.hidden
        if vectors is not None:
            embedding = vectors.shape[1]
        self.config = config.model_copy(update={"embedding": embedding})
        self.embedding = Embedding(vocab_size, embedding, is_frozen=not config.tune_vectors, dtype=dtype)
        hidden = [config.hidden] * config.layers
        widths = layer_inputs(config.skip, embedding, hidden)
        layers = [
            LstmLayer(
                size, config.hidden, forget_bias=1.0 if config.forget_bias is None else config.forget_bias, dtype=dtype
            )
            for size in widths[:-1]
        ]
        self.stack = Stack(layers, inputs=embedding, skip=config.skip, layer_norm=config.layer_norm, dtype=dtype)
        width = embedding if config.tied and embedding != self.stack.features else config.projection
        self.projection = None if width is None else Linear(self.stack.features, width, dtype=dtype)
        tied = self.embedding.weight if config.tied else None
        assert tied is None or isinstance(tied, Parameter)
        self.head = FullHead(width or self.stack.features, vocab_size, tied=tied, dtype=dtype)
        if rng is not None:
            self._initialise(rng, vectors)

    @classmethod
    def from_tensors(
        cls, config: RecurrentConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> Self:
        """The model whose `tensors()` and `config` these were."""
        dtype = torch.from_numpy(tensors["embedding.weight"][:0].copy()).dtype
        return cls(config, vocab_size=vocab_size, reset_lines=reset_lines, rng=None, dtype=dtype)._load(tensors)

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        self.embedding.initialise(rng, vectors)
        self.stack.initialise(rng)
        if self.projection is not None:
            bound = self.projection.in_features**-0.5
            with torch.no_grad():
                self.projection.weight.uniform_(-bound, bound, generator=rng)
                self.projection.bias.zero_()
        self.head.initialise(rng)

    def start_training(self, rows: int) -> Carried:
        """Zeros."""
        size = sum(layer.num_states for layer in self.stack.layers)  # type: ignore[misc]
        weight = self.embedding.weight
        return tuple(weight.new_zeros(rows, self.config.hidden) for _ in range(size))

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> Reading:
        config = self.config
        states = self._split(carried)
        if not is_noisy:
            outputs_TBH, after = self.stack(self.embedding(tokens_TB), states)
            return Reading(self._project(outputs_TBH), tuple(leaf for state in after for leaf in state), None)
        rates = [
            config.dropout if rate is None else rate
            for rate in (config.dropout_input, config.dropout_layers, config.dropout_output)
        ]
        words_TBE = locked_dropout(self.embedding(tokens_TB, config.dropout_embedding), rates[0])
        outputs_TBH, after = self.stack(words_TBE, states, dropout=rates[1], weight_drop=config.weight_drop)
        dropped_TBH = locked_dropout(outputs_TBH, rates[2])
        penalty = None
        if config.activation_penalty:
            penalty = config.activation_penalty * dropped_TBH.square().mean()
        if config.temporal_penalty and len(outputs_TBH) > 1:
            change = config.temporal_penalty * (outputs_TBH[1:] - outputs_TBH[:-1]).square().mean()
            penalty = change if penalty is None else penalty + change
        return Reading(self._project(dropped_TBH), tuple(leaf for state in after for leaf in state), penalty)

    def _project(self, outputs_TBH: Tensor) -> Tensor:
        return outputs_TBH if self.projection is None else self.projection(outputs_TBH)  # type: ignore[no-any-return]

    def _split(self, carried: Carried) -> list[CellState]:
        """What is carried, layer by layer."""
        states, first = [], 0
        for layer in self.stack.layers:
            size = int(layer.num_states)  # type: ignore[arg-type]
            states.append(carried[first : first + size])
            first += size
        return states

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one token, forward."""
        return super().count_flops() + self.stack.multiply_adds()
