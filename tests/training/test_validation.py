"""Validation in batches, exact scoring, and the temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from elman.lm.evaluate import evaluate
from elman.text.batches import validation_batches
from elman.text.units.vocabulary import EOS_ID
from elman.training.temperature import fit_temperature, minimise
from elman.training.validation import score_exactly, validate
from tests.training.tiny import Carried, Tiny, text


@dataclass(frozen=True)
class Block:
    ids: np.ndarray
    num_bytes: int = 0
    unknown_tokens: int = 0

    @property
    def num_lines(self) -> int:
        return int((self.ids == EOS_ID).sum())


@pytest.mark.parametrize("reset_lines", [False, True])
def test_the_number_to_report_is_what_evaluate_says(reset_lines: bool) -> None:
    model: Any = Tiny(dropout=0.0).eval()
    ids = text(3000)
    ours = score_exactly(model, ids, reset_lines=reset_lines)
    theirs = evaluate(model, [Block(ids[:1500]), Block(ids[1500:])], reset_lines=False, signature="").tally
    if reset_lines:
        theirs = evaluate(model, [Block(ids)], reset_lines=True, signature="").tally
    assert ours.tokens == theirs.tokens and ours.lines == theirs.lines
    assert ours.nats == pytest.approx(theirs.nats, rel=1e-6)


def test_cut_off_it_is_the_number_of_the_first_part() -> None:
    model: Any = Tiny(dropout=0.0).eval()
    ids = text(3000)
    part = score_exactly(model, ids, reset_lines=False, tokens_left=lambda done: 100 - done)
    whole = score_exactly(model, ids[:100], reset_lines=False)
    assert part.tokens == 100 and part.nats == pytest.approx(whole.nats, rel=1e-6)
    assert score_exactly(model, ids, reset_lines=False, tokens_left=lambda _: 0.0).tokens == 0


@pytest.mark.parametrize("reset_lines", [False, True])
def test_one_row_read_in_windows_with_the_state_carried_is_the_text_read_at_once(reset_lines: bool) -> None:
    """Truncation cuts gradients, never values."""
    model = Tiny(dropout=0.5)
    ids = text(500)
    batches = validation_batches(ids, rows=1, bptt=7, reset_lines=reset_lines)
    validation = validate(model, batches)
    exact = score_exactly(model.eval(), ids, reset_lines=reset_lines)  # type: ignore[arg-type]
    assert validation.is_whole and validation.tokens == exact.tokens == 500
    assert validation.nats == pytest.approx(exact.nats, rel=1e-6)


def test_many_rows_differ_only_by_their_cold_starts() -> None:
    model = Tiny(dropout=0.5)
    ids = text(4000)
    one = validate(model, validation_batches(ids, rows=1, bptt=35, reset_lines=False))
    many = validate(model, validation_batches(ids, rows=16, bptt=35, reset_lines=False))
    assert many.nats_per_token == pytest.approx(one.nats_per_token, rel=0.01)


def test_a_validation_changes_nothing() -> None:
    model = Tiny().train()
    before = torch.get_rng_state()
    validate(model, validation_batches(text(200), rows=2, bptt=10, reset_lines=False))
    assert model.training and torch.equal(torch.get_rng_state(), before)


def test_a_validation_can_be_interrupted_and_is_then_not_whole() -> None:
    calls = iter([False, False, True])
    batches = validation_batches(text(200), rows=2, bptt=10, reset_lines=False)
    validation = validate(Tiny(), batches, should_stop=lambda: next(calls))
    assert not validation.is_whole and validation.tokens == 40
    assert math.isnan(validate(Tiny(), batches, should_stop=lambda: True).nats_per_token)


class Overconfident(Tiny):
    """All logits three times too large: the best temperature is 3."""

    def logits(self, inputs: torch.Tensor, carried: Carried) -> tuple[torch.Tensor, Carried]:
        true = torch.log(torch.tensor([0.05, 0.05, 0.1, 0.1, 0.2, 0.2, 0.3], dtype=torch.float64))
        return 1.4 * true.expand(*inputs.shape, 7) * torch.exp(-self.log_temperature), carried


def test_the_temperature_of_an_overconfident_model_is_found() -> None:
    model = Overconfident()
    rng = np.random.default_rng(0)
    ids = rng.choice(7, size=50_000, p=[0.05, 0.05, 0.1, 0.1, 0.2, 0.2, 0.3])
    batches = validation_batches(ids, rows=16, bptt=100, reset_lines=False)
    before = validate(model, batches).nats_per_token
    found = fit_temperature(model, lambda: validate(model, batches).nats_per_token)
    assert found == pytest.approx(1.4, rel=0.03)
    assert math.exp(float(model.log_temperature)) == pytest.approx(found)
    assert validate(model, batches).nats_per_token < before


def test_a_temperature_that_gains_nothing_stays_one_and_a_model_without_one_has_none() -> None:
    model = Tiny()
    assert fit_temperature(model, lambda: 1.0) == 1.0 and float(model.log_temperature) == 0.0
    assert fit_temperature(torch.nn.Linear(2, 2), lambda: 1.0) is None


def test_a_parabola_is_minimised_with_one_evaluation_more() -> None:
    points: list[float] = []

    def parabola(x: float) -> float:
        points.append(x)
        return (x - 0.22) ** 2 + 1.0

    assert minimise(parabola, (-0.15, 0.0, 0.15), bound=0.5, rounds=7) == pytest.approx(0.22)
    assert len(points) == 4
    assert minimise(lambda x: (x - 3.0) ** 2, (-0.15, 0.0, 0.15), bound=0.5, rounds=7) == 0.5
    assert minimise(lambda x: math.nan, (-0.15, 0.0, 0.15), bound=0.5, rounds=7) == 0.0
    found = minimise(lambda x: math.cosh(3 * (x + 0.31)) + 0.1 * x**3, (-0.15, 0.0, 0.15), bound=0.5, rounds=7)
    assert found == pytest.approx(-0.31, abs=0.01)
