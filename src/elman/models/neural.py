"""What every net does alike: predict, advance, score and join over states, and the loss.

A family says what its layers are (`_build_stack`), what it carries from token to token (`start_training`) and how it
reads on (`_read`). T tokens · B rows · P features, as the output head reads them · V vocabulary
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from elman.lm import Array, map_state, num_rows, select
from elman.models.trainable import Loss, StreamNet
from elman.models.words import C, VocabularyNet, embedding_of
from elman.text.vocabulary import EOS_ID

Carried = tuple[Tensor, ...]  # batch on axis 0 of each

# Tokens of all rows together that `score` reads at once: enough for the matrix products, little enough to hold.
SCORE_TOKENS = 4096


@dataclass(frozen=True)
class NeuralState:
    """What is carried on, and what the output head reads to predict the next token."""

    carried: Carried
    features: Tensor  # (B, P)


class Reading(NamedTuple):
    """What reading some tokens came to."""

    features: Tensor  # (T, B, P)
    carried: Carried
    penalty: Tensor | None  # (T, B)


class NeuralReader(VocabularyNet[C]):
    """A net as a `LanguageModel`, from whatever state it begins. Its start symbol is the end of a line."""

    @abstractmethod
    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> Reading:
        """Read on; `is_noisy` switches dropout and penalties."""

    def _begin(self, carried: Carried) -> NeuralState:
        """The state before the first token of rows that carry this: the start symbol is read."""
        rows = len(carried[0])
        return self._step(torch.full((rows,), EOS_ID, dtype=torch.int64, device=self.device), carried)

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
        log_probs, _, state = self._score(tokens, lengths, state, keep_features=False)
        return log_probs, state

    def features(self, state: NeuralState) -> Array:
        """What the net makes of all it has read: the vector that the output words are compared with. -> (B, P)"""
        return self._to_numpy(state.features)

    def score_features(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, Array, NeuralState]:
        """`score`, and between the two the features that each token was predicted from, 0 at padding, (B, T, P)."""
        return self._score(tokens, lengths, state, keep_features=True)

    def _step(self, tokens_B: Tensor, carried: Carried) -> NeuralState:
        reading = self._read(tokens_B[None], carried, is_noisy=False)
        return NeuralState(reading.carried, reading.features[0])

    def _score(
        self, tokens: Array, lengths: Array, state: NeuralState, *, keep_features: bool
    ) -> tuple[Array, Array, NeuralState]:
        order = np.argsort(-np.asarray(lengths), kind="stable")
        is_sorted = bool((order == np.arange(len(order))).all())
        with torch.inference_mode():
            state = state if is_sorted else select(state, order)
            log_probs, features, state = self._score_sorted(
                np.asarray(tokens)[order], np.asarray(lengths)[order], state, keep_features=keep_features
            )
            if is_sorted:
                return log_probs, features, state
            back = np.argsort(order)
            return log_probs[back], features[back], select(state, back)

    def _score_sorted(
        self, tokens: Array, lengths: Array, state: NeuralState, *, keep_features: bool
    ) -> tuple[Array, Array, NeuralState]:
        """`score` for rows that come longest first."""
        tokens_TB = self._to_ids(tokens).t()
        log_probs_TB = torch.zeros(tokens_TB.shape, dtype=torch.float32, device=self.device)
        width = state.features.shape[1] if keep_features else 0
        features_TBP = torch.zeros((*tokens_TB.shape, width), dtype=torch.float32, device=self.device)
        longest: int = int(lengths.max(initial=0))
        stride: int = max(1, SCORE_TOKENS // max(1, len(tokens)))
        finished: list[NeuralState] = []
        pending: list[_Block] = []
        edges: list[int] = sorted({0, longest, *range(0, longest, stride), *map(int, lengths)})
        for first, last in pairwise(edges):
            active = int((lengths >= last).sum())
            if active < num_rows(state):
                finished.append(map_state(itemgetter(slice(active, None)), state))
                state = map_state(itemgetter(slice(active)), state)
            reading = self._read(tokens_TB[first:last, :active], state.carried, is_noisy=False)
            before = torch.cat([state.features[None], reading.features[:-1]])
            pending.append(_Block(before, tokens_TB[first:last, :active], log_probs_TB[first:last, :active]))
            if keep_features:
                features_TBP[first:last, :active] = before
            state = NeuralState(reading.carried, reading.features[-1])
            if last == longest or sum(block.tokens.numel() for block in pending) >= SCORE_TOKENS:
                self._score_blocks(pending)
                pending.clear()
        features = features_TBP.transpose(0, 1).cpu().numpy()
        return log_probs_TB.t().cpu().numpy(), features, self.join([state, *reversed(finished)])

    def _score_blocks(self, blocks: list[_Block]) -> None:
        """Compare what the tokens were predicted from with the tokens, for several blocks in one go."""
        features_NP = torch.cat([block.before.flatten(0, 1) for block in blocks])
        tokens_N = torch.cat([block.tokens.flatten() for block in blocks])
        parts = torch.split(self.head.score(features_NP, tokens_N), [block.tokens.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.log_probs.copy_(part.view(block.log_probs.shape))


class NeuralModel(NeuralReader[C], StreamNet):
    """A net as a `FreeModel` and a `Trainable`: it begins from nothing, in both ways of reading."""

    def __init__(
        self,
        config: C,
        *,
        vocab_size: int,
        reset_lines: bool,
        rng: torch.Generator | None,
        counts: Array | None = None,
        vectors: Array | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(config, vocab_size=vocab_size, rng=rng, counts=counts, vectors=vectors, dtype=dtype)
        self.reset_lines = reset_lines

    @abstractmethod
    def start_training(self, rows: int) -> Carried:
        """What a stream carries before its first input."""

    def start(self, rows: int) -> NeuralState:
        """As if the end of a line had just been read."""
        with torch.inference_mode():
            return self._begin(self.start_training(rows))

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried) -> tuple[Loss, Carried]:
        """See `StreamNet`."""
        reading = self._read(inputs.t(), state, is_noisy=self.training)
        features_NP = reading.features.flatten(0, 1)
        targets_N = targets.t().flatten()
        penalty_N = None if reading.penalty is None else reading.penalty.flatten()
        carried = tuple(leaf.detach() for leaf in reading.carried)
        if lengths is not None:
            times = torch.arange(inputs.shape[1], device=inputs.device)
            real = (times[:, None] < lengths[None, :]).flatten().nonzero()[:, 0]
            features_NP, targets_N = features_NP.index_select(0, real), targets_N[real]
            penalty_N = None if penalty_N is None else penalty_N[real]
            carried = self.start_training(len(inputs))
        mean, nats = self.head.loss(features_NP, targets_N, is_noisy=self.training)
        total = mean if penalty_N is None else mean + penalty_N.mean()
        return Loss(total, nats.detach(), len(targets_N)), carried

    @classmethod
    def from_tensors(cls, config: C, tensors: Mapping[str, Array], *, vocab_size: int, reset_lines: bool) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, config.family)
        config = config.model_copy(update={"embedding": words.shape[1]})
        dtype = torch.float64 if words.dtype == np.float64 else torch.float32
        model = cls(config, vocab_size=vocab_size, reset_lines=reset_lines, rng=None, dtype=dtype)
        model.load_tensors(tensors)
        return model


class _Block(NamedTuple):
    """Tokens to score, what each was predicted from, and where its score goes."""

    before: Tensor  # (T, B, P)
    tokens: Tensor  # (T, B)
    log_probs: Tensor  # (T, B)
