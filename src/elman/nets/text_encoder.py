"""Encodes texts for taggers, classifiers and question answering: word embeddings and recurrent layers.

T words · B rows · E width of a word · O width of the outputs · V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.config import TextEncoderConfig
from elman.nets.dropout import locked_dropout
from elman.nets.embedding import Embedding
from elman.nets.encoder import BidirectionalStack, Encoding, make_cell
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors
from elman.nets.trace import LayerTrace
from elman.nets.unidirectional import UnidirectionalStack
from elman.text.units.vocabulary import UNK_ID

DEFAULT_WIDTH = 100  # width of a word vector


class TextEncoder(Module):
    """Embeddings and layers, in one direction or both. In training, rare words are replaced by <unk> at random.

    more_inputs: width of further features of each word. drops_output: whether dropout applies to the outputs too.
    """

    _unknown: Tensor  # (V,) probability of reading each word as <unk> in training

    def __init__(
        self, config: TextEncoderConfig, inputs: NetInputs, *, more_inputs: int = 0, drops_output: bool = True
    ) -> None:
        super().__init__()
        vocab_size, dtype = inputs.vocab_size, inputs.dtype
        self._drops_output = drops_output
        width = _width(config, inputs.vectors)
        self.config = config.model_copy(update={"embedding": width})
        self.embedding = Embedding(vocab_size, width, is_frozen=not config.tune_vectors, dtype=dtype)
        kind: type[BidirectionalStack] | type[UnidirectionalStack] = UnidirectionalStack
        if config.bidirectional:
            kind = BidirectionalStack
        make: Callable[[int], object] = partial(
            make_cell, config.family, hidden=config.hidden, reset=config.reset, dtype=dtype
        )
        self.stack = kind(
            make,  # type: ignore[arg-type]
            inputs=width + more_inputs,
            hidden=config.hidden,
            num_layers=config.layers,
            dtype=dtype,
        )
        self.output_width = self.stack.output_width
        seen = np.zeros(vocab_size) if inputs.counts is None else inputs.counts
        rates = config.rare / np.maximum(config.rare + seen, 1e-9)  # Kiperwasser & Goldberg (2016)
        rates[seen == 0] = 0.0
        self.register_buffer("_unknown", torch.from_numpy(rates).to(dtype), persistent=False)

    def initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        """Draw the initial weights."""
        self.embedding.initialise(rng, vectors)
        self.stack.initialise(rng)

    def forward(self, words_TB: Tensor, lengths_B: Tensor, more_TBD: Tensor | None = None) -> Encoding:
        """Read each row up to its length, with dropout in training. `more_TBD`: further features of each word."""
        if self.training:
            draws_TB = torch.rand(words_TB.shape, device=words_TB.device, dtype=self._unknown.dtype)
            words_TB = words_TB.masked_fill(draws_TB < self._unknown[words_TB], UNK_ID)
        values_TBE = self.embedding(words_TB)
        if more_TBD is not None:
            values_TBE = torch.cat([values_TBE, more_TBD], dim=-1)
        values_TBE = locked_dropout(values_TBE, self._rate("input"))
        encoding: Encoding = self.stack(values_TBE, lengths_B, dropout=self._rate("layers"))
        if not self._drops_output:
            return encoding
        outputs_TBO = locked_dropout(encoding.outputs, self._rate("output"))
        return Encoding(outputs_TBO, encoding.forward, encoding.backward)

    def vectors(self, words_TB: Tensor, lengths_B: Tensor, more_TBD: Tensor | None = None) -> list[LayerVectors]:
        """What each layer makes of every word, without noise; the first is the words alone."""
        words_TBE = self.embedding(words_TB)
        values_TBE = words_TBE if more_TBD is None else torch.cat([words_TBE, more_TBD], dim=-1)
        return [LayerVectors(words_TBE), *self.stack.vectors(values_TBE, lengths_B)]

    def trace(
        self, words_TBE: Tensor, lengths_B: Tensor, more_TBD: Tensor | None = None
    ) -> tuple[list[LayerTrace], list[Tensor], Encoding]:
        """What each layer did with words that are vectors already, what is there after each, and the encoding.

        Of rows without padding, without noise.
        """
        values_TBE = words_TBE if more_TBD is None else torch.cat([words_TBE, more_TBD], dim=-1)
        return self.stack.trace(values_TBE, lengths_B)

    def _rate(self, place: str) -> float:
        return self.config.rate(place) if self.training else 0.0  # type: ignore[arg-type]

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device


def _width(config: TextEncoderConfig, vectors: Array | None) -> int:
    if vectors is None:
        return config.embedding or DEFAULT_WIDTH
    width = int(vectors.shape[1])
    if config.embedding not in (None, width):
        raise UsageError(
            f"the word vectors have {width} dimensions, the settings ask for {config.embedding}",
            code="bad-value",
            hint=f"leave model.embedding out, or set it to {width}",
        )
    return width
