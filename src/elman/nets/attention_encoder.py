"""A Transformer encoder: bidirectional self-attention over whole texts. Knows neither words nor tasks.

T steps · B rows · H hidden · A attention heads · D width of a head · W window
"""

from __future__ import annotations

import torch
from torch import Tensor

from elman.nets.dropout import locked_dropout
from elman.nets.layer import LayerVectors
from elman.nets.trace import LayerTrace
from elman.nets.transformer import Block, BlockShape, BlockStack


class EncoderBlock(Block):
    """A block in which every token attends to every token of its row; distances beyond the window are treated alike."""

    def __init__(self, shape: BlockShape, *, dtype: torch.dtype) -> None:
        super().__init__(shape, num_distances=2 * shape.window + 1, dtype=dtype)

    def row_distances(self) -> Tensor:
        """From window tokens after to window tokens before. -> (2 W + 1,)"""
        return torch.arange(-self.window, self.window + 1).abs()

    def forward(self, values_TBH: Tensor, is_padding_TB: Tensor | None, *, dropout: float = 0.0) -> Tensor:
        """-> (T, B, H); values at padding are meaningless."""
        weights_BATT, values = self._attend(values_TBH, is_padding_TB)
        return self._add(values_TBH, weights_BATT @ values, dropout)

    def trace(self, values_TBH: Tensor) -> LayerTrace:
        """What `forward` does, without padding, with its attention weights."""
        weights_BATT, values = self._attend(values_TBH, None)
        outputs = self._add(values_TBH, weights_BATT @ values, 0.0).unbind(0)
        return LayerTrace(outputs, (), attention={"self": weights_BATT})

    def _attend(self, values_TBH: Tensor, is_padding_TB: Tensor | None) -> tuple[Tensor, Tensor]:
        """The attention weights, (B, A, T, T), and what they are weights of, (B, A, T, D)."""
        queries, keys, values = self._project(values_TBH)
        energies_BATT = queries @ keys.transpose(2, 3)
        energies_BATT += self._distance_bias(values_TBH.shape[0])
        if is_padding_TB is not None:
            energies_BATT = energies_BATT.masked_fill(is_padding_TB.t()[:, None, None], -torch.inf)
        return energies_BATT.softmax(-1), values

    def _distance_bias(self, num_steps: int) -> Tensor:
        """The relative-position bias of each head for each pair of tokens. -> (A, T, T)"""
        places_T = torch.arange(num_steps, device=self.distances.device)
        distance_TT = (places_T[:, None] - places_T).clamp(-self.window, self.window) + self.window
        return self._position_bias(distance_TT)


class AttentionEncoder(BlockStack[EncoderBlock]):
    """A stack of encoder blocks and a final layer norm. Padding never changes anything."""

    def __init__(self, inputs: int, shape: BlockShape, *, num_layers: int, dtype: torch.dtype) -> None:
        blocks = [EncoderBlock(shape, dtype=dtype) for _ in range(num_layers)]
        super().__init__(blocks, inputs=inputs, hidden=shape.hidden, dtype=dtype)

    def forward(
        self, words_TBE: Tensor, lengths_B: Tensor, *, dropout_input: float = 0.0, dropout: float = 0.0
    ) -> Tensor:
        """-> (T, B, H), zeros at padding. `dropout` applies to the output of attention and feed-forward nets.

        A row of length 0 attends to its padding, and is zeros like any padding.
        """
        is_padding_TB, unseen_TB = _padding(words_TBE.shape[0], lengths_B)
        values_TBH = locked_dropout(self.reader(words_TBE), dropout_input)
        for block in self.parts:
            values_TBH = block(values_TBH, unseen_TB, dropout=dropout)
        normed_TBH: Tensor = self.norm(values_TBH)
        return normed_TBH if unseen_TB is None else normed_TBH.masked_fill(is_padding_TB[:, :, None], 0.0)

    def vectors(self, words_TBE: Tensor, lengths_B: Tensor) -> list[LayerVectors]:
        """What each block makes of every token; of the top one, normed."""
        _, unseen_TB = _padding(words_TBE.shape[0], lengths_B)
        found = [self.reader(words_TBE)]
        for block in self.parts:
            found.append(block(found[-1], unseen_TB))
        return [LayerVectors(values) for values in (*found[1:-1], self.norm(found[-1]))]

    def trace(self, words_TBE: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Tensor]:
        """What each block did, what is there after each as `vectors` has it, and the encoding; without padding."""
        values_TBH = self.reader(words_TBE)
        traces: list[LayerTrace] = []
        for block in self.parts:
            traces.append(block.trace(values_TBH))
            values_TBH = traces[-1].output()
        outputs = [*(traced.output() for traced in traces[:-1]), self.norm(values_TBH)]
        return traces, outputs, outputs[-1]

    def multiply_adds(self, num_attended: int = 64) -> float:
        """Multiply-adds for one token of a text of `num_attended` tokens."""
        return self.reader.multiply_adds() + sum(block.multiply_adds(num_attended) for block in self.parts)


def _padding(num_steps: int, lengths_B: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where padding is, and which of it nobody may look at; None where there is none. -> (T, B) each"""
    is_padding_TB = torch.arange(num_steps, device=lengths_B.device)[:, None] >= lengths_B
    has_padding = torch.compiler.is_exporting() or bool(is_padding_TB.any())  # an exported graph takes both
    return is_padding_TB, is_padding_TB & (lengths_B > 0) if has_padding else None
