"""A run of a language model: a text as streams or lines to descend on, and another to be judged by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.evaluate import Tally
from elman.lm.protocol import FreeModel
from elman.text.batches import Lines, Streams
from elman.training.budget import Budget, Clock
from elman.training.config import TrainConfig
from elman.training.examiner import REHEARSAL_SHARE, Conclusion, Stop, rehearse_validation
from elman.training.loop import Trainer
from elman.training.pace import Pace
from elman.training.protocols import Net
from elman.training.steps import Run
from elman.training.validation import Quick, fit_temperature, score_exactly, validate, validation_batches

DEFAULT_BATCH = 64
DEFAULT_BPTT = 35
TEMPERATURE_TOKENS = 1 << 15  # enough for one number
TEMPERATURE_ROUNDS = 7
TEMPERATURE_SHARE = 0.02  # of a budget, at most
EXACT_SHARE = 0.1  # of a budget, at most, for the number as `evaluate` says it
REHEARSED_TOKENS = 1008  # 16 + 32 + ... + 512


def stream_trainer(
    model: Net,
    ids: Array,
    valid_ids: Array | None = None,
    *,
    config: TrainConfig,
    seed: int,
    reset_lines: bool = False,
    directory: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    clock: Clock = time.monotonic,
) -> Trainer:
    """Trains a net on a text of ids, read as one stream or each line alone."""
    rows, bptt = config.batch or DEFAULT_BATCH, config.bptt or DEFAULT_BPTT
    examiner = None
    if valid_ids is not None and len(valid_ids):
        examiner = StreamExaminer(model, valid_ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
    return Trainer(
        model,
        make_batches(ids, config, rows=rows, bptt=bptt, seed=seed, reset_lines=reset_lines),
        examiner,
        config=config,
        seed=seed,
        identity={"batch": rows, "bptt": bptt, "reset_lines": reset_lines, "tokens": len(ids)},
        directory=directory,
        resume=resume,
        budget=budget,
        clock=clock,
    )


def make_batches(
    ids: Array, config: TrainConfig, *, rows: int, bptt: int, seed: int, reset_lines: bool
) -> Streams | Lines:
    """The corpus in the form the run reads it: streams, or lines each alone."""
    if not reset_lines:
        return Streams(ids, rows=rows, bptt=bptt, spread=config.bptt_spread, seed=seed)
    if config.bptt_spread:
        raise UsageError("train.bptt_spread does not apply with --reset-lines: every line is read to its end")
    return Lines(ids, tokens=rows * bptt, seed=seed)


class StreamExaminer:
    """Reads the validation text: quickly in batches on the way, exactly at the end."""

    def __init__(self, model: Net, ids: Array, *, rows: int, bptt: int, reset_lines: bool) -> None:
        self.model = model
        self.ids = ids
        self.batches: Streams | Lines = validation_batches(ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
        self._rehearsal = 4 * rows * bptt
        self._reset_lines = reset_lines
        self._exact_seconds = 0.0  # a token, once it is known

    def look(self, run: Run, *, should_stop: Stop) -> Quick:
        """The weights to keep on all of the text, in batches."""
        with run.average.in_place():
            return validate(self.model, self.batches, should_stop=should_stop)

    def rehearse(self, pace: Pace, *, with_temperature: bool) -> None:
        """Measure on a little of the text how long reading all of it will take."""
        assert pace.budget is not None
        reserve, num_tokens = pace.reserve, len(self.ids)
        per_token = rehearse_validation(self.model, self.batches, pace, max_tokens=self._rehearsal)
        reserve.validation_seconds = per_token * num_tokens
        rounds = TEMPERATURE_ROUNDS * per_token * min(num_tokens, TEMPERATURE_TOKENS)
        if with_temperature and rounds <= TEMPERATURE_SHARE * pace.budget.seconds:
            reserve.temperature_seconds = rounds
        self._exact_seconds = self._rehearse_exactly(pace)
        reserve.exact_seconds = min(self._exact_seconds * num_tokens, EXACT_SHARE * pace.budget.seconds)

    def _rehearse_exactly(self, pace: Pace) -> float:
        """Seconds a token, from as many as can be scored in very little of the budget."""
        assert pace.budget is not None
        began, limit = pace.clock(), REHEARSAL_SHARE * pace.budget.seconds
        tally = self._score(self.ids[:REHEARSED_TOKENS], lambda _: math.inf if pace.clock() - began < limit else 0.0)
        return (pace.clock() - began) / max(tally.tokens, 1)

    def conclude(self, run: Run, pace: Pace, *, should_stop: Stop) -> Conclusion:
        """The temperature, and what `evaluate` says of the text, or of its first part where time is short."""
        notes, temperature = [], None
        if run.config.fit_temperature:
            if not pace.is_late() and (pace.budget is None or pace.reserve.temperature_seconds):
                temperature = self.fit_temperature(run, should_stop=should_stop)
            else:
                notes.append("this budget has no time to fit the temperature of the softmax")
        tally = self.score_exactly(pace, should_stop=should_stop)
        is_whole = tally.tokens == len(self.ids)
        if not is_whole:
            notes.append(
                f"this budget had time to measure {tally.tokens:,} of {len(self.ids):,} tokens of validation text"
            )
        return Conclusion(tally if tally.tokens else None, is_whole, temperature, tuple(notes))

    def fit_temperature(self, run: Run, *, should_stop: Stop) -> float | None:
        """Fit the temperature of the model's softmax, if it has one; looks that are cut off do not count."""

        def look() -> float:
            quick = validate(self.model, self.batches, max_tokens=TEMPERATURE_TOKENS, should_stop=should_stop)
            return math.nan if should_stop() else quick.nats_per_token

        return fit_temperature(run.module, look, rounds=TEMPERATURE_ROUNDS)

    def score_exactly(self, pace: Pace, *, should_stop: Stop) -> Tally:
        """What `evaluate` says, for as long as there is time."""
        began = pace.clock()

        def room(done: int) -> float:
            now = pace.clock()
            per_token = (now - began) / done if done else self._exact_seconds
            left = (pace.scoring_end() - now) / 1.1
            return 0.0 if should_stop() or left <= 0 else left / max(per_token, 1e-12)

        return self._score(self.ids, room)

    def _score(self, ids: Array, room: Callable[[int], float]) -> Tally:
        was_training = self.model.training
        self.model.eval()
        try:
            lm = cast(FreeModel[object], self.model)
            return score_exactly(lm, ids, reset_lines=self._reset_lines, room=room)
        finally:
            self.model.train(was_training)
