"""The laws can fail: for each of them a model that breaks it, and honest models that keep them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from elman import testing as laws
from elman.core.arrays import Array
from elman.lm.protocol import score_by_steps
from elman.lm.trace import Trace
from elman.testing import LAWS, BrokenLawError, Law, TableLM, check_language_model, saving_and_loading_is_exact

TOLERANCE = 1e-5


class Unnormalised(TableLM):
    """Probabilities that sum to 0.9; score says the same, so only the sum gives it away."""

    def predict(self, state: Array) -> Array:
        return super().predict(state) + np.float32(np.log(0.9))

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        return score_by_steps(self, tokens, lengths, state)


class WrongType(TableLM):
    """float64 where float32 is promised."""

    def predict(self, state: Array) -> Array:
        return super().predict(state).astype(np.float64)


class SharpScore(TableLM):
    """Two distributions in one model: score is sharper than predict."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, state = super().score(tokens, lengths, state)
        return log_probs * np.float32(1.3), state


class ImpureAdvance(TableLM):
    """Shifts the history in place."""

    def advance(self, tokens: Array, state: Array) -> Array:
        state[:, :-1] = state[:, 1:]
        state[:, -1] = tokens
        return state


class StateOnTheModel(TableLM):
    """Remembers the last tokens on itself, as stateful nets do."""

    _last = 0

    def advance(self, tokens: Array, state: Array) -> Array:
        self._last = int(tokens[0])
        return super().advance(tokens, state)

    def predict(self, state: Array) -> Array:
        return np.roll(super().predict(state), self._last, axis=1)


class WritesIntoTokens(TableLM):
    """Clears the padding in the caller's array."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        tokens[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
        return super().score(tokens, lengths, state)


class RowNumber(TableLM):
    """What it predicts depends on where in the batch a row stands."""

    def predict(self, state: Array) -> Array:
        log_probs = super().predict(state)
        return np.stack([np.roll(row, i % 2) for i, row in enumerate(log_probs)])


class JoinBackwards(TableLM):
    """Joins states in the wrong order."""

    def join(self, states: Sequence[Array]) -> Array:
        return np.concatenate(states[::-1])


class JoinForgets(TableLM):
    """Loses a token of every history when joining, as a cache cut to the shortest member would."""

    def join(self, states: Sequence[Array]) -> Array:
        joined = np.concatenate(states)
        joined[:, 0] = self.vocab_size
        return joined


class RowsSeeEachOther(TableLM):
    """Normalises over the batch, as batch norm does."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, state = super().score(tokens, lengths, state)
        inside = np.arange(tokens.shape[1]) < lengths[:, None]
        return (log_probs + inside * np.float32(0.01 * (len(tokens) - 1))).astype(np.float32), state


class ReadsPadding(TableLM):
    """The state after score has read the padding too."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, _ = super().score(tokens, lengths, state)
        _, state = super().score(tokens, np.full(len(tokens), tokens.shape[1]), state)
        return log_probs, state


class ScoresPadding(TableLM):
    """Padding gets a score."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        full, _ = super().score(tokens, np.full(len(tokens), tokens.shape[1]), state)
        return full, super().score(tokens, lengths, state)[1]


class ForgetsOnScore(TableLM):
    """Every call of score begins anew, whatever the state."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, _ = super().score(tokens, lengths, self.start(len(tokens)))
        return log_probs, super().score(tokens, lengths, state)[1]


class SeesTheFuture(TableLM):
    """A token's score leans on the token after it, as without a causal mask."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, state = super().score(tokens, lengths, state)
        log_probs[:, :-1] -= np.float32(0.01) * (tokens[:, 1:] * (np.arange(1, tokens.shape[1]) < lengths[:, None]))
        return log_probs, state


class AdvanceForgets(TableLM):
    """advance keeps only the last token, score all of them: search walks another tree than score measures."""

    def advance(self, tokens: Array, state: Array) -> Array:
        state = super().advance(tokens, state).copy()
        state[:, 0] = self.vocab_size
        return state


class RecordsAnother(TableLM):
    """explain reads every text from its beginning, whatever state it is given."""

    def explain(self, tokens: Array, state: Array) -> Trace:
        return Trace(self.score(tokens[None], np.array([len(tokens)]), self.start(1))[0][0])


class RecordsTooLittle(TableLM):
    """explain leaves the last token out of what it recorded."""

    def explain(self, tokens: Array, state: Array) -> Trace:
        log_probs = self.score(tokens[None], np.array([len(tokens)]), state)[0][0]
        return Trace(log_probs, {"orders": np.ones(len(tokens) - 1)})


class LinesRunOn(TableLM):
    """Lines that lie one after another are read as one text: what a line costs depends on the line before it."""

    def score_lines(self, tokens: Array, starts: Array) -> Array:
        return self.score(tokens[None], np.array([len(tokens)]), self.start(1))[0][0]


MUTANTS: list[tuple[Law, type[TableLM]]] = [
    (laws.predictions_are_normalised, Unnormalised),
    (laws.predictions_are_normalised, WrongType),
    (laws.scoring_equals_stepping, SharpScore),
    (laws.scoring_equals_stepping, AdvanceForgets),
    (laws.recording_changes_nothing, RecordsAnother),
    (laws.recording_changes_nothing, RecordsTooLittle),
    (laws.a_state_is_never_changed, ImpureAdvance),
    (laws.a_state_is_never_changed, StateOnTheModel),
    (laws.a_state_is_never_changed, WritesIntoTokens),
    (laws.selecting_commutes_with_reading, RowNumber),
    (laws.joining_commutes_with_reading, JoinBackwards),
    (laws.joining_commutes_with_reading, JoinForgets),
    (laws.a_row_alone_equals_the_row_in_a_batch, RowsSeeEachOther),
    (laws.padding_is_neutral, ReadsPadding),
    (laws.padding_is_neutral, ScoresPadding),
    (laws.cutting_a_text_changes_nothing, ForgetsOnScore),
    (laws.lines_score_as_they_lie, LinesRunOn),
    (laws.the_future_cannot_change_the_past, SeesTheFuture),
    (laws.all_strings_sum_to_one, SharpScore),
    (laws.all_strings_sum_to_one, Unnormalised),
    (laws.the_widest_beam_finds_the_best, AdvanceForgets),
    (laws.samples_follow_the_prediction, AdvanceForgets),
    (laws.samples_follow_the_prediction, SharpScore),
]


def test_every_law_has_a_model_that_breaks_it() -> None:
    assert {law for law, _ in MUTANTS} == set(LAWS)


@pytest.mark.parametrize("vocab_size", [4, 40])
@pytest.mark.parametrize(("law", "mutant"), MUTANTS, ids=lambda part: part.__name__)
def test_a_broken_model_breaks_the_law(law: Law, mutant: type[TableLM], vocab_size: int) -> None:
    if vocab_size > 32 and law is laws.samples_follow_the_prediction and mutant is AdvanceForgets:
        pytest.skip("over a large vocabulary one token is sampled, and advance is not called")
    lm = mutant.random(np.random.default_rng(0), vocab_size=vocab_size, order=2)
    with pytest.raises(BrokenLawError):
        law(lm, np.random.default_rng(0), TOLERANCE)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("vocab_size", "order", "impossible"),
    [(4, 2, 0.0), (4, 2, 0.5), (3, 0, 0.0), (1, 1, 0.0), (40, 1, 0.3), (300, 1, 0)],
)
def test_an_honest_table_keeps_the_law(law: Law, vocab_size: int, order: int, impossible: float) -> None:
    lm = TableLM.random(np.random.default_rng(1), vocab_size=vocab_size, order=order, impossible=impossible)
    law(lm, np.random.default_rng(2), TOLERANCE)


def test_the_laws_hold_by_no_lucky_seed() -> None:
    for seed in range(20):
        lm = TableLM.random(np.random.default_rng(seed), impossible=0.2)
        check_language_model(lm, rng=np.random.default_rng(seed), roundtrip=lambda lm: lm)


def test_a_failure_names_the_law() -> None:
    lm = JoinBackwards.random(np.random.default_rng(0))
    with pytest.raises(BrokenLawError, match="joining_commutes_with_reading: what joined states predict differs"):
        check_language_model(lm, rng=np.random.default_rng(0))


def test_a_model_that_comes_back_rounded_is_not_the_same() -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(4), size=(5, 5))
    lm = TableLM(table)
    saving_and_loading_is_exact(lm, np.random.default_rng(0), roundtrip=lambda _: TableLM(table.copy()))
    rounded = table.astype(np.float32).round(5)
    with pytest.raises(BrokenLawError, match="the score of the loaded model differs"):
        saving_and_loading_is_exact(lm, np.random.default_rng(0), roundtrip=lambda _: TableLM(rounded))
    with pytest.raises(BrokenLawError, match=r"saving_and_loading.*came back as 3"):
        check_language_model(
            lm, rng=np.random.default_rng(0), roundtrip=lambda _: TableLM.random(np.random.default_rng(0), vocab_size=3)
        )


@dataclass(frozen=True)
class TensorState:
    history: torch.Tensor
    hidden: tuple[torch.Tensor, torch.Tensor]


class TensorLM:
    """The table with its state in torch tensors, one of them with a gradient, as a net would hold them."""

    def __init__(self, table: TableLM) -> None:
        self.table = table
        self.vocab_size = table.vocab_size

    def _state(self, history: Array) -> TensorState:
        hidden = torch.tensor(history, dtype=torch.float32, requires_grad=True)
        return TensorState(torch.tensor(history), (hidden, hidden * 2))

    def start(self, rows: int) -> TensorState:
        return self._state(self.table.start(rows))

    def predict(self, state: TensorState) -> Array:
        return self.table.predict(state.history.numpy())

    def advance(self, tokens: Array, state: TensorState) -> TensorState:
        return self._state(self.table.advance(tokens, state.history.numpy()))

    def score(self, tokens: Array, lengths: Array, state: TensorState) -> tuple[Array, TensorState]:
        log_probs, history = self.table.score(tokens, lengths, state.history.numpy())
        return log_probs, self._state(history)

    def join(self, states: Sequence[TensorState]) -> TensorState:
        return self._state(np.concatenate([state.history.numpy() for state in states]))


class ImpureTensorLM(TensorLM):
    """advance writes into the old tensor."""

    def advance(self, tokens: Array, state: TensorState) -> TensorState:
        after = super().advance(tokens, state)
        state.hidden[1].detach().zero_()
        return after


def test_states_may_be_tensors() -> None:
    lm = TensorLM(TableLM.random(np.random.default_rng(0), impossible=0.2))
    check_language_model(lm, rng=np.random.default_rng(0))


def test_a_tensor_written_into_is_noticed() -> None:
    lm: Any = ImpureTensorLM(TableLM.random(np.random.default_rng(0)))
    with pytest.raises(BrokenLawError, match="a leaf of the old state was changed"):
        laws.a_state_is_never_changed(lm, np.random.default_rng(0), TOLERANCE)
