"""Blocks of self-attention. Positions are only ever relative: what counts is how far apart two tokens are.

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

Activation = Literal["gelu", "relu"]
GAIN = 8.0  # of the numbers for distances, which would move too slowly at a rate that suits the other weights
MIN_STRIDE = 32  # queries at once: fewer, for a short window, would starve the matrix products


@dataclass(frozen=True)
class BlockShape:
    """How blocks are made."""

    hidden: int
    num_heads: int
    feed_forward: int  # how wide the feed-forward net is inside
    window: int  # tokens attended to, or distances told apart
    activation: Activation = "gelu"


class Block(Module):
    """Attention, then a feed-forward net, each added to what it read, which it reads normed (Xiong et al. 2020).

    How much a head looks at a token depends on what both are and on a learned number for the distance between them. It
    begins as a line that falls with the distance, steeper from head to head (Press et al. 2022).
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

    def _weigh(self, distances: Tensor) -> Tensor:
        """What rows of `distances` add to the energies of each head. -> (A, ...)"""
        return (F.embedding(distances, self.distances) * GAIN).movedim(-1, 0).contiguous()

    @abstractmethod
    def how_far(self) -> Tensor:
        """The distance that each row of `distances` is about. -> (num_distances,)"""

    def initialise(self, rng: torch.Generator, *, num_blocks: int) -> None:
        """Uniform weights; the more blocks add to each other, the less each begins with (Radford et al. 2019)."""
        with torch.no_grad():
            for layer in (self.attention_in, self.attention_out, self.feed_forward_in, self.feed_forward_out):
                draw_weights(rng, layer.weight, inputs=layer.in_features)
                layer.bias.zero_()
            for layer in (self.attention_out, self.feed_forward_out):
                layer.weight.div_((2 * num_blocks) ** 0.5)
            slopes_A = 2.0 ** (-8.0 * torch.arange(1, self.num_heads + 1) / self.num_heads)
            self.distances.copy_(-self.how_far()[:, None] * slopes_A / GAIN)

    def _project(self, values_TBH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, scaled, keys and values. -> (B, A, T, D) each"""
        num_steps, num_rows, _ = values_TBH.shape
        projected = self.attention_in(self.attention_norm(values_TBH))
        heads = projected.view(num_steps, num_rows, 3, self.num_heads, -1).permute(2, 1, 3, 0, 4)
        queries, keys, values = heads.unbind(0)
        return queries * queries.shape[-1] ** -0.5, keys, values

    def _add(self, values_TBH: Tensor, attended_BATD: Tensor, dropout: float) -> Tensor:
        """What attention found, then what the feed-forward net makes of it, on top of what was read. -> (T, B, H)"""
        attended_TBH = attended_BATD.permute(2, 0, 1, 3).flatten(2)
        return self._feed_forward(values_TBH + locked_dropout(self.attention_out(attended_TBH), dropout), dropout)

    def _feed_forward(self, values_TBH: Tensor, dropout: float) -> Tensor:
        """What the feed-forward net makes of values, on top of them. -> (T, B, H)"""
        inner_TBF = self.feed_forward_in(self.feed_forward_norm(values_TBH))
        inner_TBF = F.gelu(inner_TBF) if self.activation == "gelu" else F.relu(inner_TBF)
        return values_TBH + locked_dropout(self.feed_forward_out(inner_TBF), dropout)

    def multiply_adds(self, num_attended: int) -> float:
        """Of one token that attends to so many."""
        layers = (self.attention_in, self.attention_out, self.feed_forward_in, self.feed_forward_out)
        return float(sum(layer.weight.numel() for layer in layers) + 2 * num_attended * self.hidden)


class CausalBlock(Block):
    """A block in which a token sees itself and the window - 1 tokens before it, whichever way the text was cut."""

    def __init__(self, shape: BlockShape, *, dtype: torch.dtype) -> None:
        super().__init__(shape, num_distances=shape.window, dtype=dtype)

    def how_far(self) -> Tensor:
        """From the token itself back. -> (W,)"""
        return torch.arange(self.window)

    def forward(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor, *, dropout: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """-> (T, B, H), and the keys and values to keep. `seen` are those of the tokens before, (B, A, W - 1, D) each.

        Of them the last `num_seen_B` are real, row by row.
        """
        attended, new_seen = self._look_back(values_TBH, seen, num_seen_B)
        return self._add(values_TBH, attended, dropout), new_seen

    def _look_back(
        self, values_TBH: Tensor, seen: tuple[Tensor, Tensor], num_seen_B: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """What attention finds, (B, A, T, D), and the keys and values to keep."""
        queries, new_keys, new_values = self._project(values_TBH)
        old_keys, old_values = seen
        num_kept = old_keys.shape[2]
        num_old = int(num_seen_B.max()) if num_kept else 0
        keys = torch.cat([old_keys[:, :, num_kept - num_old :], new_keys], dim=2)
        values = torch.cat([old_values[:, :, num_kept - num_old :], new_values], dim=2)
        is_ragged = bool((num_seen_B < num_old).any())
        unseen_B = num_old - num_seen_B if is_ragged else None
        attended = self._attend(queries, keys, values, unseen_B)
        return attended, (_slide(old_keys, new_keys), _slide(old_values, new_values))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, unseen_B: Tensor | None) -> Tensor:
        """Block by block, so that a long text costs no more a token than a short one. -> (B, A, T, D)

        The first `unseen_B` keys of each row are not there.
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
        """What distance adds to each head, -inf outside the window; the last query stands at the last key. -> (A, T, S)"""
        device = self.distances.device
        places_T1 = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
        distance_TS = places_T1 - torch.arange(num_keys, device=device)
        is_outside_TS = (distance_TS < 0) | (distance_TS >= self.window)
        band_ATS = self._weigh(distance_TS.clamp(0, self.window - 1))
        return band_ATS.masked_fill(is_outside_TS, -torch.inf)


K = TypeVar("K", bound="Block")


class BlockStack(Module, Generic[K]):
    """Blocks on top of each other, and a norm at the end."""

    def __init__(self, blocks: Sequence[K], *, inputs: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.output_width = hidden  # how wide the outputs are
        self.reader = WordReader(inputs, hidden, dtype=dtype)
        self.blocks = ModuleList(blocks)
        self.norm = LayerNorm(hidden, dtype=dtype)

    @property
    def parts(self) -> list[K]:
        """The blocks, from the words up."""
        return cast(list[K], list(self.blocks))

    def initialise(self, rng: torch.Generator) -> None:
        """Draw all weights."""
        self.reader.initialise(rng)
        for block in self.parts:
            block.initialise(rng, num_blocks=len(self.blocks))


class CausalStack(BlockStack[CausalBlock]):
    """Blocks on top of each other, and a norm at the end. What is carried is the number of tokens seen (up to
    the window - 1), then each block's keys and values of them."""

    def __init__(self, inputs: int, shape: BlockShape, *, num_layers: int, dtype: torch.dtype) -> None:
        blocks = [CausalBlock(shape, dtype=dtype) for _ in range(num_layers)]
        super().__init__(blocks, inputs=inputs, hidden=shape.hidden, dtype=dtype)
        self.window = shape.window

    def start(self, rows: int) -> tuple[Tensor, ...]:
        """Nothing seen yet."""
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

    def vectors(self, words_TBE: Tensor, carried: Sequence[Tensor]) -> list[Tensor]:
        """What is there after each block; of the top one, normed. -> (T, B, H) each"""
        *below, top = self._read_all(words_TBE, carried)[0]
        return [*below, self.norm(top)]

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
        """Of one token with a full window."""
        return self.reader.multiply_adds() + sum(block.multiply_adds(self.window) for block in self.parts)


class WordReader(Module):
    """Words' vectors as blocks read them: of their width, and normed, so that words of any size weigh alike."""

    def __init__(self, inputs: int, hidden: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = Linear(inputs, hidden, dtype=dtype) if inputs != hidden else None
        self.norm = LayerNorm(hidden, dtype=dtype)

    def initialise(self, rng: torch.Generator) -> None:
        """Draw the weights, where there are any."""
        if self.linear is not None:
            draw_weights(rng, self.linear.weight, inputs=self.linear.in_features)
            with torch.no_grad():
                self.linear.bias.zero_()

    def forward(self, words: Tensor) -> Tensor:
        """-> (..., H)"""
        normed: Tensor = self.norm(words if self.linear is None else self.linear(words))
        return normed

    def multiply_adds(self) -> float:
        """Of one token."""
        return 0.0 if self.linear is None else float(self.linear.weight.numel())


def _slide(old: Tensor, new: Tensor) -> Tensor:
    """The last so many of both. -> as `old`"""
    num_kept, num_new = old.shape[2], new.shape[2]
    if num_new >= num_kept:
        return new[:, :, num_new - num_kept :].contiguous()
    return torch.cat([old[:, :, num_new:], new], dim=2)
