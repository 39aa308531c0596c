"""The feed-forward n-gram net: the state is the last few words (Bengio et al. 2003)."""

from __future__ import annotations

import torch
from torch import Tensor

from elman.nets.cells import DenseLayer
from elman.nets.dropout import locked_dropout
from elman.nets.neural_lm import Carried, LayerOutputs
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import NetTrace
from elman.tasks.lm.families.window import WindowConfig
from elman.tasks.lm.net import NeuralModel
from elman.text.units.vocabulary import EOS_ID


class WindowModel(NeuralModel[WindowConfig]):
    """The embeddings of the last n words side by side, hidden layers, an output head.

    What is carried is the n - 1 words before the next one; before the first there were only ends of lines.
    """

    def _build_stack(self, dtype: torch.dtype) -> Stack:
        config = self.config
        inputs = config.window * self.embedding.width
        widths = layer_inputs(config.skip, inputs, [config.hidden] * config.layers)
        layers = [DenseLayer(width, config.hidden, activation=config.activation, dtype=dtype) for width in widths[:-1]]
        return Stack(layers, inputs=inputs, skip=config.skip, layer_norm=config.layer_norm, dtype=dtype)

    def _output_width(self) -> int:
        config = self.config
        direct = config.window * self.embedding.width if config.direct else 0
        return direct + (self.stack.output_width if config.layers else 0)

    def _start_layers(self, rows: int) -> Carried:
        """Ends of lines."""
        device = self.embedding.weight.device
        return (torch.full((rows, self.config.window - 1), EOS_ID, dtype=torch.int64, device=device),)

    def _layer_names(self) -> list[str]:
        """The words before."""
        return ["words"]

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        config = self.config
        read_XB = torch.cat([carried[0].t(), tokens_TB])
        words_XBE = self.embedding(read_XB, config.dropout_embedding if is_noisy else 0.0)
        words_XBE = locked_dropout(words_XBE, config.rate("input") if is_noisy else 0.0)
        num_tokens = len(tokens_TB)
        window_TBW = self._side_by_side(words_XBE)
        outputs = [window_TBW] if config.direct else []
        if config.layers:
            outputs.append(self.stack(window_TBW, (), dropout=config.rate("layers") if is_noisy else 0.0)[0])
        outputs_TBH = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
        outputs_TBH = locked_dropout(outputs_TBH, config.rate("output") if is_noisy else 0.0)
        return LayerOutputs(self._project(outputs_TBH), (read_XB[num_tokens:].t(),), None)

    def _layer_vectors(self, tokens_TB: Tensor, carried: Carried) -> tuple[list[Tensor], Carried]:
        read_XB = torch.cat([carried[0].t(), tokens_TB])
        words_XBE = self.embedding(read_XB)
        layers, _ = self.stack.vectors(self._side_by_side(words_XBE), ())
        return [words_XBE[self.config.window - 1 :], *layers], (read_XB[len(tokens_TB) :].t(),)

    def trace(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        """See `NeuralModel`."""
        window_TBW = self._side_by_side(torch.cat([self.embedding(carried[0].t()), words_TBE]))
        layers, outputs, _ = self.stack.trace(window_TBW, ())
        read = ([window_TBW] if self.config.direct else []) + ([outputs[-1]] if self.config.layers else [])
        return NetTrace(words_TBE, self._project(torch.cat(read, dim=-1)), layers, outputs if layers else [])

    def _side_by_side(self, words_XBE: Tensor) -> Tensor:
        """The words of each window, X = T + window - 1. -> (T, B, window * E)"""
        num_windows = len(words_XBE) - self.config.window + 1
        return torch.cat([words_XBE[back : back + num_windows] for back in range(self.config.window)], dim=-1)
