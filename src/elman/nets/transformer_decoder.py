"""Decoder blocks: causal self-attention, attention to a source, feed-forward (Vaswani et al. 2017).

T steps · B rows · H hidden · A attention heads · D width of a head · S source positions · W window
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear

from elman.nets.dropout import locked_dropout
from elman.nets.layer import draw_weights
from elman.nets.trace import LayerTrace
from elman.nets.transformer import BlockShape, BlockStack, CausalBlock


class DecoderBlock(CausalBlock):
    """Self-attention to the target so far, cross-attention to the source, then a feed-forward net, each with a residual."""

    def __init__(self, shape: BlockShape, *, memory: int, dtype: torch.dtype) -> None:
        super().__init__(shape, dtype=dtype)
        hidden = shape.hidden
        self.source_norm = LayerNorm(hidden, dtype=dtype)
        self.source_query = Linear(hidden, hidden, dtype=dtype)
        self.source_in = Linear(memory, 2 * hidden, dtype=dtype)  # keys, values
        self.source_out = Linear(hidden, hidden, dtype=dtype)

    def initialise(self, rng: torch.Generator, *, num_blocks: int) -> None:
        """Initialised like other blocks."""
        super().initialise(rng, num_blocks=num_blocks)
        with torch.no_grad():
            for layer in (self.source_query, self.source_in, self.source_out):
                draw_weights(rng, layer.weight, inputs=layer.in_features)
                layer.bias.zero_()
            self.source_out.weight.div_((2 * num_blocks) ** 0.5)

    def keys(self, memory_BSM: Tensor) -> tuple[Tensor, Tensor]:
        """What is computed once per source: keys and values, (B, S, H) each."""
        keys_BSH, values_BSH = self.source_in(memory_BSM).chunk(2, dim=-1)
        return keys_BSH.contiguous(), values_BSH.contiguous()

    def decode(
        self,
        values_TBH: Tensor,
        seen: tuple[Tensor, Tensor],
        num_seen_B: Tensor,
        source: tuple[Tensor, Tensor],
        is_padding_BS: Tensor,
        *,
        dropout: float,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """-> (T, B, H), the new key-value cache, and the attention weights of the source, (B, A, T, S)"""
        attended_BATD, seen = self._look_back(values_TBH, seen, num_seen_B)
        values_TBH, weights_BATS = self._decode(values_TBH, attended_BATD, source, is_padding_BS, dropout=dropout)
        return values_TBH, seen, weights_BATS

    def trace_decoding(
        self,
        values_TBH: Tensor,
        seen: tuple[Tensor, Tensor],
        num_seen_B: Tensor,
        source: tuple[Tensor, Tensor],
        is_padding_BS: Tensor,
    ) -> tuple[LayerTrace, tuple[Tensor, Tensor]]:
        """What `decode` does for one row, with both attentions. -> and the new key-value cache"""
        attended_BATD, own_BATS, seen = self._look_back_traced(values_TBH, seen, num_seen_B)
        values_TBH, weights_BATS = self._decode(values_TBH, attended_BATD, source, is_padding_BS, dropout=0.0)
        return LayerTrace(values_TBH.unbind(0), seen, attention={"self": own_BATS, "source": weights_BATS}), seen

    def _decode(
        self,
        values_TBH: Tensor,
        attended_BATD: Tensor,
        source: tuple[Tensor, Tensor],
        is_padding_BS: Tensor,
        *,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        """What comes after self-attention. -> (T, B, H), (B, A, T, S)"""
        values_TBH = values_TBH + locked_dropout(self.attention_out(_merged(attended_BATD)), dropout)
        queries = self._heads(self.source_query(self.source_norm(values_TBH)).transpose(0, 1))
        keys, values = (self._heads(part) for part in source)
        energies_BATS = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(2, 3)
        weights_BATS = energies_BATS.masked_fill(is_padding_BS[:, None, None], -torch.inf).softmax(-1)
        values_TBH = values_TBH + locked_dropout(self.source_out(_merged(weights_BATS @ values)), dropout)
        return self._feed_forward(values_TBH, dropout), weights_BATS

    def _heads(self, values_BSH: Tensor) -> Tensor:
        """-> (B, A, S, D)"""
        return values_BSH.view(*values_BSH.shape[:2], self.num_heads, -1).transpose(1, 2)

    def multiply_adds(self, num_attended: int) -> float:
        """Multiply-adds for one token that attends to `num_attended` earlier tokens and as many of the source."""
        source_weights = (
            self.source_query.weight.numel() + self.source_out.weight.numel() + self.source_in.weight.numel()
        )
        return super().multiply_adds(num_attended) + source_weights + 2 * num_attended * self.hidden


class DecoderStack(BlockStack[DecoderBlock]):
    """A stack of decoder blocks and a final layer norm.

    Its state: as in `CausalStack` the number of tokens seen and each block's keys and values of them; then each
    block's keys and values of the source, (B, S, H) each, and the sources' lengths, (B,).
    """

    def __init__(self, inputs: int, shape: BlockShape, *, memory: int, num_layers: int, dtype: torch.dtype) -> None:
        blocks = [DecoderBlock(shape, memory=memory, dtype=dtype) for _ in range(num_layers)]
        super().__init__(blocks, inputs=inputs, hidden=shape.hidden, dtype=dtype)
        self.window = shape.window

    def state_names(self) -> list[str]:
        """With those of the source."""
        blocks = range(1, len(self.blocks) + 1)
        source = [f"{name}_{n}" for n in blocks for name in ("memory_keys", "memory_values")]
        return [*super().state_names(), *source, "memory_lengths"]

    def start(self, memory_BSM: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The state before the first target token."""
        rows = memory_BSM.shape[0]
        seen: list[Tensor] = []
        for block in self.parts:
            shape = (rows, block.num_heads, self.window - 1, self.output_width // block.num_heads)
            seen += [memory_BSM.new_zeros(shape), memory_BSM.new_zeros(shape)]
        source = [part for block in self.parts for part in block.keys(memory_BSM)]
        return torch.zeros_like(lengths_B), *seen, *source, lengths_B

    def forward(
        self, words_TBE: Tensor, carried: Sequence[Tensor], *, dropout_input: float = 0.0, dropout: float = 0.0
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """-> (T, B, H), the new state, and the last block's attention to the source, mean over heads, (B, T, S)"""
        num_seen_B, seen, source, lengths_B = self._parts_of(carried)
        is_padding_BS = torch.arange(source[0].shape[1], device=lengths_B.device) >= lengths_B[:, None]
        values_TBH = locked_dropout(self.reader(words_TBE), dropout_input)
        after: list[Tensor] = [(num_seen_B + len(words_TBE)).clamp(max=self.window - 1)]
        for index, block in enumerate(self.parts):
            pair = slice(2 * index, 2 * index + 2)
            values_TBH, new_seen, weights_BATS = block.decode(
                values_TBH,
                cast(tuple[Tensor, Tensor], tuple(seen[pair])),
                num_seen_B,
                cast(tuple[Tensor, Tensor], tuple(source[pair])),
                is_padding_BS,
                dropout=dropout,
            )
            after += new_seen
        return self.norm(values_TBH), (*after, *source, lengths_B), weights_BATS.mean(1)

    def trace(
        self, words_TBE: Tensor, carried: Sequence[Tensor]
    ) -> tuple[list[LayerTrace], list[Tensor], tuple[Tensor, ...]]:
        """What each block did with one row, what is there after each, the last one normed, and the new state."""
        num_seen_B, seen, source, lengths_B = self._parts_of(carried)
        is_padding_BS = torch.arange(source[0].shape[1], device=lengths_B.device) >= lengths_B[:, None]
        values_TBH = self.reader(words_TBE)
        traces: list[LayerTrace] = []
        after: list[Tensor] = [(num_seen_B + len(words_TBE)).clamp(max=self.window - 1)]
        for index, block in enumerate(self.parts):
            own, keys = ((part[2 * index], part[2 * index + 1]) for part in (seen, source))
            traced, new_seen = block.trace_decoding(values_TBH, own, num_seen_B, keys, is_padding_BS)
            values_TBH = traced.output()
            traces.append(traced)
            after += new_seen
        outputs = [*(traced.output() for traced in traces[:-1]), self.norm(values_TBH)]
        return traces, outputs, (*after, *source, lengths_B)

    def _parts_of(self, carried: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor], Tensor]:
        """Number of tokens seen, their keys and values, those of the source, and its lengths."""
        end = 1 + 2 * len(self.blocks)
        return carried[0], carried[1:end], carried[end:-1], carried[-1]

    def multiply_adds(self, num_attended: int = 20) -> float:
        """Multiply-adds for one token that attends to `num_attended` tokens of target and source each."""
        return self.reader.multiply_adds() + sum(block.multiply_adds(num_attended) for block in self.parts)


def _merged(attended_BATD: Tensor) -> Tensor:
    """The heads concatenated. -> (T, B, H)"""
    return attended_BATD.permute(2, 0, 1, 3).flatten(2)
