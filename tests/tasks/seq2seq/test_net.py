"""Encoders and decoders: every law for every way the source reaches the decoder; the loss by the score; the gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from elman.core.errors import DataError, UsageError
from elman.lm.protocol import ConditionalModel, FreeModel
from elman.lm.search import beam_search, sample_rows
from elman.lm.shaping import Shaping
from elman.nets.inputs import NetInputs
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.data import PairBatch
from elman.tasks.seq2seq.net import PairModel
from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel
from elman.tasks.seq2seq.transformer_net import TransformerPairs
from elman.testing import Given, check_conditional_model, saving_and_loading_is_exact
from elman.text.units.vocabulary import EOS_ID

ZOO: dict[str, dict[str, Any]] = {
    "initial": {"context": "initial"},
    "initial gru, one direction": {"context": "initial", "family": "gru", "bidirectional": False},
    "every": {"context": "every"},
    "every rnn": {"context": "every", "family": "rnn", "layers": 2},
    "all": {"context": "all"},
    "fixed": {"context": "fixed", "family": "gru", "positions": 3},
    "fixed, for the output": {"context": "fixed", "fixed_reaches": "output"},
    "fixed, without a bridge": {"context": "fixed", "bridge": "zero"},
    "attention": {},
    "dot": {"score": "dot", "family": "gru", "reset": "before"},
    "scaled": {"score": "scaled", "bridge": "copy"},
    "bilinear": {"score": "bilinear", "bidirectional": False, "bridge": "zero"},
    "additive": {"score": "additive", "layers": 2},
    "before": {"attend": "before", "score": "additive", "family": "gru"},
    "before, fed": {"attend": "before", "input_feeding": True},
    "input feeding": {"input_feeding": True, "layers": 2},
    "deep encoder": {"encoder_layers": 3, "skip": "residual"},
    "dense": {"layers": 2, "skip": "dense", "layer_norm": True, "family": "rnn"},
    "tied": {"tied": True, "embedding": 3},
    "shared": {"shared_words": True, "tied": True},
    "adaptive": {"head": "adaptive", "cutoffs": (2, 4)},
    "transformer": {"family": "transformer", "attention_heads": 2, "layers": 2},
    "transformer, short memory": {"family": "transformer", "window": 2, "encoder_layers": 2, "embedding": 3},
    "noisy": {"dropout": 0.3, "dropout_embedding": 0.2, "label_smoothing": 0.2, "own_words": 0.5},
}
SOURCES = [np.array([3, 2, 1]), np.array([1]), np.array([2, 4, 4, 0, 3, 1])]


def kind_of(config: Seq2SeqConfig) -> type[PairModel]:
    return TransformerPairs if config.family == "transformer" else Seq2SeqModel


def build(name: str, *, dtype: torch.dtype = torch.float64, vocab_size: int = 5) -> PairModel:
    """The net of that name, its weights spread out."""
    config = Seq2SeqConfig(**{"hidden": 4, **ZOO[name]})
    rng = torch.Generator().manual_seed(1)
    model = kind_of(config)(
        config,
        NetInputs(vocab_size, rng=rng, counts=np.arange(1, vocab_size + 1), dtype=dtype),
        source_vocab_size=vocab_size if config.shared_words else 6,
        longest_source=4,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=dtype), alpha=0.4)
        model.head.log_temperature.fill_(0.2)
    return model.eval()


def make_batch(seed: int = 0) -> PairBatch:
    rng = np.random.default_rng(seed)
    source_lengths, target_lengths = np.array([3, 1, 6]), np.array([2, 5, 1])
    sources, targets = (np.full((3, int(lengths.max())), EOS_ID) for lengths in (source_lengths, target_lengths))
    for row in range(3):
        sources[row, : source_lengths[row] - 1] = rng.integers(2, 5, source_lengths[row] - 1)
        targets[row, : target_lengths[row] - 1] = rng.integers(2, 5, target_lengths[row] - 1)
    return PairBatch(sources, source_lengths, targets, target_lengths)


@pytest.mark.parametrize("name", ZOO)
def test_every_decoder_keeps_every_law_given_every_source(name: str) -> None:
    check_conditional_model(build(name), SOURCES, rng=np.random.default_rng(0), tolerance=1e-6)


def test_in_single_precision_too() -> None:
    check_conditional_model(build("attention", dtype=torch.float32), SOURCES, rng=np.random.default_rng(1))


def test_a_decoder_is_conditional_and_not_free() -> None:
    model = build("attention")
    assert isinstance(model, ConditionalModel)
    assert not isinstance(model, FreeModel)


@pytest.mark.parametrize("name", [name for name in ZOO if name != "initial gru, one direction"])
def test_the_source_matters(name: str) -> None:
    model = build(name)
    states = [model.encode(source[None], np.array([len(source)])) for source in SOURCES]
    predicted = [model.predict(state)[0] for state in states]
    assert np.abs(predicted[0] - predicted[1]).max() > 1e-3
    assert np.abs(predicted[0] - predicted[2]).max() > 1e-3


@pytest.mark.parametrize("name", ZOO)
def test_the_loss_is_the_score_of_the_targets(name: str) -> None:
    model, batch = build(name), make_batch()
    with torch.no_grad():
        loss, state = model.batch_loss(batch, None)
    scored, _ = model.score(batch.targets, batch.target_lengths, model.encode(batch.sources, batch.source_lengths))
    assert state is None
    assert loss.tokens == 8
    assert float(loss.nats) == pytest.approx(-scored.sum(), rel=1e-6)
    assert float(loss.total) == pytest.approx(-scored.sum() / 8, rel=1e-6)


@pytest.mark.parametrize("name", ZOO)
def test_every_gradient_is_the_slope_of_the_loss(name: str) -> None:
    model, batch = build(name), make_batch()
    model.zero_grad()
    model.batch_loss(batch, None)[0].total.backward()
    rng = np.random.default_rng(0)
    for label, parameter in model.named_parameters():
        place = tuple(int(rng.integers(size)) for size in parameter.shape)
        slopes = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                before = parameter[place].item()
                parameter[place] = before + step
                slopes.append(float(model.batch_loss(batch, None)[0].total))
                parameter[place] = before
        slope = (slopes[0] - slopes[1]) / 2e-5
        gradient = 0.0 if parameter.grad is None else float(parameter.grad[place])  # a cluster without targets
        assert gradient == pytest.approx(slope, rel=1e-4, abs=1e-7), label


@pytest.mark.parametrize("name", [n for n, o in ZOO.items() if o.get("context", "attention") == "attention"])
def test_attention_sums_to_one_and_ignores_padding(name: str) -> None:
    model, batch = build(name), make_batch()
    weights = model.attention_weights(batch.sources, batch.source_lengths, batch.targets)
    assert weights.shape == (3, 5, 6)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    for row, length in enumerate(batch.source_lengths):
        assert not weights[row, :, length:].any()
        alone = model.attention_weights(batch.sources[row : row + 1, :length], np.array([length]), batch.targets[[row]])
        np.testing.assert_allclose(weights[row, :, :length], alone[0], atol=1e-6)


def test_without_attention_there_is_none_to_show() -> None:
    with pytest.raises(UsageError, match="context=initial has no attention"):
        build("initial").attention_weights(SOURCES[0][None], np.array([3]), np.array([[1]]))


def test_label_smoothing_is_the_mean_over_all_words() -> None:
    """(1 - e) (-log p(target)) + e mean(-log p(word)), from the model's own distribution."""
    model, batch = build("noisy"), make_batch()
    model.config = model.config.model_copy(update={"dropout": 0.0, "dropout_embedding": 0.0, "own_words": 0.0})
    model.train()
    loss, _ = model.batch_loss(batch, None)
    model.eval()
    state = model.encode(batch.sources, batch.source_lengths)
    total = 0.0
    for t in range(batch.targets.shape[1]):
        log_probs = model.predict(state).astype(np.float64)
        for row in np.flatnonzero(batch.target_lengths > t):
            total -= 0.8 * log_probs[row, batch.targets[row, t]] + 0.2 * log_probs[row].mean()
        state = model.advance(batch.targets[:, t], state)
    assert float(loss.total.detach()) == pytest.approx(total / 8, rel=1e-6)


def test_own_words_are_read_more_and_more() -> None:
    model, batch = build("noisy"), make_batch()
    model.train()
    read = torch.from_numpy(batch.targets).t()
    carried = model._encode(torch.from_numpy(batch.sources).t(), torch.from_numpy(batch.source_lengths), is_noisy=False)
    torch.manual_seed(0)
    assert torch.equal(model._with_own_words(read, carried), read)  # not yet
    model._num_batches.fill_(2000)
    changed = torch.stack([model._with_own_words(read, carried) != read for _ in range(200)]).double().mean(0)
    assert not changed[0].any()  # the start symbol stays
    assert 0.2 < changed[1:].mean() < 0.5  # half of the places, where the guess is another word


def test_a_net_that_comes_back_from_its_tensors_is_the_same_to_the_bit() -> None:
    for name in ZOO:
        model = build(name)
        config = Seq2SeqConfig.model_validate_json(model.config.model_dump_json())
        loaded = kind_of(config).from_tensors(config, model.tensors(), vocab_size=5)

        def roundtrip(_: FreeModel[Any], loaded: PairModel = loaded) -> FreeModel[Any]:
            return Given(loaded, SOURCES[0])

        saving_and_loading_is_exact(Given(model, SOURCES[0]), np.random.default_rng(0), roundtrip=roundtrip)


def test_tensors_of_another_model_are_refused() -> None:
    model = build("attention")
    with pytest.raises(DataError, match="do not match the settings"):
        Seq2SeqModel.from_tensors(Seq2SeqConfig(hidden=4, context="initial"), model.tensors(), vocab_size=5)
    with pytest.raises(DataError, match=r"embedding.weight is missing"):
        Seq2SeqModel.from_tensors(Seq2SeqConfig(), {}, vocab_size=5)


def test_shared_words_need_a_shared_vocabulary() -> None:
    with pytest.raises(UsageError, match="one vocabulary"):
        Seq2SeqModel(Seq2SeqConfig(shared_words=True), NetInputs(5), source_vocab_size=6)


def test_a_beam_of_several_sources_is_each_source_alone() -> None:
    model, batch = build("attention"), make_batch()
    together = beam_search(
        model, model.encode(batch.sources, batch.source_lengths), width=3, n_best=3, stop=EOS_ID, max_tokens=6
    )
    for row, length in enumerate(batch.source_lengths):
        state = model.encode(batch.sources[row : row + 1, :length], np.array([length]))
        alone = beam_search(model, state, width=3, n_best=3, stop=EOS_ID, max_tokens=6)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        np.testing.assert_allclose([h.nats for h in alone], [h.nats for h in together[row]], rtol=1e-6)
    state = model.encode(batch.sources, batch.source_lengths)
    one = beam_search(model, state, width=1, stop=EOS_ID, max_tokens=6)
    likeliest = Shaping(temperature=0)
    rows = sample_rows(model, state, shaping=likeliest, rng=np.random.default_rng(0), stop=EOS_ID, max_tokens=6)
    assert [h[0].tokens for h in one] == [h.tokens for h in rows]


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_it_learns_to_copy(family: str) -> None:
    rng = np.random.default_rng(0)
    config = Seq2SeqConfig(hidden=32, family=family)  # type: ignore[arg-type]
    model = kind_of(config)(config, NetInputs(8, rng=torch.Generator().manual_seed(0)), source_vocab_size=8)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150 if family == "gru" else 300):
        rows = np.concatenate([rng.integers(2, 8, (32, 5)), np.full((32, 1), EOS_ID)], axis=1)
        loss, _ = model.batch_loss(PairBatch(rows, np.full(32, 6), rows, np.full(32, 6)), None)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    assert float(loss.nats) / loss.tokens < 0.15 * math.log(8)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"context": "every", "score": "dot"}, "score is for context=attention"),
        ({"context": "every", "input_feeding": True}, "input_feeding is for context=attention"),
        ({"positions": 3}, "positions is for"),
        ({"context": "all", "fixed_reaches": "cells"}, "fixed_reaches is for context=fixed"),
        ({"reset": "before"}, "reset is for gru, not for lstm"),
        ({"family": "transformer", "reset": "before"}, "reset is for gru, not for transformer"),
        ({"own_words_steps": 3}, "needs own_words"),
        ({"hidden": 5}, "make it even"),
        ({"bridge": "zero", "context": "initial"}, "nothing would lead"),
        ({"bridge": "copy", "encoder_layers": 2}, "as many encoder_layers"),
        ({"vectors": "x"}, "not for seq2seq"),
        ({"head": "adaptive", "label_smoothing": 0.1}, "not for seq2seq"),
        ({"skip": "residual"}, "skip=residual needs at least two layers"),
        ({"window": 3}, "window does not apply to lstm"),
        ({"family": "transformer", "context": "all"}, "context does not apply to transformer"),
        ({"family": "transformer", "hidden": 6, "attention_heads": 4}, "must be a multiple"),
    ],
)
def test_settings_that_cannot_apply_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Seq2SeqConfig(**given)


def test_a_new_net_predicts_words_as_often_as_they_were_counted() -> None:
    counts = np.array([1, 20, 30, 40, 9])
    inputs = NetInputs(5, rng=torch.Generator().manual_seed(1), counts=counts)
    model = Seq2SeqModel(Seq2SeqConfig(hidden=4), inputs, source_vocab_size=6)
    model.load_tensors({name: value if name == "head.bias" else 0 * value for name, value in model.tensors().items()})
    predicted = model.predict(model.encode(np.array([[3, EOS_ID]]), np.array([2])))
    assert np.exp(predicted[0]) == pytest.approx(counts / 100, rel=1e-5)


def test_what_words_mean_is_learned_within_a_hundred_steps() -> None:
    """Word vectors in +-0.05 were too small: a minute on 80,000 sentences taught how frequent words are, nothing else."""
    vocab_size, rng = 200, np.random.default_rng(0)
    meaning = np.concatenate([[0, 1], rng.permutation(np.arange(2, vocab_size))])
    inputs = NetInputs(vocab_size, rng=torch.Generator().manual_seed(1), counts=np.ones(vocab_size))
    config = Seq2SeqConfig(hidden=32, tied=True)
    model = Seq2SeqModel(config, inputs, source_vocab_size=vocab_size, longest_source=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        sources = np.concatenate([rng.integers(2, vocab_size, (64, 3)), np.full((64, 1), EOS_ID)], axis=1)
        lengths = np.full(64, 4)
        loss = model.batch_loss(PairBatch(sources, lengths, meaning[sources], lengths), None)[0].total
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    unigram = 0.75 * math.log(vocab_size - 2)  # three words of four; the end is known
    assert loss.item() < 0.8 * unigram


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_wide_net_that_shares_its_words_begins_no_worse_than_by_guessing(family: str) -> None:
    config = Seq2SeqConfig(family=family, hidden=192, layers=2, embedding=192, tied=True)  # type: ignore[arg-type]
    inputs = NetInputs(vocab_size=1000, rng=torch.Generator().manual_seed(1), dtype=torch.float32)
    net = kind_of(config)(config, inputs, source_vocab_size=1000)
    target = np.random.default_rng(1).integers(2, 1000, size=(4, 12))
    log_probs, _ = net.score(target, np.full(4, 12), net.encode(target, np.full(4, 12)))
    assert -float(np.mean(log_probs)) < 1.1 * math.log(1000)
