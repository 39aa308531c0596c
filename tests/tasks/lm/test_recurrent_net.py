"""A long text of one row is read side by side in parts, and nobody can tell from the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elman.lm.protocol import leaves
from elman.tasks.lm.families import recurrent_net
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from tests.tasks.lm.zoo import RECURRENT, build

TEXT = np.random.default_rng(3).integers(0, 6, 403)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_net, "PART_TOKENS", 100)
    monkeypatch.setattr(recurrent_net, "RUN_UP_TOKENS", 90)


def in_pieces(model: Any) -> tuple[Any, Any, Any]:
    """Each piece too short to be cut."""
    state, log_probs, features = model.start(1), [], []
    for piece in np.array_split(TEXT, 9):
        nats, vectors, state = model.score_features(piece[None], np.array([len(piece)]), state)
        log_probs.append(nats)
        features.append(vectors)
    return np.concatenate(log_probs, 1), np.concatenate(features, 1), state


@pytest.mark.parametrize("name", RECURRENT)
def test_a_long_text_costs_what_its_pieces_cost(name: str) -> None:
    model = build(name).eval()
    expected = in_pieces(model)
    found = model.score_features(TEXT[None], np.array([len(TEXT)]), model.start(1))
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(leaves(found[2]), leaves(expected[2]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def rows_read(model: RecurrentModel, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """How many rows were read at once, with the text's last state carried from the middle of another."""
    seen = set()
    read = model._read

    def watched(tokens: Any, carried: Any, *, is_noisy: bool) -> Any:
        seen.add(tokens.shape[1])
        return read(tokens, carried, is_noisy=is_noisy)

    state = model.start(1)
    monkeypatch.setattr(model, "_read", watched)
    model.score(TEXT[None], np.array([len(TEXT)]), state)
    return seen


def test_a_net_that_forgets_reads_the_parts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_read(build("lstm").eval(), monkeypatch) == {3, 4}  # the run-ups of three parts, then all four


def test_a_net_that_remembers_all_reads_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("lstm").eval()
    with torch.no_grad():
        for parameter in model.stack.parameters():
            parameter.zero_()
        bias = model.stack.layers[0].bias
        hidden = len(bias) // 4
        bias[:hidden] = 1e-3  # input gate half open ...
        bias[hidden : 2 * hidden] = 50.0  # ... and nothing is ever forgotten
        bias[2 * hidden : 3 * hidden] = 0.1
    assert 1 in rows_read(model, monkeypatch)
