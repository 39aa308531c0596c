"""Recurrent language models: the state is what the layers carry from token to token (Elman 1990)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.explain.kind import of_cells
from elman.nets.cells import ElmanLayer, GruLayer
from elman.nets.dropout import locked_dropout
from elman.nets.layer import Layer
from elman.nets.lstm import LstmLayer
from elman.nets.neural_lm import Carried, LayerOutputs
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import NetTrace
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.net import NeuralModel


class RecurrentModel(NeuralModel[RecurrentConfig]):
    """Embeddings, recurrent layers, an output head.

    With hidden=0 there are no layers and the words have no vectors: n-gram features alone make the prediction.
    What is carried is each layer's (B, H) tensors, from the words up. With a learned initial state there is one more,
    (B,) bool: rows at a beginning, whose state is the parameter itself and so gets its gradient.
    """

    def _build_stack(self, dtype: torch.dtype) -> Stack:
        config = self.config
        widths = layer_inputs(config.skip, self.embedding.width, [config.hidden] * config.layers)
        layers = [_build_layer(config, width, dtype) for width in widths[:-1] if config.hidden]
        self.num_states = sum(layer.num_states for layer in layers)
        if config.initial_state == "learned":
            self.initial = Parameter(torch.zeros(self.num_states, config.hidden, dtype=dtype))
        return Stack(layers, inputs=self.embedding.width, skip=config.skip, layer_norm=config.layer_norm, dtype=dtype)

    def _output_width(self) -> int:
        return self.stack.output_width

    def _start_layers(self, rows: int) -> Carried:
        """Zeros; or, where the initial state is learned, rows that are marked as beginning."""
        weight = self.embedding.weight
        zeros = [weight.new_zeros(rows, self.config.hidden) for _ in range(self.num_states)]
        if self.config.initial_state == "learned":
            return *zeros, torch.ones(rows, dtype=torch.bool, device=weight.device)
        return tuple(zeros)

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        reading = self._read_layers(tokens_TB, self._states(carried), is_noisy=is_noisy)
        return reading._replace(carried=self._going_on(reading.carried, carried))

    def _layer_vectors(self, tokens_TB: Tensor, carried: Carried) -> tuple[list[Tensor], Carried]:
        layers, after = super()._layer_vectors(tokens_TB, self._states(carried))
        return layers, self._going_on(after, carried)

    def _going_on(self, states: Carried, before: Carried) -> Carried:
        """What to carry on: where the initial state is learned, that no row is at a beginning any more."""
        return (*states, torch.zeros_like(before[-1])) if self.config.initial_state == "learned" else states

    def trace(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        """See `NeuralModel`."""
        return super().trace(words_TBE, self._states(carried))

    def kinds(self) -> tuple[str, ...]:
        """See `NeuralModel`."""
        return of_cells(self.config.family, recurrence=self.config.recurrence)

    def _states(self, carried: Carried) -> Carried:
        """Those of the layers; of rows at a beginning, where that is learned, the parameter."""
        if self.config.initial_state != "learned":
            return carried
        *states, is_beginning_B = carried
        both = zip(self.initial, states, strict=True)
        return tuple(torch.where(is_beginning_B[:, None], own, state) for own, state in both)

    def _read_layers(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        if not is_noisy:
            outputs_TBH, after = self.stack(self.embedding(tokens_TB), carried)
            return LayerOutputs(self._project(outputs_TBH), after, None)
        config = self.config
        words_TBE = locked_dropout(self.embedding(tokens_TB, config.dropout_embedding), config.rate("input"))
        outputs_TBH, after = self.stack(
            words_TBE, carried, dropout=config.rate("layers"), weight_drop=config.weight_drop
        )
        dropped_TBH = locked_dropout(outputs_TBH, config.rate("output"))
        return LayerOutputs(self._project(dropped_TBH), after, self._penalty(outputs_TBH, dropped_TBH))

    def _penalty(self, outputs_TBH: Tensor, dropped_TBH: Tensor) -> Tensor | None:
        """For outputs that are large, as the head sees them, or change quickly, as they were (Merity 2017). -> (T, B)"""
        penalties_TB = []
        if self.config.activation_penalty:
            penalties_TB.append(self.config.activation_penalty * dropped_TBH.square().mean(-1))
        if self.config.temporal_penalty:
            changes_TBH = outputs_TBH.diff(dim=0, prepend=outputs_TBH[:1])  # nothing is known before the first step
            penalties_TB.append(self.config.temporal_penalty * changes_TBH.square().mean(-1))
        return torch.stack(penalties_TB).sum(0) if penalties_TB else None


def _build_layer(config: RecurrentConfig, inputs: int, dtype: torch.dtype) -> Layer:
    match config.family:
        case "rnn":
            return ElmanLayer(
                inputs,
                config.hidden,
                recurrence=config.recurrence or "plain",
                activation=config.activation or "tanh",
                dtype=dtype,
            )
        case "gru":
            return GruLayer(inputs, config.hidden, reset=config.reset, dtype=dtype)
        case "lstm":
            forget_bias = 1.0 if config.forget_bias is None else config.forget_bias
            return LstmLayer(inputs, config.hidden, forget_bias=forget_bias, dtype=dtype)
