"""Transformer blocks with relative positions only: attention depends on the distance between two tokens.

T steps · B rows · H hidden · A attention heads · D width of a head · S tokens attended to · W window
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList, Parameter

from elman.nets.dropout import locked_dropout
from elman.nets.layer import draw_weights
from elman.nets.trace import LayerTrace

Activation = Literal["gelu", "relu"]
# Factor of the position biases, which would learn too slowly at the learning rate of the other weights
POSITION_GAIN = 8.0
MIN_STRIDE = 32  # queries processed at once; with fewer, for a short window, the matrix products are inefficient


@dataclass(frozen=True)
class BlockShape:
    """The sizes of a block."""

    hidden: int
    num_heads: int
    feed_forward: int  # inner width of the feed-forward net
    window: int  # tokens attended to; in an encoder, the largest distance with a bias of its own
    activation: Activation = "gelu"


class Block(Module):
    """Attention, then a feed-forward net, each with a residual connection and pre-norm (Xiong et al. 2020).

    A head's score of two tokens has a learned bias for the distance between them, initially falling linearly with it,
    with a slope of its own in each head (ALiBi, Press et al. 2022).
    """

    def __init__(self, shape: BlockShape, *, num_distances: int, dtype: torch.dtype) -> None:
        super().__init__()
        hidden = shape.hidden
        self.hidden = hidden
        self.num_heads = shape.num_heads
        self.window = shape.window
        self.activation: Activation = shape.activation
        self.attention_norm = LayerNorm(hidden, dtype=dtype)
        self.attention_in = Linear(hidden, 3 * hidden, dtype=dtype)  # queries, keys, values
        self.attention_out = Linear(hidden, hidden, dtype=dtype)
        self.distances = Parameter(torch.zeros(num_distances, shape.num_heads, dtype=dtype))
        self.feed_forward_norm = LayerNorm(hidden, dtype=dtype)
        self.feed_forward_in = Linear(hidden, shape.feed_forward, dtype=dtype)
        self.feed_forward_out = Linear(shape.feed_forward, hidden, dtype=dtype)

    def _position_bias(self, distances: Tensor) -> Tensor:
        """The bias of each head for these rows of `self.distances`. -> (A, ...)"""
        return (F.embedding(distances, self.distances) * POSITION_GAIN).movedim(-1, 0).contiguous()

    @abstractmethod
    def row_distances(self) -> Tensor:
        """The distance in tokens that each row of `self.distances` stands for. -> (num_distances,)"""

    def initialise(self, rng: torch.Generator, *, num_blocks: int) -> None:
        """Uniform weights; residual outputs scaled by 1 / sqrt(2 num_blocks) (Radford et al. 2019), ALiBi slopes."""
        with torch.no_grad():
            for layer in (self.attention_in, self.attention_out, self.feed_forward_in, self.feed_forward_out):
                draw_weights(rng, layer.weight, inputs=layer.in_features)
                layer.bias.zero_()
            for layer in (self.attention_out, self.feed_forward_out):
                layer.weight.div_((2 * num_blocks) ** 0.5)
            slopes_A = 2.0 ** (-8.0 * torch.arange(1, self.num_heads + 1) / self.num_heads)
            self.distances.copy_(-self.row_distances()[:, None] * slopes_A / POSITION_GAIN)

    def _project(self, values_TBH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values. -> (B, A, T, D) each"""
        num_steps, num_rows, _ = values_TBH.shape
        projected = self.attention_in(self.attention_norm(values_TBH))
        heads = projected.view(num_steps, num_rows, 3, self.num_heads, -1).permute(2, 1, 3, 0, 4)
        queries, keys, values = heads.unbind(0)
        return queries * queries.shape[-1] ** -0.5, keys, values

    def _add(self, values_TBH: Tensor, attended_BATD: Tensor, dropout: float) -> Tensor:
        """Residual connection of attention, then the feed-forward net. -> (T, B, H)"""
        attended_TBH = attended_BATD.permute(2, 0, 1, 3).flatten(2)
        return self._feed_forward(values_TBH + locked_dropout(self.attention_out(attended_TBH), dropout), dropout)

    def _feed_forward(self, values_TBH: Tensor, dropout: float) -> Tensor:
        """The feed-forward net with its residual connection. -> (T, B, H)"""
        inner_TBF = self.feed_forward_in(self.feed_forward_norm(values_TBH))
        inner_TBF = F.gelu(inner_TBF) if self.activation == "gelu" else F.relu(inner_TBF)
        return values_TBH + locked_dropout(self.feed_forward_out(inner_TBF), dropout)

    def multiply_adds(self, num_attended: int) -> float:
        """Multiply-adds for one token that attends to `num_attended` tokens."""
        layers = (self.attention_in, self.attention_out, self.feed_forward_in, self.feed_forward_out)
        return float(sum(layer.weight.numel() for layer in layers) + 2 * num_attended * self.hidden)


class CausalBlock(Block):
    """A block in which a token attends to itself and the window - 1 tokens before it, however the text is batched."""

    def __init__(self, shape: BlockShape, *, dtype: torch.dtype) -> None:
        super().__init__(shape, num_distances=shape.window, dtype=dtype)

    def row_distances(self) -> Tensor:
        """From the token itself back. -> (W,)"""
        return torch.arange(self.window)

    def forward(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor, *, dropout: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """-> (T, B, H), and the new key-value cache. `seen` is the cache of earlier tokens, (B, A, W - 1, D) each.

        In each row only its last `num_seen_B` entries are valid.
        """
        attended, new_seen = self._look_back(values_TBH, seen, num_seen_B)
        return self._add(values_TBH, attended, dropout), new_seen

    def _look_back(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The attention output, (B, A, T, D), and the new key-value cache."""
        queries, new_keys, new_values = self._project(values_TBH)
        old_keys, old_values = seen
        capacity = old_keys.shape[2]
        # the keys that some row has seen; all of the cache in an exported graph, whose sizes depend on no value
        is_exporting = torch.compiler.is_exporting()
        num_old = capacity if is_exporting or not capacity else int(num_seen_B.max())
        keys = torch.cat([old_keys[:, :, capacity - num_old :], new_keys], dim=2)
        values = torch.cat([old_values[:, :, capacity - num_old :], new_values], dim=2)
        is_ragged = is_exporting or bool((num_seen_B < num_old).any())
        unseen_B = num_old - num_seen_B if is_ragged else None
        attended = self._attend(queries, keys, values, unseen_B)
        return attended, (_slide(old_keys, new_keys), _slide(old_values, new_values))

    def trace(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor
    ) -> tuple[LayerTrace, tuple[Tensor, Tensor]]:
        """What `forward` does for one row, with its attention weights. -> and the new key-value cache"""
        attended, weights_BATS, new_seen = self._look_back_traced(values_TBH, seen, num_seen_B)
        outputs = self._add(values_TBH, attended, 0.0).unbind(0)
        return LayerTrace(outputs, new_seen, attention={"self": weights_BATS}), new_seen

    def _look_back_traced(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """The attention output, (B, A, T, D), its weights, (B, A, T, S), of one row, and the new key-value cache."""
        queries, new_keys, new_values = self._project(values_TBH)
        num_unseen = seen[0].shape[2] - int(num_seen_B.max())
        keys = torch.cat([seen[0][:, :, num_unseen:], new_keys], dim=2)
        values = torch.cat([seen[1][:, :, num_unseen:], new_values], dim=2)
        energies_BATS = queries @ keys.transpose(2, 3) + self._band(queries.shape[2], keys.shape[2])
        weights_BATS = energies_BATS.softmax(-1)
        return weights_BATS @ values, weights_BATS, (_slide(seen[0], new_keys), _slide(seen[1], new_values))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, unseen_B: Tensor | None) -> Tensor:
        """Attention in blocks of queries, so that the cost per token does not grow with the text. -> (B, A, T, D)

        The first `unseen_B` keys of each row are masked.
        """
        num_queries, num_keys = queries.shape[2], keys.shape[2]
        stride = max(self.window, MIN_STRIDE)
        attended: list[Tensor] = []
        bands: dict[tuple[int, int], Tensor] = {}
        for first in range(0, num_queries, stride):
            last = min(first + stride, num_queries)
            end = num_keys - num_queries + last  # the last query's own key is the last
            begin = max(0, num_keys - num_queries + first - (self.window - 1))
            shape = (last - first, end - begin)
            if shape not in bands:
                bands[shape] = self._band(*shape)
            energies_BATS = queries[:, :, first:last] @ keys[:, :, begin:end].transpose(2, 3)
            energies_BATS += bands[shape]
            if unseen_B is not None:
                is_unseen_BS = torch.arange(begin, end, device=keys.device) < unseen_B[:, None]
                energies_BATS = energies_BATS.masked_fill(is_unseen_BS[:, None, None], -torch.inf)
            attended.append(energies_BATS.softmax(-1) @ values[:, :, begin:end])
        return attended[0] if len(attended) == 1 else torch.cat(attended, dim=2)

    def _band(self, num_queries: int, num_keys: int) -> Tensor:
        """Position bias of each head, -inf outside the window; the last query is at the last key. -> (A, T, S)"""
        device = self.distances.device
        places_T1 = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
        distance_TS = places_T1 - torch.arange(num_keys, device=device)
        is_outside_TS = (distance_TS < 0) | (distance_TS >= self.window)
        band_ATS = self._position_bias(distance_TS.clamp(0, self.window - 1))
        return band_ATS.masked_fill(is_outside_TS, -torch.inf)


K = TypeVar("K", bound="Block")


class BlockStack(Module, Generic[K]):
    """A stack of blocks and a final layer norm."""

    def __init__(self, blocks: Sequence[K], *, inputs: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.output_width = hidden
        self.reader = WordReader(inputs, hidden, dtype=dtype)
        self.blocks = ModuleList(blocks)
        self.norm = LayerNorm(hidden, dtype=dtype)

    @property
    def parts(self) -> list[K]:
        """The blocks, from the bottom up."""
        return cast(list[K], list(self.blocks))

    def state_names(self) -> list[str]:
        """What each of the tensors is called that are kept of the tokens that were seen."""
        return ["num_seen", *(f"{name}_{n}" for n in range(1, len(self.blocks) + 1) for name in ("keys", "values"))]

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights."""
        self.reader.initialise(rng)
        for block in self.parts:
            block.initialise(rng, num_blocks=len(self.blocks))


class CausalStack(BlockStack[CausalBlock]):
    """A stack of causal blocks and a final layer norm. Its state is the number of tokens seen (up to the window - 1),
    then each block's keys and values of them."""

    def __init__(self, inputs: int, shape: BlockShape, *, num_layers: int, dtype: torch.dtype) -> None:
        blocks = [CausalBlock(shape, dtype=dtype) for _ in range(num_layers)]
        super().__init__(blocks, inputs=inputs, hidden=shape.hidden, dtype=dtype)
        self.window = shape.window

    def start(self, rows: int) -> tuple[Tensor, ...]:
        """The state before the first token."""
        weight = self.norm.weight
        shapes = [
            (rows, block.num_heads, self.window - 1, self.output_width // block.num_heads)
            for block in self.parts
            for _ in ("keys", "values")
        ]
        return torch.zeros(rows, dtype=torch.int64, device=weight.device), *map(weight.new_zeros, shapes)

    def forward(
        self, words_TBE: Tensor, carried: Sequence[Tensor], *, dropout_input: float = 0.0, dropout: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """-> (T, B, H), and what to carry on. `dropout` is of what attention and feed-forward nets add."""
        outputs, after = self._read_all(words_TBE, carried, dropout_input=dropout_input, dropout=dropout)
        return self.norm(outputs[-1]), after

    def vectors(self, words_TBE: Tensor, carried: Sequence[Tensor]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """What is there after each block; of the top one, normed. -> (T, B, H) each, and what to carry on"""
        (*below, top), after = self._read_all(words_TBE, carried)
        return [*below, self.norm(top)], after

    def trace(
        self, words_TBE: Tensor, carried: Sequence[Tensor]
    ) -> tuple[list[LayerTrace], list[Tensor], tuple[Tensor, ...]]:
        """What each block did with one row, what is there after each as `vectors` has it, and what to carry on."""
        num_seen_B, *seen = carried
        values_TBH = self.reader(words_TBE)
        traces: list[LayerTrace] = []
        after: list[Tensor] = [(num_seen_B + len(words_TBE)).clamp(max=self.window - 1)]
        for index, block in enumerate(self.parts):
            traced, own = block.trace(values_TBH, (seen[2 * index], seen[2 * index + 1]), num_seen_B)
            values_TBH = traced.output()
            traces.append(traced)
            after += own
        outputs = [traced.output() for traced in traces[:-1]]
        return traces, [*outputs, self.norm(values_TBH)], tuple(after)

    def _read_all(
        self, words_TBE: Tensor, carried: Sequence[Tensor], *, dropout_input: float = 0.0, dropout: float = 0.0
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """What is there after each block, and what to carry on."""
        num_seen_B, *seen = carried
        values_TBH = locked_dropout(self.reader(words_TBE), dropout_input)
        outputs: list[Tensor] = []
        after: list[Tensor] = [(num_seen_B + len(words_TBE)).clamp(max=self.window - 1)]
        for index, block in enumerate(self.parts):
            own = (seen[2 * index], seen[2 * index + 1])
            values_TBH, own = block(values_TBH, own, num_seen_B, dropout=dropout)
            outputs.append(values_TBH)
            after += own
        return outputs, tuple(after)

    def multiply_adds(self) -> float:
        """Multiply-adds for one token with a full window."""
        return self.reader.multiply_adds() + sum(block.multiply_adds(self.window) for block in self.parts)


class WordReader(Module):
    """Projects word embeddings to the width of the blocks and normalises them."""

    def __init__(self, inputs: int, hidden: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = Linear(inputs, hidden, dtype=dtype) if inputs != hidden else None
        self.norm = LayerNorm(hidden, dtype=dtype)

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the initial weights, if there are any."""
        if self.linear is not None:
            draw_weights(rng, self.linear.weight, inputs=self.linear.in_features)
            with torch.no_grad():
                self.linear.bias.zero_()

    def forward(self, words: Tensor) -> Tensor:
        """-> (..., H)"""
        normed: Tensor = self.norm(words if self.linear is None else self.linear(words))
        return normed

    def multiply_adds(self) -> float:
        """Multiply-adds for one token."""
        return 0.0 if self.linear is None else float(self.linear.weight.numel())


def _slide(old: Tensor, new: Tensor) -> Tensor:
    """The cache `old` shifted by the entries of `new`. -> same shape as `old`"""
    capacity, num_new = old.shape[2], new.shape[2]
    if num_new >= capacity:
        return new[:, :, num_new - capacity :].contiguous()
    return torch.cat([old[:, :, num_new:], new], dim=2)
