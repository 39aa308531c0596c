"""The training loop. Yields progress and prints nothing; files and signals are the keeper's, the clock is handed in."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from elman.nets.memory import kept_memory
from elman.training import guard, schedule
from elman.training.budget import Budget, Clock, format_duration, training_end
from elman.training.config import TrainConfig
from elman.training.decision import Decision, decide, require_an_end, should_interrupt
from elman.training.examiner import Examiner
from elman.training.keeper import Keeper
from elman.training.pace import Pace
from elman.training.progress import Outcome, Progress, Wording, perplexity
from elman.training.protocols import Batches, Net
from elman.training.run import Run, Snapshot, take_snapshot
from elman.training.run_state import BadStep, RunState, StepResult
from elman.training.speed import measure_peak
from elman.training.validation import Validation
from elman.training.world import ALONE, World

# Steps between two snapshots in memory, to which a run is rolled back after a bad step.
SNAPSHOT_STEPS = 100
# Share of the machine's peak that a step is assumed to reach before the first one was timed.
ASSUMED_EFFICIENCY = 0.5


class Trainer:
    """Trains a net on batches: `for progress in trainer.run(): ...`, then `trainer.outcome`.

    With a directory it writes checkpoints and its journal there (the caller holds its lock), and with `resume` it goes
    on from the newest checkpoint, if there is one. When the run is over, the model holds the best weights.
    identity: settings besides `config` and `seed` that cannot change between a stop and resuming.
    frozen: parameters that hold still for the first part of the run, `train.freeze`; without an end, for a pass.
    finishing_seconds: kept of the budget for what comes after the run.
    world: the processes that train together. Each makes every step; the first decides, validates, writes and reports.
    """

    def __init__(
        self,
        model: Net,
        batches: Batches,
        examiner: Examiner | None = None,
        *,
        config: TrainConfig,
        seed: int,
        identity: Mapping[str, Any],
        directory: Path | None = None,
        resume: bool = False,
        budget: Budget | None = None,
        finishing_seconds: float = 0.0,
        wording: Wording = Wording(),  # noqa: B008 - a frozen record
        frozen: Collection[str] = (),
        clock: Clock = time.monotonic,
        world: World = ALONE,
    ) -> None:
        if world.size > 1:
            world.require_rows(batches.max_rows)
        has_end = budget is not None or config.epochs is not None or config.steps is not None
        self.config = schedule.choose(config, has_end=has_end)
        self.model = model
        self.outcome: Outcome | None = None
        self._wording = wording
        self._world = world
        self._batches = batches
        self._examiner = examiner
        self._run = Run(model, batches, config=self.config, seed=seed, world=world)
        self._frozen = frozen if config.freeze else ()
        self._keeper = Keeper(directory, config=self.config, identity=identity, seed=seed, world=world)
        self._notes = [*batches.notes, *self._keeper.restore(self._run, resume=resume)]
        self._pace = Pace(
            self.config,
            batches,
            budget=budget,
            clock=clock,
            spent=self.state.seconds,
            finishing_seconds=finishing_seconds,
        )
        self._peak_rate = schedule.peak_rate(config)
        self._peak_flops = math.inf
        self._snapshot: Snapshot | None = None
        self._last = StepResult(math.nan, 0, math.nan, math.nan)
        require_an_end(has_end=has_end, has_validation=examiner is not None)

    @property
    def state(self) -> RunState:
        """The numbers of the run so far."""
        return self._run.state

    @property
    def deadline(self) -> float:
        """When the model has to be saved, on the clock; time that was spent in earlier processes counts."""
        return math.inf if self._pace.budget is None else self._pace.budget.deadline

    def spare_seconds(self) -> float | None:
        """What a budget leaves after saving the model; None where there is no budget."""
        return self._pace.spare_seconds()

    # ------------------------------------------------------------------------------------------------------- the loop

    def run(self) -> Iterator[Progress]:
        """Train to the end. Raises Stopped when a signal asked for it, after a last save."""
        if self.state.is_finished:
            self._load_outcome()
            return
        self.model.train()
        with self._keeper.open(self.state), kept_memory():
            self._prepare()
            yield self._progress()
            while not (decision := self._decide()).is_over:
                try:
                    match decision.action:
                        case "step":
                            self._step(decision.fraction)
                        case "validate":
                            self._validate()
                        case "roll back":
                            self._roll_back(decision.reason)
                except BadStep as bad:
                    self._roll_back(str(bad))
                yield self._progress()
            if decision.action == "stop":
                self._save()
                raise self._keeper.stopped(self.state, decision)
            self._finish(decision.reason)
            yield self._progress()

    def _decide(self) -> Decision:
        """What to do next: the first process decides for all, and a signal to any of them is one to all."""
        signum = self._world.highest(self._keeper.signum or 0) or None
        if not self.state.is_alike:
            signum = None  # a few steps later all weights are alike, and can be saved
        mine = None
        if self._world.is_first:
            bad_weight = self._run.describe_bad_weight
            mine = decide(self.state, pace=self._pace, signum=signum, describe_bad_weight=bad_weight)
        return self._world.shared(mine, Decision)

    def _prepare(self) -> None:
        """Measure the machine and take the first snapshot; under a budget, reserve time for the end of the run."""
        self._peak_flops = self._world.size * measure_peak(dtype=getattr(torch, self.config.precision))
        step_tokens = min(self._batches.tokens_per_step, self._batches.tokens_per_epoch)
        step_flops = 6.0 * self.model.count_flops() * step_tokens
        self._pace.step_estimate = step_flops / (ASSUMED_EFFICIENCY * self._peak_flops)
        try:
            self._snapshot = take_snapshot(self._run)
        except BadStep as bad:
            raise guard.TrainingError(f"{bad}", hint="the model is damaged before training begins") from None
        if self._pace.budget is not None:
            self._prepare_budget(self._pace.budget)

    def _prepare_budget(self, budget: Budget) -> None:
        """Measure how long saving and validating take; a new run whose budget is too short for that is refused."""
        pace, is_new = self._pace, self.state.step == 0
        examiner, world = self._examiner, self._world
        if is_new:
            world.lead(pace.refuse_short_budget)
            self._save()  # also measures how long that takes
        if examiner is not None:
            world.lead(lambda: examiner.reserve_time(pace, with_temperature=self.config.fit_temperature))
        if is_new:
            world.lead(pace.refuse_short_budget)
            left = training_end(budget, pace.reserve) - pace.clock()
            self._notes.append(
                f"of {format_duration(budget.seconds)}, {format_duration(pace.spent())} went to get ready, "
                f"{format_duration(left)} are for training, the rest to measure and to save"
            )

    def _step(self, fraction: float) -> None:
        """Make one step; then log it, take a snapshot and save where these are due. fraction: of the run that is done."""
        state, pace = self.state, self._pace
        began = pace.clock()
        if state.began_seconds is None:
            state.began_seconds = pace.spent()
        epoch_before = state.position.epoch
        rate = schedule.rate(self.config, fraction, peak=self._peak_rate, step=state.step)
        is_early = fraction < self.config.freeze if pace.has_end else state.position.epoch < 1
        self._last = self._run.step(rate, fraction, frozen=self._frozen if is_early else ())
        pace.meter.add(self._last.tokens, pace.clock() - began, self._last.nats)
        if state.step % self.config.log_steps == 0:
            self._log_step()
        if self._examiner is not None and pace.is_validation_due(state, epoch_before=epoch_before):
            state.is_validation_due = True
        if state.step % SNAPSHOT_STEPS == 0:
            self._snapshot = take_snapshot(self._run)
        is_save_due = self._keeper.directory is not None and self._world.is_first and pace.is_save_due(state)
        if self._world.highest(is_save_due) and state.is_alike:
            self._save()

    def _validate(self) -> None:
        """Read the validation data. A validation interrupted by a signal is done again when the run is resumed."""
        examiner, began = self._examiner, self._pace.clock()
        assert examiner is not None
        self._run.synchronise()
        found = self._world.lead(lambda: examiner.validate(self._run, should_stop=self._should_interrupt))
        validation = self._world.shared(found, Validation)
        if not validation.is_whole:
            return
        self._pace.record_validation(began)
        self._run.record_validation(validation)
        nats = validation.nats_per_token
        error = {} if validation.error is None else {"valid_error": validation.error}
        self._write_metrics(valid_nats_per_token=nats, valid_perplexity=perplexity(nats), **error)

    def _should_interrupt(self) -> bool:
        return should_interrupt(self._pace, signum=self._keeper.signum)

    def _roll_back(self, reason: str) -> None:
        """Go back to the last snapshot with half the learning rate; after several times in short order, give up."""
        assert self._snapshot is not None
        failures, factor, failed_step = self.state.failures + 1, self.state.rate_factor, self.state.step
        if failures > guard.MAX_FAILURES:
            raise guard.TrainingError(
                f"training diverges: {reason} ({guard.MAX_FAILURES} times before, each with half the rate of the last)",
                hint="lower train.learning_rate or train.clip, or look at the data there",
            )
        self._run.restore(self._snapshot.state, self._snapshot.tensors)
        state = self.state
        state.failures, state.failed_step = failures, failed_step
        state.rate_factor = factor * guard.RATE_FACTOR
        rate = self._peak_rate * state.rate_factor
        note = f"{reason}; back to step {state.step}, with the rate halved to {rate:.3g}"
        self._notes.append(note)
        self._keeper.cut_metrics(state)
        self._write_metrics(guard=note)
        # The next roll back restores this very state, so that metrics.jsonl keeps the line just written.
        self._snapshot = dataclasses.replace(self._snapshot, state=dataclasses.replace(state))

    # ------------------------------------------------------------------------------------------------- end of the run

    def _finish(self, reason: str) -> None:
        """Validate the last weights, load the best ones into the model, evaluate these and save."""
        state, pace, examiner = self.state, self._pace, self._examiner
        self._run.synchronise()
        is_chosen = pace.validates or bool(self._run.best)
        is_due = examiner is not None and is_chosen and state.validated_step < state.step
        if self._world.highest(is_due and self._world.is_first):
            self._validate_last_weights()
        self._save()  # a stop from here on loses nothing: only the rest of this function is done again
        self._raise_if_stopped()
        if self._run.best and state.best_step < state.step:
            self._notes.append(f"the weights of step {state.best_step} did best on the validation text and are kept")
        self._run.load_best_weights()
        self.model.eval()
        outcome = Outcome(state.step, state.tokens, pace.epochs(state), pace.spent(), reason)
        if examiner is not None:
            outcome = self._world.lead(lambda: self._evaluate(examiner, outcome)) or outcome
        self._raise_if_stopped()
        self.outcome = dataclasses.replace(outcome, seconds=pace.spent())
        state.is_finished, state.outcome = True, dataclasses.asdict(self.outcome)
        self._save()

    def _validate_last_weights(self) -> None:
        """Without time for it the last weights are kept: the learning rate was lowest there."""
        try:
            self._validate()
        except BadStep as bad:
            if not self._run.best:
                raise guard.TrainingError(f"{bad}", hint="lower train.learning_rate") from None
            self._notes.append(f"{bad}")
            return
        if self.state.validated_step < self.state.step and self._pace.is_late():
            self._notes.append("this budget had no time to validate the last weights, which are kept")
            self._run.best = {}

    def _evaluate(self, examiner: Examiner, outcome: Outcome) -> Outcome:
        """Add what the examiner says of the final weights."""
        final = examiner.evaluate_final_weights(self._run, self._pace, should_stop=self._should_interrupt)
        self._notes += final.notes
        if final.tally is not None and final.tally.nats_per_token is not None:
            nats = final.tally.nats_per_token
            self._write_metrics(final_nats_per_token=nats, final_perplexity=perplexity(nats))
        return dataclasses.replace(outcome, tally=final.tally, is_whole=final.is_whole, temperature=final.temperature)

    def _raise_if_stopped(self) -> None:
        decision = self._decide()
        if decision.action == "stop":
            raise self._keeper.stopped(self.state, decision)

    def _load_outcome(self) -> None:
        """The outcome of a run that had finished before; the model holds its weights already."""
        self.model.eval()
        self.outcome = TypeAdapter(Outcome).validate_python(self.state.outcome)

    # ------------------------------------------------------------------------------------------- saving and reporting

    def _save(self) -> None:
        if self._keeper.directory is None:
            return
        began = self._pace.clock()
        self._keeper.save(self._run, seconds=self._pace.spent())
        self._pace.record_save(began)

    def _log_step(self) -> None:
        """Write the mean loss since the last line to metrics.jsonl."""
        state = self.state
        nats = state.logged_nats / max(state.logged_tokens, 1)
        likelihood = {"perplexity": perplexity(nats)} if self._last.is_likelihood else {}
        sent = (
            {"sent_bytes": self._world.sent_bytes} if self._world.size > 1 else {}
        )  # since the processes were started
        self._write_metrics(
            nats_per_token=nats,
            **likelihood,
            learning_rate=self._last.learning_rate,
            gradient_norm=self._last.gradient_norm,
            tokens_per_second=round(self._pace.meter.tokens_per_second, 1),
            **sent,
        )
        state.logged_nats, state.logged_tokens = 0.0, 0

    def _write_metrics(self, **values: float | str) -> None:
        self._keeper.write_metrics(self.state, epoch=self._pace.epochs(self.state), **values)

    def _progress(self) -> Progress:
        state, pace = self.state, self._pace
        notes, self._notes = tuple(self._notes), []
        speed = pace.meter.tokens_per_second
        flops = 6.0 * self.model.count_flops() * speed
        self._peak_flops = max(self._peak_flops, flops)  # what is reached is possible: the machine was busy before
        return Progress(
            step=state.step,
            epoch=pace.epochs(state),
            tokens=state.tokens,
            fraction=pace.fraction(state) if pace.has_end else None,
            nats_per_token=pace.meter.nats_per_token,
            is_likelihood=self._last.is_likelihood,
            learning_rate=self._last.learning_rate,
            gradient_norm=self._last.gradient_norm,
            tokens_per_second=speed,
            fraction_of_peak=flops / self._peak_flops,
            elapsed_seconds=pace.spent(),
            eta_seconds=pace.eta(state),
            valid_nats_per_token=state.valid_nats,
            valid_error=state.valid_error,
            validated_step=state.validated_step or None,
            notes=notes,
            wording=self._wording,
        )
