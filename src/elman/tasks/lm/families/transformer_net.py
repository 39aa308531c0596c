"""The Transformer language model: the state is the keys and values of the last tokens (Vaswani et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from elman.nets.dropout import locked_dropout
from elman.nets.neural_lm import Carried, LayerOutputs
from elman.nets.transformer import BlockShape, CausalStack
from elman.tasks.lm.families.transformer import TransformerConfig
from elman.tasks.lm.net import NeuralModel


class TransformerModel(NeuralModel[TransformerConfig]):
    """Embeddings, blocks of causal self-attention over a sliding window, an output head.

    A training stream is cut into pieces for the gradient, but each piece still attends to the tokens before it, whose
    keys and values are carried (Dai et al. 2019). A token reaches back (window - 1) * layers tokens in all.
    """

    stack: CausalStack

    def _build_stack(self, dtype: torch.dtype) -> CausalStack:
        config = self.config
        shape = BlockShape(
            config.hidden,
            num_heads=config.num_heads,
            feed_forward=config.feed_forward or 4 * config.hidden,
            window=config.window,
            activation=config.activation,
        )
        return CausalStack(self.embedding.width, shape, num_layers=config.layers, dtype=dtype)

    def _output_width(self) -> int:
        return self.config.hidden

    def _start_layers(self, rows: int) -> Carried:
        """No tokens seen yet."""
        return self.stack.start(rows)

    def _layer_names(self) -> list[str]:
        """How many tokens were seen, and each block's keys and values of them."""
        return self.stack.state_names()

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        config = self.config
        if not is_noisy:
            outputs_TBH, after = self.stack(self.embedding(tokens_TB), carried)
            return LayerOutputs(self._project(outputs_TBH), after, None)
        outputs_TBH, after = self.stack(
            self.embedding(tokens_TB, config.dropout_embedding),
            carried,
            dropout_input=config.rate("input"),
            dropout=config.rate("layers"),
        )
        return LayerOutputs(self._project(locked_dropout(outputs_TBH, config.rate("output"))), after, None)

    def kinds(self) -> tuple[str, ...]:
        """See `NeuralModel`."""
        return ("attention", "states")
