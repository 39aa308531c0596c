"""How the source reaches the decoder, and what it reads and writes: one decoder by the formulas, step by step and row by row.

The encoder, the cells and the scores of attention have references of their own in tests/nets.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from elman.core.arrays import Array
from elman.nets.inputs import NetInputs
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.model import Seq2SeqRecord
from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel
from elman.text.units.vocabulary import EOS_ID

HIDDEN, LAYERS, POSITIONS = 4, 2, 4
WIRINGS: dict[str, dict[str, Any]] = {
    f"{context}, {bridge}, {family}": {"context": context, "bridge": bridge, "family": family}
    for context in ("initial", "every", "all", "fixed", "attention")
    for bridge, family in (("dense", "rnn"), ("dense", "lstm"), ("copy", "lstm"), ("zero", "rnn"))
    if (context, bridge) != ("initial", "zero")
} | {
    "fixed, for the output": {"context": "fixed", "fixed_reaches": "output", "family": "lstm"},
    "fed": {"input_feeding": True, "family": "lstm"},
    "before": {"attend": "before", "family": "lstm"},
    "before, fed": {"attend": "before", "input_feeding": True, "family": "rnn"},
}
SOURCE, TARGET = np.array([3, 2, 5, 2, 4, EOS_ID]), np.array([2, 4, 3, 3, EOS_ID])


def build(**options: Any) -> Seq2SeqModel:
    config = Seq2SeqConfig(**{"hidden": HIDDEN, "layers": LAYERS, "embedding": 3, **options})
    rng = torch.Generator().manual_seed(1)
    inputs = NetInputs(5, rng=rng, dtype=torch.float64)
    model = Seq2SeqModel(config, inputs, source_vocab_size=6, longest_source=POSITIONS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.5)
    return model.eval()


@dataclasses.dataclass
class Written:
    """What the formulas give: of each step the log-probabilities of all words, and the weights of attention."""

    log_probs: list[Array]
    weights: list[Array]


class Decoder:
    """The decoder of a model for one source, in plain numpy."""

    def __init__(self, model: Seq2SeqModel, source: Array) -> None:
        self.config = model.config
        self.tensors = {name: tensor.astype(np.float64) for name, tensor in model.tensors().items()}
        with torch.no_grad():
            words = model.source_embedding(torch.from_numpy(source)[:, None])
            encoding = model.encoder(words, torch.tensor([len(source)]))
        self.outputs = encoding.outputs[:, 0].numpy()  # (S, H)
        both = zip(encoding.forward, encoding.backward, strict=True)
        self.ends = [
            [torch.cat(pair, dim=-1)[0].numpy() for pair in zip(*layer, strict=True)] for layer in both
        ]  # by layer: h, and of an LSTM c

    def write(self, target: Array) -> Written:
        """Read the start symbol and all but the target's last token."""
        config, states = self.config, self.first_states()
        fed = np.zeros(HIDDEN)
        written = Written([], [])
        for token in [EOS_ID, *target[:-1]]:
            context = self.context()
            if config.attend == "before":  # asked by the top layer, as the step before left it
                context, weights = self.look(states[-1][0])
                written.weights.append(weights)
            inputs = [self.tensors["embedding.weight"][token]]
            if config.input_feeding:
                inputs.append(fed)
            if config.context in ("every", "all", "fixed") and config.fixed_reaches != "output":
                inputs.append(context)
            if config.attend == "before":
                inputs.append(context)
            value = np.concatenate(inputs)
            for layer in range(LAYERS):
                states[layer] = self.cell(layer, value, states[layer])
                value = states[layer][0]
            if config.context == "attention" and config.attend != "before":
                context, weights = self.look(value)
                written.weights.append(weights)
            if config.context != "initial":
                value = np.tanh(self.linear("readout", np.concatenate([value, context])))
            fed = value  # what the output saw, not the state
            logits = self.tensors["head.weight"] @ value + self.tensors["head.bias"]
            written.log_probs.append(logits - np.log(np.exp(logits).sum()))
        return written

    def first_states(self) -> list[list[Array]]:
        """copy: h and c as the encoder's layer ended. dense: tanh(W h + b), W c + b."""
        if self.config.bridge == "zero":
            return [[np.zeros(HIDDEN) for _ in layer] for layer in self.ends]
        if self.config.bridge == "copy":
            return [list(layer) for layer in self.ends]
        names = iter(range(LAYERS * len(self.ends[0])))
        dense = [[self.linear(f"bridges.{next(names)}", state) for state in layer] for layer in self.ends]
        return [[np.tanh(h), *c] for h, *c in dense]

    def context(self) -> Array:
        """What does not depend on the step."""
        if self.config.context == "every":
            return self.ends[-1][0]
        if self.config.context not in ("all", "fixed"):
            return np.zeros(0)
        blocks = np.split(self.tensors["summary.weight"], POSITIONS, axis=1)  # W_k of position k
        total = self.tensors["summary.bias"] + sum(w @ h for w, h in zip(blocks, self.outputs, strict=False))
        return np.tanh(total) if self.config.context == "all" else total

    def look(self, query: Array) -> tuple[Array, Array]:
        """Bilinear attention: softmax of s W h."""
        energies = self.outputs @ (query @ self.tensors["attention.weight"])
        weights = np.exp(energies) / np.exp(energies).sum()
        return weights @ self.outputs, weights

    def cell(self, layer: int, value: Array, state: list[Array]) -> list[Array]:
        weight_in, weight_back, bias = (
            self.tensors[f"stack.layers.{layer}.{name}"] for name in ("weight_in", "weight_back", "bias")
        )
        gates = weight_in @ value + weight_back @ state[0] + bias
        if self.config.family == "rnn":
            return [np.tanh(gates)]
        i, f, new, o = np.split(gates, 4)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(new)
        return [sigmoid(o) * np.tanh(c), c]

    def linear(self, name: str, value: Array) -> Array:
        result: Array = self.tensors[f"{name}.weight"] @ value + self.tensors[f"{name}.bias"]
        return result


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize("name", WIRINGS)
def test_every_wiring_is_that_of_its_formulas(name: str) -> None:
    model = build(**WIRINGS[name])
    expected = Decoder(model, SOURCE).write(TARGET)
    state = model.encode(SOURCE[None], np.array([len(SOURCE)]))
    for token, log_probs in zip(TARGET, expected.log_probs, strict=True):
        np.testing.assert_allclose(model.predict(state)[0], log_probs, rtol=1e-5)
        state = model.advance(np.array([token]), state)
    state = model.encode(SOURCE[None], np.array([len(SOURCE)]))
    scored, _ = model.score(TARGET[None], np.array([len(TARGET)]), state)
    wanted = [log_probs[token] for token, log_probs in zip(TARGET, expected.log_probs, strict=True)]
    np.testing.assert_allclose(scored[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, o in WIRINGS.items() if o.get("context", "attention") == "attention"])
def test_the_attention_that_is_shown_is_that_of_the_step_that_wrote_the_token(name: str) -> None:
    model = build(**WIRINGS[name])
    shown = model.attention_weights(SOURCE[None], np.array([len(SOURCE)]), TARGET[None])
    np.testing.assert_allclose(shown[0], Decoder(model, SOURCE).write(TARGET).weights, rtol=1e-5)


def test_without_a_bridge_the_state_still_depends_on_the_source_where_the_sum_reaches_the_cells() -> None:
    """With context=fixed and bridge=zero it did not: the sum reached the output alone."""
    sources = [SOURCE, np.array([2, 2, 4, EOS_ID])]
    for reaches, depends in (("cells", True), ("output", False)):
        model = build(context="fixed", bridge="zero", fixed_reaches=reaches)
        states = [model.encode(source[None], np.array([len(source)])).carried[: model.num_cells] for source in sources]
        assert any(not torch.equal(one, other) for one, other in zip(*states, strict=True)) is depends


def test_a_record_of_version_0_1_0_keeps_its_wiring_and_a_new_one_says_which_it_has() -> None:
    written = {"task": "seq2seq", "seed": 1, "data": {}, "model": {"context": "fixed", "hidden": 4, "positions": 3}}
    old = Seq2SeqRecord.model_validate(written)
    assert old.model.fixed_reaches == "output"
    assert Seq2SeqRecord.model_validate(old.model_dump(mode="json")).model.fixed_reaches == "output"
    new = old.model_copy(update={"model": build(context="fixed").config})
    assert new.model_dump(mode="json")["model"]["fixed_reaches"] == "cells"
    assert Seq2SeqRecord.model_validate(new.model_dump(mode="json")) == new
    other = Seq2SeqRecord.model_validate(written | {"model": {"context": "all"}})
    assert "fixed_reaches" not in other.model_dump(mode="json")["model"]


@pytest.mark.parametrize("options", [{"attend": "before"}, {"input_feeding": True}, {}])
def test_locked_dropout_between_layers_is_the_same_at_every_step(options: dict[str, Any]) -> None:
    """Step by step, a decoder drew what it dropped anew at every step; now the rows keep theirs, each its own."""
    model = build(**options, dropout_layers=0.5, hidden=16).train()
    below, top = model.stack.parts
    given, read = [], []
    below.register_forward_hook(lambda _module, _inputs, outputs: given.append(outputs[0]))
    top.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
    torch.manual_seed(0)
    carried = model._encode(torch.from_numpy(SOURCE)[:, None].expand(-1, 3), torch.tensor([6] * 3), is_noisy=True)
    words = torch.from_numpy(TARGET)[:, None].expand(-1, 3)
    for _ in range(2):
        model._read(words, carried, is_noisy=True)
    kept = (torch.cat(read) / torch.cat(given)).detach().round(decimals=6)
    first, second = kept.split(len(TARGET))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(first, first[:1].expand_as(first))
    assert not torch.equal(first[0, 0], first[0, 1])
    assert not torch.equal(first[0], second[0])  # another batch, other masks
