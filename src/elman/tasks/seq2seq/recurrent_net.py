"""Encoder and decoder: a source is read, and its target is a language model that begins from what was read.

Unless it has to feed on its own outputs, the decoder reads a whole target in one call of its layers, and looks at the
source afterwards. B rows · S source tokens · T target tokens · M width of the encoder's outputs · H hidden
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Linear, ModuleList

from elman.core.arrays import Array
from elman.nets.attention import Attention
from elman.nets.dropout import locked_dropout
from elman.nets.encoder import BidirectionalStack, Encoding, make_cell
from elman.nets.layer import draw_weights
from elman.nets.neural_lm import Carried, LayerOutputs, NeuralState
from elman.nets.stack import Stack, layer_inputs
from elman.nets.trace import LayerTrace, NetTrace, join_traces
from elman.nets.unidirectional import UnidirectionalStack
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.net import PairModel, padded_leaves

USUAL_LENGTH = 20  # source length assumed when the cost of attention is estimated


class Seq2SeqModel(PairModel):
    """A recurrent encoder and decoder.

    What is carried: each decoder layer's (B, H) tensors; with input feeding the last output; then what is kept of the
    source: nothing, one vector (B, H), or all encoder outputs (B, S, M), their lengths and the scores' keys.
    """

    stack: Stack
    readout: Linear  # of what the decoder and the source say; not with context=initial
    summary: Linear  # of all encoder outputs as one vector; context=all and context=fixed
    attention: Attention

    # ------------------------------------------------------------------------------------------------------- the parts

    def _complete(self, config: Seq2SeqConfig, longest_source: int | None) -> Seq2SeqConfig:
        if config.context not in ("all", "fixed"):
            return config
        filled: dict[str, object] = {"positions": config.positions or longest_source}
        if config.context == "fixed":
            filled["fixed_reaches"] = config.fixed_reaches or "cells"
        return config.model_copy(update=filled)

    def _build_encoder(self, dtype: torch.dtype) -> None:
        self.encoder = _build_encoder(self.config, self.embedding.width, dtype)
        self._build_links(self.encoder.output_width, dtype)

    def _build_links(self, width: int, dtype: torch.dtype) -> None:
        """What leads from an encoder so wide to the decoder."""
        config = self.config
        num_bridges = self.num_cells if config.bridge == "dense" else 0
        # the ends of both directions together are as wide as the decoder
        self.bridges = ModuleList(Linear(config.hidden, config.hidden, dtype=dtype) for _ in range(num_bridges))
        if config.context in ("all", "fixed"):
            self.summary = Linear((config.positions or 1) * width, config.hidden, dtype=dtype)
        if config.context == "attention":
            query = config.hidden if config.attend == "before" else self.stack.output_width
            score = config.score or "bilinear"
            self.attention = Attention(score, query=query, memory=width, inner=config.hidden, dtype=dtype)

    def _build_stack(self, dtype: torch.dtype) -> Stack:
        config = self.config
        feeds_sum = config.context == "fixed" and config.fixed_reaches == "cells"
        self._feeds_context = feeds_sum or config.context in ("every", "all") or config.attend == "before"
        inputs = self.embedding.width + config.hidden * config.input_feeding
        inputs += self._context_width() * self._feeds_context
        widths = layer_inputs(config.skip, inputs, [config.hidden] * config.layers)
        layers = [
            make_cell(config.cell, width, config.hidden, reset=config.reset, dtype=dtype) for width in widths[:-1]
        ]
        self.num_cells = sum(layer.num_states for layer in layers)
        self._top = self.num_cells - layers[-1].num_states  # where the top layer's h is carried
        if config.context != "initial":
            self.readout = Linear(widths[-1] + self._context_width(), config.hidden, dtype=dtype)
        return Stack(layers, inputs=inputs, skip=config.skip, layer_norm=config.layer_norm, dtype=dtype)

    def _context_width(self) -> int:
        """How wide what the source says at each step is."""
        config = self.config
        if config.context == "attention":
            layers = config.encoder_layers or config.layers
            return layer_inputs(config.skip, 1, [config.hidden] * layers)[-1]
        return config.hidden

    def _output_width(self) -> int:
        return self.stack.output_width if self.config.context == "initial" else self.config.hidden

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        super()._initialise(rng, vectors)
        self.encoder.initialise(rng)
        self._initialise_links(rng)

    def _initialise_links(self, rng: torch.Generator) -> None:
        dense = [*self.bridges, *(getattr(self, name) for name in ("readout", "summary") if hasattr(self, name))]
        for layer in dense:
            draw_weights(rng, layer.weight, inputs=layer.in_features)
            with torch.no_grad():
                layer.bias.zero_()
        if self.config.context == "attention":
            self.attention.initialise(rng)

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one target token and one source token, forward."""
        flops = super().count_flops() + self.encoder.multiply_adds()
        if self.config.context != "initial":
            flops += self.readout.weight.numel()
        if self.config.context == "attention":
            flops += self.attention.multiply_adds(USUAL_LENGTH)
        return flops

    # ----------------------------------------------------------------------------------------------------- the source

    def _encode(self, source_SB: Tensor, lengths_B: Tensor, *, is_noisy: bool) -> Carried:
        config = self.config
        words_SBE = self.source_embedding(source_SB, config.dropout_embedding if is_noisy else 0.0)
        words_SBE = locked_dropout(words_SBE, config.rate("input") if is_noisy else 0.0)
        encoding = self.encoder(words_SBE, lengths_B, dropout=config.rate("layers") if is_noisy else 0.0)
        return self._begin_with(encoding, lengths_B)

    def _begin_with(self, encoding: Encoding, lengths_B: Tensor) -> Carried:
        """What the decoder carries before its first token, where the source was read so."""
        fed = [encoding.outputs.new_zeros(lengths_B.shape[0], self.config.hidden)] * self.config.input_feeding
        return *self._bridge(encoding), *fed, *self._keep(encoding, lengths_B)

    def _bridge(self, encoding: Encoding) -> list[Tensor]:
        """The decoder's first state, layer by layer; layers the encoder does not have begin as its top one ended."""
        num_layers = len(encoding.forward)
        ends = [_ends(encoding, min(layer, num_layers - 1)) for layer in range(self.config.layers)]
        cells = [state for layer in ends for state in layer]
        match self.config.bridge:
            case "copy":
                return cells
            case "zero":
                return [torch.zeros_like(cell) for cell in cells]
            case "dense":
                bridged = [bridge(cell) for bridge, cell in zip(self.bridges, cells, strict=True)]
                step = len(ends[0])  # of an LSTM's two, the first is what it gave out, and so between -1 and 1
                return [cell if index % step else cell.tanh() for index, cell in enumerate(bridged)]

    def _keep(self, encoding: Encoding, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """What the decoder will see of the source at every step."""
        match self.config.context:
            case "initial":
                return ()
            case "every":
                return (_ends(encoding, len(encoding.forward) - 1)[0],)
            case "all":
                return (self.summary(self._side_by_side(encoding.outputs)).tanh(),)
            case "fixed":  # the sum of W_k h_k over positions k
                return (self.summary(self._side_by_side(encoding.outputs)),)
            case "attention":
                memory_BSM = encoding.outputs.transpose(0, 1).contiguous()
                return memory_BSM, lengths_B, *self.attention.keys(memory_BSM)

    def _side_by_side(self, outputs_SBM: Tensor) -> Tensor:
        """The first outputs of each row in one vector, zeros where there are fewer. -> (B, positions * M)"""
        positions = self.config.positions or 1
        return F.pad(outputs_SBM, (0, 0, 0, 0, 0, positions))[:positions].transpose(0, 1).flatten(1)

    def carried_names(self) -> list[str]:
        """h_1, c_1 ...; what was written last, with input feeding; and what is kept of the source."""
        config = self.config
        kept = {"initial": [], "attention": ["memory", "memory_lengths"]}.get(config.context, ["context"])
        keys = ["memory_keys"] * (config.context == "attention" and self.attention.score == "additive")
        return [*self.stack.state_names(), *["fed"] * config.input_feeding, *kept, *keys]

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of all states; of sources that differ in length the shorter are padded."""
        if self.config.context != "attention":
            return super().join(states)
        with torch.inference_mode():
            first = self.num_cells + self.config.input_feeding
            longest = max(state.carried[first].shape[1] for state in states)
            padded = [NeuralState(padded_leaves(state.carried, longest), state.features) for state in states]
            return super().join(padded)

    # ----------------------------------------------------------------------------------------------------- the target

    def _read(self, tokens_TB: Tensor, carried: Carried, *, is_noisy: bool) -> LayerOutputs:
        config = self.config
        words_TBE = self.embedding(tokens_TB, config.dropout_embedding if is_noisy else 0.0)
        words_TBE = locked_dropout(words_TBE, config.rate("input") if is_noisy else 0.0)
        written = self._write(words_TBE, carried, dropout=config.rate("layers") if is_noisy else 0.0)
        outputs_TBH = locked_dropout(written.outputs, config.rate("output") if is_noisy else 0.0)
        return LayerOutputs(self._project(outputs_TBH), written.carried, None)

    def _write(self, words_TBE: Tensor, carried: Carried, *, dropout: float) -> _Written:
        """The decoder over some words."""
        masks: Sequence[Tensor] = ()  # the same at every step
        if dropout and self._goes_by_steps:
            masks = self.stack.draw_masks(words_TBE, dropout)
        return self._write_with(partial(self.stack, dropout=dropout, masks=masks), words_TBE, carried)

    @property
    def _goes_by_steps(self) -> bool:
        """Whether a step needs the output of the last."""
        return self.config.input_feeding or self.config.attend == "before"

    def _write_with(self, run: _Run, words_TBE: Tensor, carried: Carried) -> _Written:
        """The decoder over some words, all at once or step by step. `run` runs its layers."""
        if not self._goes_by_steps:
            return self._write_steps(run, words_TBE, carried)
        steps = []
        for words_1BE in torch.split(words_TBE, 1):
            steps.append(self._write_steps(run, words_1BE, carried))
            carried = steps[-1].carried
        weights = [step.weights for step in steps if step.weights is not None]
        return _Written(torch.cat([step.outputs for step in steps]), carried, torch.cat(weights, dim=1))

    def _write_steps(self, run: _Run, words_TBE: Tensor, carried: Carried) -> _Written:
        config, num_steps = self.config, len(words_TBE)
        cells, rest = carried[: self.num_cells], carried[self.num_cells :]
        fed, source = (rest[:1], rest[1:]) if config.input_feeding else ((), rest)
        context_TBC, weights_BTS = None, None
        if config.attend == "before":
            context_TBC, weights_BTS = self._look(cells[self._top][None], source)
        elif config.context in ("every", "all", "fixed"):
            context_TBC = source[0].expand(num_steps, -1, -1)
        inputs = [words_TBE, *(vector[None] for vector in fed)]
        if self._feeds_context and context_TBC is not None:
            inputs.append(context_TBC)
        inputs_TBI = torch.cat(inputs, dim=-1) if len(inputs) > 1 else words_TBE
        outputs_TBH, cells = run(inputs_TBI, cells)
        if config.context == "initial":
            return _Written(outputs_TBH, cells, None)
        if context_TBC is None:
            context_TBC, weights_BTS = self._look(outputs_TBH, source)
        outputs_TBH = self.readout(torch.cat([outputs_TBH, context_TBC], dim=-1)).tanh()
        fed = (outputs_TBH[-1],) if config.input_feeding else ()
        return _Written(outputs_TBH, (*cells, *fed, *source), weights_BTS)

    def _look(self, queries_TBH: Tensor, source: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """What attention finds in the source, (T, B, M), and its weights, (B, T, S)."""
        memory_BSM, lengths_B, *keys = source
        context_BTM, weights_BTS = self.attention(queries_TBH.transpose(0, 1), memory_BSM, lengths_B, tuple(keys))
        return context_BTM.transpose(0, 1), weights_BTS

    def _weights(self, read_TB: Tensor, carried: Carried) -> Tensor:
        written = self._write(self.embedding(read_TB), carried, dropout=0.0)
        assert written.weights is not None
        return written.weights

    # ----------------------------------------------------------------------------------------------------- recording

    def _trace_source(self, words_SBE: Tensor, lengths_B: Tensor) -> tuple[list[LayerTrace], list[Tensor], Carried]:
        layers, outputs, encoding = self.encoder.trace(words_SBE, lengths_B)
        assert isinstance(encoding, Encoding)
        return layers, outputs, self._begin_with(encoding, lengths_B)

    def source_shares(self, outputs_SBM: Tensor) -> tuple[str, Array]:
        """What a decoder without attention has of each source token, and what that is called: shares, (S,).

        Of a weighted sum the size of W_k h_k; else only the ends of the source reach the decoder.
        """
        num_tokens = len(outputs_SBM)
        if self.config.context in ("all", "fixed"):
            positions, width = self.config.positions or 1, outputs_SBM.shape[2]
            blocks_KMH = self.summary.weight.t().view(positions, width, -1)[:num_tokens]
            sizes = torch.einsum("km,kmh->kh", outputs_SBM[: len(blocks_KMH), 0], blocks_KMH).norm(dim=1)
            shares = F.pad(sizes / sizes.sum().clamp(min=1e-12), (0, num_tokens - len(sizes)))
            return "size of W_k h_k, the same at every step", self._to_numpy(shares)
        ends = np.zeros(num_tokens, dtype=np.float32)
        ends[-1] += 0.5 if self.config.bidirectional else 1.0
        ends[0] += 0.5 if self.config.bidirectional else 0.0
        return "the states at the source's ends are all that the decoder has", ends

    def _trace_target(self, words_TBE: Tensor, carried: Carried) -> NetTrace:
        parts: list[tuple[list[LayerTrace], list[Tensor]]] = []

        def record(inputs_TBI: Tensor, cells: Carried) -> tuple[Tensor, Carried]:
            layers, outputs, after = self.stack.trace(inputs_TBI, cells)
            parts.append((layers, outputs))
            return outputs[-1], after

        written = self._write_with(record, words_TBE, carried)
        layers = [join_traces(pieces) for pieces in zip(*(layers for layers, _ in parts), strict=True)]
        outputs = [torch.cat(pieces) for pieces in zip(*(outputs for _, outputs in parts), strict=True)]
        attention = {} if written.weights is None else {"source": written.weights}
        return NetTrace(words_TBE, self._project(written.outputs), layers, outputs, attention)


_Run = Callable[[Tensor, Carried], tuple[Tensor, Carried]]  # the decoder's layers over their inputs


class _Written(NamedTuple):
    """What the decoder came to, before the projection."""

    outputs: Tensor  # (T, B, H)
    carried: Carried
    weights: Tensor | None  # (B, T, S) of attention


def _build_encoder(config: Seq2SeqConfig, inputs: int, dtype: torch.dtype) -> BidirectionalStack | UnidirectionalStack:
    kind: type[BidirectionalStack] | type[UnidirectionalStack] = (
        BidirectionalStack if config.bidirectional else UnidirectionalStack
    )
    hidden = config.hidden // 2 if config.bidirectional else config.hidden
    make: Callable[[int], object] = partial(make_cell, config.cell, hidden=hidden, reset=config.reset, dtype=dtype)
    return kind(
        make,  # type: ignore[arg-type]
        inputs=inputs,
        hidden=hidden,
        num_layers=config.encoder_layers or config.layers,
        skip=config.skip,
        layer_norm=config.layer_norm,
        dtype=dtype,
    )


def _ends(encoding: Encoding, layer: int) -> list[Tensor]:
    """A layer's states after the last token, of both directions side by side. -> (B, H) each"""
    if not encoding.backward:
        return list(encoding.forward[layer])
    both = zip(encoding.forward[layer], encoding.backward[layer], strict=True)
    return [torch.cat(states, dim=-1) for states in both]
