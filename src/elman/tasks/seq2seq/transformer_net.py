"""Encoder and decoder of self-attention, for comparison (Vaswani et al. 2017).

B rows · S source tokens · T target tokens · H hidden
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.dropout import locked_dropout
from elman.nets.embedding import SMALL
from elman.nets.neural_lm import Carried, LayerOutputs, NeuralState
from elman.nets.trace import LayerTrace, NetTrace
from elman.nets.transformer import BlockShape
from elman.nets.transformer_decoder import DecoderStack
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.net import PairModel, padded_leaves

USUAL_WINDOW = 64
SOURCE_WINDOW = 64  # largest relative distance in a source with an embedding of its own


class TransformerPairs(PairModel):
    """Blocks over the source, both ways, and blocks over the target that also look at it.

    The decoder remembers the last `window` tokens, as many as the longest target it was trained on if not given.
    """

    word_bound = SMALL  # its output is as large as its width is: tied words of +-0.5 begin at 48 nats a token
    stack: DecoderStack
    encoder: AttentionEncoder

    def _complete(self, config: Seq2SeqConfig, longest_source: int | None) -> Seq2SeqConfig:
        return config.model_copy(update={"window": config.window or config.longest_target or USUAL_WINDOW})

    def _build_stack(self, dtype: torch.dtype) -> DecoderStack:
        config = self.config
        shape = self._shape(config.window or USUAL_WINDOW)
        return DecoderStack(self.embedding.width, shape, memory=config.hidden, num_layers=config.layers, dtype=dtype)

    def _output_width(self) -> int:
        return self.config.hidden

    def _build_encoder(self, dtype: torch.dtype) -> None:
        num_layers = self.config.encoder_layers or self.config.layers
        shape = self._shape(SOURCE_WINDOW)
        self.encoder = AttentionEncoder(self.embedding.width, shape, num_layers=num_layers, dtype=dtype)

    def _shape(self, window: int) -> BlockShape:
        config = self.config
        feed_forward = config.feed_forward or 4 * config.hidden
        return BlockShape(config.hidden, num_heads=config.num_heads, feed_forward=feed_forward, window=window)

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        super()._initialise(rng, vectors)
        self.encoder.initialise(rng)

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one target token and one source token, forward."""
        return super().count_flops() + self.encoder.multiply_adds(20)

    def _encode(self, source_SB: Tensor, lengths_B: Tensor, *, is_noisy: bool) -> Carried:
        config = self.config
        words_SBE = self.source_embedding(source_SB, config.dropout_embedding if is_noisy else 0.0)
        outputs_SBH = self.encoder(
            words_SBE,
            lengths_B,
            dropout_input=config.rate("input") if is_noisy else 0.0,
            dropout=config.rate("layers") if is_noisy else 0.0,
        )
        return self.stack.start(outputs_SBH.transpose(0, 1), lengths_B)

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        config = self.config
        outputs_TBH, after, _ = self.stack(
            self.embedding(tokens_TB, config.dropout_embedding if is_noisy else 0.0),
            carried,
            dropout_input=config.rate("input") if is_noisy else 0.0,
            dropout=config.rate("layers") if is_noisy else 0.0,
        )
        outputs_TBH = locked_dropout(outputs_TBH, config.rate("output") if is_noisy else 0.0)
        return LayerOutputs(self._project(outputs_TBH), after, None)

    def _weights(self, read_TB: Tensor, carried: Carried) -> Tensor:
        weights_BTS: Tensor = self.stack(self.embedding(read_TB), carried)[2]
        return weights_BTS

    def carried_names(self) -> list[str]:
        """Of the target what was seen, of the source each block's keys and values."""
        return self.stack.state_names()

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of all states; of sources that differ in length the shorter are padded."""
        with torch.inference_mode():
            longest = max(leaf.shape[1] for state in states for leaf in state.carried if leaf.ndim == 3)
            return super().join(
                [NeuralState(padded_leaves(state.carried, longest), state.features) for state in states]
            )

    def _trace_source(self, words_SBE: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Carried]:
        layers, outputs, outputs_SBH = self.encoder.trace(words_SBE, lengths_B)
        return layers, outputs, self.stack.start(outputs_SBH.transpose(0, 1), lengths_B)

    def _trace_target(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        layers, outputs, _ = self.stack.trace(words_TBE, carried)
        attention = {"source": layers[-1].attention["source"].mean(1)}
        return NetTrace(words_TBE, self._project(outputs[-1]), layers, outputs, attention)
