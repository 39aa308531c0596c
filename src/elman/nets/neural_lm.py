"""What every net does alike: predict, advance, score and join over states, and the loss.

A family says what its layers are (`_build_stack`), what they carry from token to token (`_start_layers`) and how they
read on (`_read`). T tokens · B rows · P features, as the output head reads them · V vocabulary · K words of history
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

Carried = tuple[Tensor, ...]  # batch on axis 0 of each
L = TypeVar("L", bound=LanguageNetConfig)

# Tokens of all rows together that `score` reads at once: enough for the matrix products, little enough to hold.
SCORE_TOKENS = 4096


@dataclass(frozen=True)
class NeuralState:
    """What is carried on, and what the output head reads to predict the next token."""

    carried: Carried
    features: Tensor  # (B, P)


class LayerOutputs(NamedTuple):
    """What reading some tokens came to."""

    features: Tensor  # (T, B, P)
    carried: Carried
    penalty: Tensor | None  # (T, B)
    histories: Tensor | None = None  # (T, B, K), for n-gram features


class NeuralLm(VocabularyNet[C]):
    """A net as a `LanguageModel`, from whatever state it begins. Its start symbol is the end of a line.

    With n-gram features (`maxent`), the last K words are carried behind what the layers carry, (B, K).
    """

    def __init__(self, config: C, inputs: NetInputs) -> None:
        super().__init__(config, inputs)
        self.maxent: Maxent | None = None

    @abstractmethod
    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        """Read on; `is_noisy` switches dropout and penalties."""

    def _begin(self, carried: Carried) -> NeuralState:
        """The state before the first token of rows that carry this: the start symbol is read."""
        rows = len(carried[0])
        return self._step(torch.full((rows,), EOS_ID, dtype=torch.int64, device=self.device), carried)

    def predict(self, state: NeuralState) -> Array:
        """-> (B, V)"""
        with torch.inference_mode():
            return self._to_numpy(self.head.log_probs(state.features, self._ngrams(self._histories(state))))

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
        reading = self._follow(tokens_B[None], carried, is_noisy=False)
        return NeuralState(reading.carried, reading.features[0])

    def _follow(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        """Read on, and find the histories that the words read make."""
        if self.maxent is None:
            return self._read(tokens_TB, carried, is_noisy=is_noisy)
        *own, last_BK = carried
        reading = self._read(tokens_TB, tuple(own), is_noisy=is_noisy)
        read_XB = torch.cat([last_BK.t(), tokens_TB])
        return reading._replace(
            carried=(*reading.carried, read_XB[len(tokens_TB) :].t()), histories=self.maxent.find(read_XB[1:])
        )

    def _histories(self, state: NeuralState) -> Tensor | None:
        """Those at a state. -> (B, K)"""
        return None if self.maxent is None else self.maxent.find(state.carried[-1].t())[0]

    def _ngrams(self, histories_NK: Tensor | None) -> SparseLogits | None:
        """What n-grams add to the logits of rows with these histories."""
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
            reading = self._follow(tokens_TB[first:last, :active], state.carried, is_noisy=False)
            before = torch.cat([state.features[None], reading.features[:-1]])
            histories = self._histories(state)
            if histories is not None and reading.histories is not None:
                histories = torch.cat([histories[None], reading.histories[:-1]])
            pending.append(_Block(before, histories, tokens_TB[first:last, :active], log_probs_TB[first:last, :active]))
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
        histories = [block.histories.flatten(0, 1) for block in blocks if block.histories is not None]
        scores_N = self.head.score(features_NP, tokens_N, self._ngrams(torch.cat(histories) if histories else None))
        parts = torch.split(scores_N, [block.tokens.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.log_probs.copy_(part.view(block.log_probs.shape))


class _Block(NamedTuple):
    """Tokens to score, what each was predicted from, and where its score goes."""

    before: Tensor  # (T, B, P)
    histories: Tensor | None  # (T, B, K)
    tokens: Tensor  # (T, B)
    log_probs: Tensor  # (T, B)
