"""Recurrent language models: the state is what the layers carry from token to token (Elman 1990)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from elman.core.arrays import Array
from elman.explain.kind import of_cells
from elman.lm.protocol import select
from elman.nets.cells import ElmanLayer, GruLayer
from elman.nets.dropout import locked_dropout
from elman.nets.layer import Layer
from elman.nets.lstm import LstmLayer
from elman.nets.neural_lm import Carried, LayerOutputs, NeuralState
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import NetTrace
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.net import NeuralModel

# A text of one row is read as several side by side: a step of one row waits for the weights to come from memory. Each begins
# so many tokens before its part: a gated net has forgotten by then what it began with (an LSTM of 512 to 7e-7).
RUN_UP_TOKENS = 1024
PART_TOKENS, MOST_PARTS = 2048, 16
SAME_STATE = 1e-5  # largest difference of a value of two states that count as one


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
        floats = self.embedding.floats
        zeros = [floats.new_zeros(rows, self.config.hidden) for _ in range(self.num_states)]
        if self.config.initial_state == "learned":
            return *zeros, torch.ones(rows, dtype=torch.bool, device=floats.device)
        return tuple(zeros)

    def _layer_names(self) -> list[str]:
        """h_1, c_1, h_2 ...; `is_beginning` marks the rows whose state is the learned one."""
        return self.stack.state_names() + ["is_beginning"] * (self.config.initial_state == "learned")

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        reading = self._read_layers(tokens_TB, self._states(carried), is_noisy=is_noisy)
        return reading._replace(carried=self._going_on(reading.carried, carried))

    def _layer_vectors(self, tokens_TB: Tensor, carried: Carried) -> tuple[list[Tensor], Carried]:
        layers, after = super()._layer_vectors(tokens_TB, self._states(carried))
        return layers, self._going_on(after, carried)

    def _going_on(self, states: Carried, before: Carried) -> Carried:
        """What to carry on: where the initial state is learned, that no row is at a beginning any more."""
        return (*states, torch.zeros_like(before[-1])) if self.config.initial_state == "learned" else states

    def _score(
        self, tokens: Array, lengths: Array, state: NeuralState, *, keep_features: bool
    ) -> tuple[Array, Array, NeuralState]:
        """One long row as several; in order where the net remembers more than the run-up of a part."""
        if len(tokens) == 1 and tokens.shape[1] == lengths[0] >= 2 * PART_TOKENS:
            with torch.inference_mode():
                found = self._score_parts(np.asarray(tokens[0]), state, keep_features=keep_features)
            if found is not None:
                return found
        return super()._score(tokens, lengths, state, keep_features=keep_features)

    def _score_parts(
        self, tokens_T: Array, state: NeuralState, *, keep_features: bool
    ) -> tuple[Array, Array, NeuralState] | None:
        """The parts of a text at once; None where a part did not begin in the state that the one before it ended in."""
        parts = np.array_split(np.arange(len(tokens_T)), min(MOST_PARTS, len(tokens_T) // PART_TOKENS))
        begins = np.array([part[0] for part in parts[1:]])
        run_ups = self._to_ids(tokens_T[begins[:, None] + np.arange(-RUN_UP_TOKENS, 0)])
        read = self._read_tokens(run_ups.t(), self.start(len(begins)).carried, is_noisy=False)
        starts = NeuralState(read.carried, read.features[-1])
        lengths = np.array([len(part) for part in parts])
        rows = np.zeros((len(parts), lengths[0]), tokens_T.dtype)
        for row, part in zip(rows, parts, strict=True):
            row[: len(part)] = tokens_T[part]
        log_probs, features, ends = super()._score(
            rows, lengths, self.join([state, starts]), keep_features=keep_features
        )
        if not _are_same(select(ends, np.arange(len(begins))), starts):
            return None
        is_token = np.arange(rows.shape[1]) < lengths[:, None]
        return log_probs[is_token][None], features[is_token][None], select(ends, np.array([len(begins)]))

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


def _are_same(one: NeuralState, other: NeuralState) -> bool:
    """Whether two states are, but for rounding."""
    pairs = zip((*one.carried, one.features), (*other.carried, other.features), strict=True)
    return all(torch.allclose(a.float(), b.float(), rtol=SAME_STATE, atol=SAME_STATE) for a, b in pairs)


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
