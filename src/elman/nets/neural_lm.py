"""A net as a language model: predict, advance, score and join over states.

A family defines its layers (`_build_stack`) and how they read tokens from a state (`_read`).
T tokens · B rows · P features that the output head reads · V vocabulary · K words of history
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.lm.protocol import map_state, num_rows, select
from elman.nets.config import LanguageNetConfig
from elman.nets.inputs import NetInputs
from elman.nets.maxent import Maxent, SparseLogits
from elman.nets.vocabulary_net import C, VocabularyNet
from elman.text.units.vocabulary import EOS_ID

Carried = tuple[Tensor, ...]  # the state of the layers, batch on axis 0 of each tensor
L = TypeVar("L", bound=LanguageNetConfig)

# Tokens, over all rows, that `score` reads at once: enough for efficient matrix products, few enough for memory.
SCORE_TOKENS = 4096


@dataclass(frozen=True)
class NeuralState:
    """The state of the layers, and the features from which the output head predicts the next token."""

    carried: Carried
    features: Tensor  # (B, P)


class LayerOutputs(NamedTuple):
    """The outputs of the layers for some tokens."""

    features: Tensor  # (T, B, P)
    carried: Carried
    penalty: Tensor | None  # (T, B), added to the loss
    histories: Tensor | None = None  # (T, B, K), for n-gram features


class NeuralLm(VocabularyNet[C]):
    """A net as a `LanguageModel`. Its start symbol is the end-of-line token.

    With n-gram features (`maxent`), the last K words, (B, K), follow the state of the layers in `carried`.
    """

    def __init__(self, config: C, inputs: NetInputs) -> None:
        super().__init__(config, inputs)
        self.maxent: Maxent | None = None

    @abstractmethod
    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        """Run the layers on from a state; `is_noisy` turns on dropout and penalties."""

    @abstractmethod
    def carried_names(self) -> list[str]:
        """What each of the tensors is called that it carries, for those who carry them themselves."""

    def read_one(self, tokens_B: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        """One token per row: the log-probabilities of what follows, (B, V), and what to carry on."""
        outputs = self._read_tokens(tokens_B[None], carried, is_noisy=False)
        histories_BK = None if outputs.histories is None else outputs.histories[0]
        return self.head.log_probs(outputs.features[0], self._ngrams(histories_BK)), outputs.carried

    def _begin(self, carried: Carried) -> NeuralState:
        """The state before the first token, given initial layer states: the start symbol is read."""
        rows = len(carried[0])
        return self._step(torch.full((rows,), EOS_ID, dtype=torch.int64, device=self.device), carried)

    def predict(self, state: NeuralState) -> Array:
        """-> (B, V)"""
        with torch.inference_mode():
            return self._to_numpy(self.head.log_probs(state.features, self._ngrams(self._histories(state))))

    def advance(self, tokens: Array, state: NeuralState) -> NeuralState:
        """Read one token per row."""
        with torch.inference_mode():
            return self._step(self._to_ids(tokens), state.carried)

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of several states as one batch."""
        with torch.inference_mode():
            carried = tuple(torch.cat(leaves) for leaves in zip(*(state.carried for state in states), strict=True))
            return NeuralState(carried, torch.cat([state.features for state in states]))

    def score(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, NeuralState]:
        """Log-probability of each token, 0 at padding, and the new state. Padding is never computed."""
        log_probs, _, state = self._score(tokens, lengths, state, keep_features=False)
        return log_probs, state

    def features(self, state: NeuralState) -> Array:
        """The hidden vector that the output head reads. -> (B, P)"""
        return self._to_numpy(state.features)

    def score_features(self, tokens: Array, lengths: Array, state: NeuralState) -> tuple[Array, Array, NeuralState]:
        """Like `score`, with the features that each token was predicted from in the middle, 0 at padding, (B, T, P)."""
        return self._score(tokens, lengths, state, keep_features=True)

    def _step(self, tokens_B: Tensor, carried: Carried) -> NeuralState:
        outputs = self._read_tokens(tokens_B[None], carried, is_noisy=False)
        return NeuralState(outputs.carried, outputs.features[0])

    def _read_tokens(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        """Run the layers, and look up the n-gram histories after each token."""
        if self.maxent is None:
            return self._read(tokens_TB, carried, is_noisy=is_noisy)
        *layers, last_BK = carried
        outputs = self._read(tokens_TB, tuple(layers), is_noisy=is_noisy)
        words_XB = torch.cat([last_BK.t(), tokens_TB])
        return outputs._replace(
            carried=(*outputs.carried, words_XB[len(tokens_TB) :].t()), histories=self.maxent.find(words_XB[1:])
        )

    def _histories(self, state: NeuralState) -> Tensor | None:
        """The n-gram histories at a state. -> (B, K)"""
        return None if self.maxent is None else self.maxent.find(state.carried[-1].t())[0]

    def _ngrams(self, histories_NK: Tensor | None) -> SparseLogits | None:
        """The n-gram logits of rows with these histories."""
        return None if self.maxent is None or histories_NK is None else self.maxent.logits(histories_NK)

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
        """`score` for rows sorted by length, longest first."""
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
            outputs = self._read_tokens(tokens_TB[first:last, :active], state.carried, is_noisy=False)
            features = torch.cat([state.features[None], outputs.features[:-1]])
            histories = self._histories(state)
            if histories is not None and outputs.histories is not None:
                histories = torch.cat([histories[None], outputs.histories[:-1]])
            pending.append(
                _Block(features, histories, tokens_TB[first:last, :active], log_probs_TB[first:last, :active])
            )
            if keep_features:
                features_TBP[first:last, :active] = features
            state = NeuralState(outputs.carried, outputs.features[-1])
            if last == longest or sum(block.tokens.numel() for block in pending) >= SCORE_TOKENS:
                self._score_blocks(pending)
                pending.clear()
        features_BTP = features_TBP.transpose(0, 1).cpu().numpy()
        return log_probs_TB.t().cpu().numpy(), features_BTP, self.join([state, *reversed(finished)])

    def _score_blocks(self, blocks: list[_Block]) -> None:
        """Run the output head on several blocks at once, and write their log-probabilities."""
        features_NP = torch.cat([block.features.flatten(0, 1) for block in blocks])
        tokens_N = torch.cat([block.tokens.flatten() for block in blocks])
        histories = [block.histories.flatten(0, 1) for block in blocks if block.histories is not None]
        scores_N = self.head.score(features_NP, tokens_N, self._ngrams(torch.cat(histories) if histories else None))
        parts = torch.split(scores_N, [block.tokens.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.log_probs.copy_(part.view(block.log_probs.shape))


class _Block(NamedTuple):
    """Tokens to score, the features each is predicted from, and the place of its log-probability."""

    features: Tensor  # (T, B, P)
    histories: Tensor | None  # (T, B, K)
    tokens: Tensor  # (T, B)
    log_probs: Tensor  # (T, B)
