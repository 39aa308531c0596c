"""What every net does alike: predict, advance, score and join over states, and the loss.

A family says what it carries from token to token (`start_training`) and how it reads on (`_read`).
T tokens · B rows · P features, as the output head reads them · V vocabulary
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module

from elman.errors import DataError
from elman.lm import Array, map_state, num_rows, select
from elman.models.trainable import Loss
from elman.nets.embedding import Embedding
from elman.nets.full_head import FullHead
from elman.text.vocabulary import EOS_ID

Carried = tuple[Tensor, ...]  # batch on axis 0 of each

# Tokens of all rows together that `score` reads at once: large enough for the matrix products, small enough to hold.
SCORE_TOKENS = 4096


@dataclass(frozen=True)
class NeuralState:
    """What was carried on, and what the output head reads to predict the next token."""

    carried: Carried
    features: Tensor  # (B, P)


class Reading(NamedTuple):
    """What reading some tokens came to."""

    features_TBP: Tensor
    carried: Carried
    penalty: Tensor | None


class NeuralModel(Module):
    """A net as a `FreeModel` and a `Trainable`. The start symbol is the end of a line, in both ways of reading."""

    embedding: Embedding
    projection: Linear | None
    head: FullHead

    def __init__(self, *, vocab_size: int, reset_lines: bool) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.reset_lines = reset_lines

    @abstractmethod
    def start_training(self, rows: int) -> Carried:
        """What a stream carries before its first input."""

    @abstractmethod
    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> Reading:
        """Read on; `is_noisy` switches dropout and penalties."""

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def start(self, rows: int) -> NeuralState:
        """As if the end of a line had just been read."""
        with torch.inference_mode():
            ends = torch.full((rows,), EOS_ID, dtype=torch.int64, device=self.device)
            return self._step(ends, self.start_training(rows))

    def predict(self, state: NeuralState) -> Array:
        """-> (B, V)"""
        with torch.inference_mode():
            return self._to_numpy(self.head.log_probs(state.features))

    def advance(self, tokens: Array, state: NeuralState) -> NeuralState:
        """Read one token a row."""
        with torch.inference_mode():
            return self._step(self._to_ids(tokens), state.carried)

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of all states."""
        with torch.inference_mode():
            carried = tuple(torch.cat(leaves) for leaves in zip(*(state.carried for state in states), strict=True))
            return NeuralState(carried, torch.cat([state.features for state in states]))

    def score(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, NeuralState]:
        """Rows of like length are read together, so nothing is spent on padding, and each row's state is its own."""
        order = np.argsort(-np.asarray(lengths), kind="stable")
        is_sorted = bool((order == np.arange(len(order))).all())
        with torch.inference_mode():
            state = state if is_sorted else select(state, order)
            log_probs, state = self._score_sorted(np.asarray(tokens)[order], np.asarray(lengths)[order], state)
            if is_sorted:
                return log_probs, state
            back = np.argsort(order)
            return log_probs[back], select(state, back)

    def features(self, state: NeuralState) -> Array:
        """What the net makes of all it has read: the vector that the output words are compared with. -> (B, P)"""
        return self._to_numpy(state.features)

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried) -> tuple[Loss, Carried]:
        """See `Trainable`."""
        reading = self._read(inputs.t(), state, is_noisy=self.training)
        features_NP = reading.features_TBP.flatten(0, 1)
        targets_N = targets.t().flatten()
        carried = tuple(leaf.detach() for leaf in reading.carried)
        if lengths is not None:
            times = torch.arange(inputs.shape[1], device=inputs.device)
            real = (times[:, None] < lengths[None, :]).flatten().nonzero()[:, 0]
            features_NP, targets_N = features_NP.index_select(0, real), targets_N[real]
            carried = self.start_training(len(inputs))
        mean, nats = self.head.loss(features_NP, targets_N)
        total = mean if reading.penalty is None else mean + reading.penalty
        return Loss(total, nats.detach(), len(targets_N)), carried

    def tensors(self) -> dict[str, Array]:
        """Every number that was learned or fitted, by name; shared ones once."""
        found = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        keep = self.state_dict().keys()
        return {name: tensor.detach().cpu().numpy() for name, tensor in found.items() if name in keep}

    def _load(self, tensors: Mapping[str, Array]) -> Self:
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        own = {name: tensor for name, tensor in own.items() if name in self.state_dict()}
        for name in sorted(own.keys() ^ tensors.keys()):
            raise DataError(
                f"the model's tensors do not fit its settings: {name} is {'missing' if name in own else 'unknown'}"
            )
        with torch.no_grad():
            for name, tensor in own.items():
                array = tensors[name]
                if tuple(array.shape) != tuple(tensor.shape):
                    raise DataError(
                        f"the model's tensors do not fit its settings: {name} is {array.shape}, not {tuple(tensor.shape)}"
                    )
                tensor.copy_(torch.from_numpy(np.array(array)))  # a copy: the array may be read-only
        return self

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one token, forward."""
        projected = 0 if self.projection is None else self.projection.weight.numel()
        return projected + self.head.multiply_adds()

    def _step(self, tokens_B: Tensor, carried: Carried) -> NeuralState:
        reading = self._read(tokens_B[None], carried, is_noisy=False)
        return NeuralState(reading.carried, reading.features_TBP[0])

    def _score_sorted(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, NeuralState]:
        """`score` for rows that come longest first."""
        tokens_TB = self._to_ids(tokens).t()
        log_probs_TB = torch.zeros(tokens_TB.shape, dtype=torch.float32, device=self.device)
        longest = int(lengths.max(initial=0))
        stride = max(1, SCORE_TOKENS // max(1, len(tokens)))
        finished: list[NeuralState] = []
        pending: list[_Block] = []
        for first, last in pairwise(sorted({0, longest, *range(0, longest, stride), *map(int, lengths)})):
            active = int((lengths >= last).sum())
            if active < num_rows(state):
                finished.append(map_state(lambda leaf, active=active: leaf[active:], state))
                state = map_state(lambda leaf, active=active: leaf[:active], state)
            reading = self._read(tokens_TB[first:last, :active], state.carried, is_noisy=False)
            before_TBP = torch.cat([state.features[None], reading.features_TBP[:-1]])
            pending.append(_Block(before_TBP, tokens_TB[first:last, :active], log_probs_TB[first:last, :active]))
            state = NeuralState(reading.carried, reading.features_TBP[-1])
            if last == longest or sum(block.tokens_TB.numel() for block in pending) >= SCORE_TOKENS:
                self._score_blocks(pending)
                pending.clear()
        return log_probs_TB.t().cpu().numpy(), self.join([state, *reversed(finished)])

    def _score_blocks(self, blocks: list[_Block]) -> None:
        """Compare what the tokens were predicted from with the tokens, for several blocks in one go."""
        features_NP = torch.cat([block.before_TBP.flatten(0, 1) for block in blocks])
        tokens_N = torch.cat([block.tokens_TB.flatten() for block in blocks])
        parts = self.head.score(features_NP, tokens_N).split([block.tokens_TB.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.log_probs_TB.copy_(part.view(block.log_probs_TB.shape))

    def _to_ids(self, tokens: Array) -> Tensor:
        return torch.from_numpy(np.array(tokens, dtype=np.int64)).to(self.device)

    @staticmethod
    def _to_numpy(tensor: Tensor) -> Array:
        return tensor.to(torch.float32).cpu().numpy()


class _Block(NamedTuple):
    """Tokens to score, what each was predicted from, and where its score goes."""

    before_TBP: Tensor
    tokens_TB: Tensor
    log_probs_TB: Tensor
