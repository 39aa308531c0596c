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
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module

from elman.config import NetConfig, WindowConfig
from elman.errors import DataError, UsageError
from elman.lm import Array, map_state, num_rows, select
from elman.models.trainable import Loss, StreamNet
from elman.nets.embedding import Embedding
from elman.nets.heads import build_head
from elman.nets.layer import draw_weights
from elman.nets.stack import Stack
from elman.nets.transformer import CausalStack
from elman.text.vocabulary import EOS_ID

Carried = tuple[Tensor, ...]  # batch on axis 0 of each
C = TypeVar("C", bound=NetConfig)

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


class NeuralReader(Module, Generic[C]):
    """A net as a `LanguageModel`, from whatever state it begins. Its start symbol is the end of a line.

    vectors: (V, E), the input words' vectors to begin with, NaN for words without one. counts: (V,), how often each
    word was seen; heads other than `full` need them. Without `rng` all weights are zero, to be loaded. The model's own
    `config` is the given one with every size filled in: what has to be kept to build it again.
    """

    def __init__(
        self,
        config: C,
        *,
        vocab_size: int,
        rng: torch.Generator | None,
        counts: Array | None = None,
        vectors: Array | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        width = _embedding_width(config, vectors)
        self.embedding = Embedding(vocab_size, width, is_frozen=not config.tune_vectors, dtype=dtype)
        self.config: C = config.model_copy(update={"embedding": width})
        self.stack = self._build_stack(dtype)
        outputs = self._output_width()
        features = width if config.tied else config.projection or outputs
        has_projection = config.projection is not None or features != outputs
        self.projection = Linear(outputs, features, dtype=dtype) if has_projection else None
        tied = self.embedding.weight if config.tied else None
        self.head, chosen = build_head(self.config, features, vocab_size, counts=counts, tied=tied, dtype=dtype)
        self.config = self.config.model_copy(update=chosen)
        if rng is not None:
            self._initialise(rng, vectors)

    @abstractmethod
    def _build_stack(self, dtype: torch.dtype) -> Stack | CausalStack:
        """The layers between the words and the output."""

    @abstractmethod
    def _output_width(self) -> int:
        """How wide what comes out of them is."""

    @abstractmethod
    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> Reading:
        """Read on; `is_noisy` switches dropout and penalties."""

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

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

    def tensors(self) -> dict[str, Array]:
        """Every number that was learned or fitted, by name; shared ones once."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self._own_tensors().items()}

    def load_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Become the model whose `tensors()` these were."""
        own = self._own_tensors()
        for name in sorted(own.keys() ^ tensors.keys()):
            problem = "missing" if name in own else "not part of such a model"
            raise DataError(f"the tensors do not fit the settings: {name} is {problem}")
        with torch.no_grad():
            for name, tensor in own.items():
                array = tensors[name]
                if array.shape != tuple(tensor.shape):
                    expected = tuple(tensor.shape)
                    raise DataError(f"the tensors do not fit the settings: {name} is {array.shape}, not {expected}")
                tensor.copy_(torch.from_numpy(np.array(array)))  # a copy: the file may be mapped read-only

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one token, forward."""
        projection = 0 if self.projection is None else self.projection.weight.numel()
        return self.stack.multiply_adds() + projection + self.head.multiply_adds()

    def _own_tensors(self) -> dict[str, Tensor]:
        """What is saved: parameters, each once, and persistent buffers."""
        everything = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: tensor for name, tensor in everything.items() if name in self.state_dict()}

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        self.embedding.initialise(rng, vectors)
        self.stack.initialise(rng)
        if self.projection is not None:
            draw_weights(rng, self.projection.weight, inputs=self.projection.in_features)
            with torch.no_grad():
                self.projection.bias.zero_()
        self.head.initialise(rng)

    def _project(self, outputs: Tensor) -> Tensor:
        return outputs if self.projection is None else self.projection(outputs)

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

    def _to_ids(self, tokens: Array) -> Tensor:
        return torch.from_numpy(np.array(tokens, dtype=np.int64)).to(self.device)

    @staticmethod
    def _to_numpy(tensor: Tensor) -> Array:
        return tensor.to(torch.float32).cpu().numpy()


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


def embedding_of(tensors: Mapping[str, Array], family: str) -> Array:
    """The words' vectors among a model's tensors, (V, E)."""
    if "embedding.weight" not in tensors or tensors["embedding.weight"].ndim != 2:
        raise DataError(f"these are not the tensors of a {family} model: no embedding.weight")
    return tensors["embedding.weight"]


class _Block(NamedTuple):
    """Tokens to score, what each was predicted from, and where its score goes."""

    before: Tensor  # (T, B, P)
    tokens: Tensor  # (T, B)
    log_probs: Tensor  # (T, B)


def _embedding_width(config: NetConfig, vectors: Array | None) -> int:
    if vectors is None:
        default = 128 if isinstance(config, WindowConfig) else config.hidden
        return config.embedding or (config.projection if config.tied else None) or default
    width = int(vectors.shape[1])
    wanted = config.embedding or (config.projection if config.tied else None) or width
    if wanted != width:
        raise UsageError(
            f"the word vectors have {width} numbers each, the settings want {wanted}",
            hint=f"leave out model.embedding, or set it to {width}",
        )
    return width
