"""Two language models that share their words: one reads a text from its beginning, one from its end (Peters et al. 2018).

Each alone is a language model like any other. Together they give every token of a text vectors that know both of its
sides, layer by layer. B rows · T tokens · L layers · H hidden
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from elman.core.arrays import Array
from elman.nets.config import RecurrentConfig
from elman.nets.encoder import reverse
from elman.nets.loss import Loss
from elman.nets.neural_lm import Carried
from elman.nets.stack import Stack
from elman.nets.vocabulary_net import dtype_of, embedding_of, load_tensors, tensors_of
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.text.batches import Batch, Lines, Position, Streams
from elman.text.units.vocabulary import EOS_ID


class BilmModel(Module):
    """A forward and a backward recurrent language model with the same words at input and output."""

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
        super().__init__()
        self.vocab_size = vocab_size
        self.onward, self.backward = (
            RecurrentModel(
                config,
                vocab_size=vocab_size,
                reset_lines=reset_lines,
                rng=rng,
                counts=counts,
                vectors=vectors,
                dtype=dtype,
            )
            for _ in range(2)
        )
        self.backward.embedding = self.onward.embedding
        self.backward.head = self.onward.head
        self.config = self.onward.config

    @classmethod
    def from_tensors(
        cls, config: RecurrentConfig, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool
    ) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "bilm", within="onward.")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, vocab_size=vocab_size, reset_lines=reset_lines, rng=None, dtype=dtype_of(words))
        load_tensors(model, tensors)
        return model

    def tensors(self) -> dict[str, Array]:
        """Every number that was learned or fitted, by name; shared ones once."""
        return tensors_of(self)

    def start_training(self, rows: int) -> Carried:
        """What both carry before their first input."""
        return (*self.onward.start_training(rows), *self.backward.start_training(rows))

    def batch_loss(self, batch: BilmBatch, state: Carried | None) -> tuple[Loss, Carried]:
        """The loss of both, each on its own way through the text."""
        middle = len(state) // 2 if state else 0
        states = (state[:middle], state[middle:]) if state else (None, None)
        onward, after = self.onward.batch_loss(batch.onward, states[0])
        backward, after_backward = self.backward.batch_loss(batch.backward, states[1])
        total = 0.5 * (onward.total + backward.total)
        loss = Loss(total, onward.nats + backward.nats, onward.tokens + backward.tokens)
        return loss, (*after, *after_backward)

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one token in one direction, forward."""
        return self.onward.count_flops()

    @property
    def num_feature_layers(self) -> int:
        """Of `features`: the recurrent layers and, where they are as wide, the words."""
        return self.config.layers + (self.config.embedding == self.config.hidden)

    def features(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """What both make of every token, layer by layer: zeros at padding. tokens (B, T) -> (L, B, T, 2 H)

        Below the recurrent layers are the words themselves, twice, if they are as wide. Gradients flow as they are
        switched.
        """
        words_TBE = self.onward.embedding(tokens.t())
        onward = self._layers(self.onward, words_TBE)
        turned = self._layers(self.backward, reverse(words_TBE, lengths))
        layers = [
            torch.cat([first, reverse(second, lengths)], dim=-1) for first, second in zip(onward, turned, strict=True)
        ]
        if self.config.embedding == self.config.hidden:
            layers.insert(0, torch.cat([words_TBE, words_TBE], dim=-1))
        is_token_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        return torch.stack(layers).transpose(1, 2) * is_token_BT[None, :, :, None]

    @staticmethod
    def _layers(model: RecurrentModel, words_TBE: Tensor) -> list[Tensor]:
        """After each layer, read on from the start. -> (T, B, H) each"""
        assert isinstance(model.stack, Stack)
        ends_TB = torch.full((1, words_TBE.shape[1]), EOS_ID, device=words_TBE.device)
        begin = model._read(ends_TB, model.start_training(words_TBE.shape[1]), is_noisy=False).carried
        return model.stack.read_all(words_TBE, begin[: model.num_states])[0]


@dataclass(frozen=True)
class BilmBatch:
    """What both directions read in one step."""

    onward: Batch
    backward: Batch

    @property
    def scale(self) -> float:
        """Of the learning rate."""
        return self.onward.scale


class BilmBatches:
    """A text for both directions: two streams through all of it, or each line from both ends."""

    def __init__(self, onward: Streams | Lines, backward: Streams | None) -> None:
        self._onward = onward
        self._backward = backward
        self.notes = onward.notes

    @property
    def tokens_per_epoch(self) -> int:
        """Every token is predicted twice."""
        return 2 * self._onward.tokens_per_epoch

    @property
    def tokens_per_step(self) -> int:
        return 2 * self._onward.tokens_per_step

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return self._onward.fraction(position)

    def batch(self, position: Position) -> tuple[BilmBatch, Position]:
        """The batch at a position, and the position after it."""
        onward, after = self._onward.batch(position)
        backward = turn_lines(onward) if self._backward is None else self._backward.batch(position)[0]
        return BilmBatch(onward, backward), after


def turn_text(ids: Array) -> Array:
    """A text from its last word to its first; each line still ends with its end."""
    ends = bool(len(ids)) and int(ids[-1]) == EOS_ID
    return np.append(ids[-2::-1], ids[-1:]) if ends else np.array(ids[::-1])


def turn_lines(batch: Batch) -> Batch:
    """Lines read alone, each from its last word to its first. A piece of a very long line is a line of its own."""
    num_tokens = batch.targets.shape[1]
    lengths = np.full(len(batch.targets), num_tokens) if batch.lengths is None else batch.lengths
    targets = np.full_like(batch.targets, EOS_ID)
    for row, length in enumerate(lengths.tolist()):
        targets[row, :length] = turn_text(batch.targets[row, :length])
    inputs = np.concatenate([np.full((len(targets), 1), EOS_ID, dtype=targets.dtype), targets[:, :-1]], axis=1)
    inputs[np.arange(num_tokens) >= lengths[:, None]] = EOS_ID
    return Batch(inputs, targets, batch.lengths, is_start=True, scale=batch.scale)


def learned_features(model: BilmModel, tokens: Array, lengths: Array) -> Array:
    """`features` of ids as numpy. -> (L, B, T, 2 H) float32"""
    device: Any = model.onward.device
    with torch.inference_mode():
        ids = torch.from_numpy(np.array(tokens, dtype=np.int64)).to(device)
        found = model.features(ids, torch.from_numpy(np.array(lengths, dtype=np.int64)).to(device))
        return found.to(torch.float32).cpu().numpy()
