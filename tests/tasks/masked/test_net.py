"""Restoring what was left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.core.settings import make
from elman.nets.inputs import NetInputs
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.masked.net import MaskedModel, Restored
from elman.text.batches import Batch, Position, StreamBatches
from elman.text.units.vocabulary import EOS_ID

VOCAB = 9
FAMILIES: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"family": "gru", "layers": 1, "tied": True, "embedding": 3},
    "rnn": {"family": "rnn", "skip": "residual", "layer_norm": True},
    "transformer": {"family": "transformer", "hidden": 6, "attention_heads": 2, "window": 3},
    "adaptive": {"head": "adaptive", "cutoffs": (3, 5)},
}


def build(name: str, *, dtype: torch.dtype = torch.float64, **more: Any) -> MaskedModel:
    config = MaskedConfig(**{"hidden": 4, **FAMILIES[name], **more})
    rng = torch.Generator().manual_seed(0)
    counts = np.arange(1, VOCAB + 1)
    model = MaskedModel(config, NetInputs(VOCAB, rng=rng, counts=counts, dtype=dtype))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=dtype), alpha=0.3)
    return model.eval()


def draw(rows: int, num_tokens: int) -> Array:
    return np.random.default_rng(1).integers(2, VOCAB, size=(rows, num_tokens))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_distribution_sums_to_one_and_ignores_what_was_hidden(name: str) -> None:
    model, tokens = build(name), draw(3, 7)
    is_hidden = np.zeros((3, 7), dtype=bool)
    is_hidden[0, [1, 4]] = is_hidden[2, 6] = True
    found = model.predict(tokens, np.full(3, 7), is_hidden)
    assert found.shape == (3, VOCAB) and found.dtype == np.float32
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(model.predict(np.where(is_hidden, 0, tokens), np.full(3, 7), is_hidden), found)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_stands_on_either_side_matters(name: str) -> None:
    model, tokens = build(name), draw(1, 7)
    is_hidden = np.arange(7)[None] == 3
    found = model.predict(tokens, np.array([7]), is_hidden)
    for place in (0, 2, 4, 6):
        other = tokens.copy()
        other[0, place] = 2 + (tokens[0, place] - 1) % (VOCAB - 2)
        assert np.abs(model.predict(other, np.array([7]), is_hidden) - found).max() > 1e-6


@pytest.mark.parametrize("name", FAMILIES)
def test_padding_and_other_rows_change_nothing(name: str) -> None:
    model, tokens = build(name), draw(3, 8)
    lengths = np.array([8, 3, 5])
    is_hidden = np.zeros((3, 8), dtype=bool)
    is_hidden[[0, 1, 2], [2, 2, 0]] = True
    together = model.predict(tokens, lengths, is_hidden)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = model.predict(tokens[one, :length], lengths[one], is_hidden[one, :length])
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_net_that_comes_back_from_its_tensors_is_the_same_to_the_bit(name: str) -> None:
    model, tokens = build(name), draw(2, 5)
    config = MaskedConfig.model_validate_json(model.config.model_dump_json())
    again = MaskedModel.from_tensors(config, model.tensors(), vocab_size=VOCAB).eval()
    is_hidden = np.tile(np.arange(5) == 1, (2, 1))
    lengths = np.full(2, 5)
    np.testing.assert_array_equal(again.predict(tokens, lengths, is_hidden), model.predict(tokens, lengths, is_hidden))
    with pytest.raises(DataError, match="hidden_vector is missing"):
        tensors = {key: value for key, value in model.tensors().items() if key != "hidden_vector"}
        MaskedModel.from_tensors(config, tensors, vocab_size=VOCAB)


def test_restoring_all_hides_every_token_once_and_no_end_of_line() -> None:
    model, tokens = build("lstm", mask=0.34), draw(2, 7)  # every third token at a time
    tokens[0, 4] = EOS_ID
    lengths = np.array([7, 4])
    found = model.restore_all(tokens, lengths)
    nats, right = 0.0, 0
    for turn in range(3):
        is_hidden = (np.arange(7) % 3 == turn) & (tokens != EOS_ID) & (np.arange(7) < lengths[:, None])
        log_probs = model.predict(tokens, lengths, is_hidden)
        nats -= log_probs[np.arange(len(log_probs)), tokens[is_hidden]].sum(dtype=np.float64)
        right += int((log_probs.argmax(1) == tokens[is_hidden]).sum())
    assert found == Restored(pytest.approx(nats, rel=1e-6), 6 + 4, right)  # type: ignore[arg-type]


def test_the_loss_of_a_look_is_what_restoring_says_and_the_same_every_time() -> None:
    model, tokens = build("lstm"), draw(3, 10)
    batch = Batch(tokens, tokens, None, is_start=True)
    loss, state = model.batch_loss(batch, None)
    is_hidden = (np.arange(10) + np.arange(3)[:, None]) % 7 == 0
    assert state is None and loss.tokens == is_hidden.sum() == 4
    assert loss.nats.item() == pytest.approx(model.restore(tokens, np.full(3, 10), is_hidden).nats, rel=1e-6)
    assert model.batch_loss(batch, None)[0].nats == loss.nats


def test_of_the_chosen_tokens_eight_in_ten_are_hidden_and_one_is_another_word() -> None:
    torch.manual_seed(0)
    model = build("lstm").train()
    tokens = torch.full((200, 100), 5)
    batch = Batch(tokens.numpy(), tokens.numpy(), None, is_start=True)
    chosen = model._choose(tokens, torch.full((200,), 100), batch)
    assert chosen.float().mean().item() == pytest.approx(0.15, abs=0.01)
    read, hidden = model._disguise(tokens, chosen, batch)
    assert (hidden & ~chosen).sum() == 0 and torch.equal(read[~chosen], tokens[~chosen])
    assert hidden.sum().item() / chosen.sum().item() == pytest.approx(0.8, abs=0.03)
    changed = (read != tokens).sum().item() / chosen.sum().item()
    assert changed == pytest.approx(0.1 * (VOCAB - 1) / VOCAB, abs=0.02)


def test_ends_of_lines_are_restored_only_where_there_is_nothing_else() -> None:
    model = build("lstm").train()
    tokens = np.array([[3, EOS_ID, 4, EOS_ID]])
    batch = Batch(tokens, tokens, None, is_start=True)
    for _ in range(20):
        assert not model._choose(torch.from_numpy(tokens), torch.tensor([4]), batch)[0, [1, 3]].any()
    blank = Batch(np.array([[EOS_ID]]), np.array([[EOS_ID]]), None, is_start=True)
    loss, _ = model.batch_loss(blank, None)
    assert loss.tokens == 1 and loss.total.isfinite()


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_it_learns_to_restore_what_comes_later(name: str) -> None:
    """Every second token is the one after it in other words: restoring it is certain, guessing is one in three."""
    free = np.random.default_rng(0).integers(0, 3, size=1001)
    ids = np.empty(2001, dtype=np.int64)
    ids[::2] = 2 + free
    ids[1::2] = 5 + free[1:]
    torch.manual_seed(0)
    config = MaskedConfig.model_validate({**FAMILIES[name], "hidden": 24, "layers": 1, "mask": 0.2})
    model = MaskedModel(config, NetInputs(VOCAB, rng=torch.Generator().manual_seed(0)))
    batches, optimiser = StreamBatches(ids, rows=20, bptt=20), torch.optim.Adam(model.parameters(), lr=0.01)
    position = Position()
    for _ in range(100):
        batch, position = batches.batch(position)
        optimiser.zero_grad()
        model.batch_loss(batch, None)[0].total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    is_hidden = np.zeros((1, 21), dtype=bool)
    is_hidden[0, [5, 11, 17]] = True
    assert np.exp(model.eval().restore(ids[None, :21], np.array([21]), is_hidden).nats / 3) < 1.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask": "0"}, "above 0 and below 1"),
        ({"mask": "1"}, "above 0 and below 1"),
        ({"window": "5"}, "window is for transformer, not for lstm"),
        ({"family": "transformer", "skip": "residual"}, "a transformer has its own"),
        ({"family": "transformer", "hidden": "10", "attention_heads": "4"}, "multiple of attention_heads"),
        ({"layers": "1", "skip": "dense"}, "needs at least 2 layers"),
    ],
)
def test_what_cannot_apply_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(MaskedConfig, settings, section="model")


@pytest.mark.parametrize(("mask", "stride"), [(0.15, 7), (0.5, 2), (0.9, 2), (0.1, 10)])
def test_no_more_is_hidden_at_once_than_in_training_or_half(mask: float, stride: int) -> None:
    assert MaskedConfig(mask=mask).stride == stride
