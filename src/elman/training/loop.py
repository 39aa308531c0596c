"""The one loop in which nets descend. Yields what happens; prints nothing; the clock is handed in."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from elman.nets.memory import kept_memory
from elman.training import guard, schedule
from elman.training.budget import Budget, Clock, format_duration, training_end
from elman.training.checkpoint import newest_checkpoint, remove_checkpoints, sweep_checkpoints, write_checkpoint
from elman.training.config import TrainConfig
from elman.training.examiner import Examiner, need_an_end, refuse_if_too_short
from elman.training.identity import changes, describe
from elman.training.journal import Journal
from elman.training.pace import Pace
from elman.training.progress import Outcome, Progress, perplexity
from elman.training.protocols import Batches, Net
from elman.training.signals import Signals, Stopped
from elman.training.speed import measure_peak
from elman.training.steps import (
    Run,
    RunState,
    Snapshot,
    Step,
    Trouble,
    state_from_json,
    state_to_json,
    take_snapshot,
    to_tensors,
)

SNAPSHOT_STEPS = 100


class Trainer:
    """Trains a net on batches: `for progress in trainer.run(): ...`, then `trainer.outcome`.

    With a directory it keeps checkpoints and metrics.jsonl there (the caller holds its lock), and with `resume` it goes
    on from the newest checkpoint, if there is one. When the run is over, the model holds the weights to keep.
    identity: what else cannot change between a stop and going on, for the checkpoint.
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
        clock: Clock = time.monotonic,
    ) -> None:
        has_end = budget is not None or config.epochs is not None or config.steps is not None
        self.config = schedule.choose(config, has_end=has_end)
        self.model = model
        self.outcome: Outcome | None = None
        self._directory = directory
        self._batches = batches
        self._step_tokens = min(batches.tokens_per_step, batches.tokens_per_epoch)
        self._examiner = examiner
        self._settings = describe(self.config, identity, seed=seed)
        self._run = Run(model, self._batches, config=self.config, seed=seed)
        self._signals = Signals()
        self._journal: Journal | None = None
        self._snapshot: Snapshot | None = None
        self._peak_rate = schedule.peak_rate(config)
        self._peak_flops = math.inf
        self._notes: list[str] = [*self._batches.notes]
        self._last = Step(math.nan, 0, math.nan, math.nan)

        found = self._find_checkpoint(resume)
        self._pace = Pace(
            self.config, self._batches, budget=budget, clock=clock, spent=self.state.seconds if found else 0.0
        )
        need_an_end(self._pace, self._examiner)

    @property
    def state(self) -> RunState:
        """Where the run is."""
        return self._run.state

    # ------------------------------------------------------------------------------------------------------- the loop

    def run(self) -> Iterator[Progress]:
        """Train to the end. Raises Stopped when a signal asked for it, after a last save."""
        if self.state.is_finished:
            self._load_outcome()
            return
        self.model.train()
        with ExitStack() as stack:
            stack.enter_context(self._signals)
            stack.enter_context(kept_memory())
            if self._directory is not None:
                self._journal = stack.enter_context(closing(self._open_journal(self._directory)))
            self._prepare()
            yield self._progress()
            while (why := self._why_over()) is None:
                self._obey_signal()
                try:
                    self._validate_or_step()
                except Trouble as trouble:
                    self._roll_back(trouble)
                yield self._progress()
            self._obey_signal()
            self._finish(why)
            yield self._progress()

    def _why_over(self) -> str | None:
        if self._pace.why_over(self.state) is not None:
            self._mend()  # and perhaps go on
        return self._pace.why_over(self.state)

    def _mend(self) -> None:
        """Go back if the last step has spoilt a weight, which only the next one would notice."""
        bad = self._run.bad_tensor()
        if bad is not None:
            self._roll_back(Trouble(f"step {self.state.step}: the weight {bad} is not finite"))

    def _validate_or_step(self) -> None:
        if self.state.is_validation_due:
            self._validate()
            return
        state, pace = self.state, self._pace
        began = pace.clock()
        if state.began_seconds is None:
            state.began_seconds = pace.spent()
        fraction, epoch_before = pace.fraction(state), state.position.epoch
        rate = schedule.rate(self.config, fraction, peak=self._peak_rate, step=state.step)
        self._last = self._run.step(rate, fraction)
        pace.meter.add(self._last.tokens, pace.clock() - began, self._last.nats)
        if state.step % self.config.log_steps == 0:
            self._log()
        if self._examiner is not None and pace.is_validation_due(state, epoch_before=epoch_before):
            state.is_validation_due = True
        if state.step % SNAPSHOT_STEPS == 0:
            self._snapshot = take_snapshot(self._run)
        if self._directory is not None and pace.is_save_due(state):
            self._save()

    def _validate(self) -> None:
        """Look at the validation text; cut off by a signal, it is still due when the run goes on."""
        assert self._examiner is not None
        began = self._pace.clock()
        quick = self._examiner.look(self._run, should_stop=self._should_stop)
        if not quick.is_whole:
            return
        self._pace.note_validation(began)
        self._run.note_validation(quick)
        found = {"valid_nats_per_token": quick.nats_per_token, "valid_perplexity": perplexity(quick.nats_per_token)}
        self._write(**found, **({} if quick.error is None else {"valid_error": quick.error}))

    def _should_stop(self) -> bool:
        """Whether to leave the validation text: a signal came, or only the time to save is left."""
        return self._signals.caught is not None or self._pace.is_late()

    def _roll_back(self, trouble: Trouble) -> None:
        """Back to the last snapshot, with half the rate; after a few times in short order, give up."""
        assert self._snapshot is not None
        failures, factor, failed_step = self.state.failures + 1, self.state.rate_factor, self.state.step
        if failures > guard.MAX_FAILURES:
            raise guard.TrainingError(
                f"training diverges: {trouble} ({guard.MAX_FAILURES} times before, each with half the rate of the last)",
                hint="lower train.learning_rate or train.clip, or look at the data there",
            )
        self._run.restore(self._snapshot.state, self._snapshot.tensors)
        state = self.state
        state.failures, state.failed_step = failures, failed_step
        state.rate_factor = factor * guard.RATE_FACTOR
        note = (
            f"{trouble}; back to step {state.step}, with the rate halved to {self._peak_rate * state.rate_factor:.3g}"
        )
        self._notes.append(note)
        if self._journal is not None:
            self._journal.cut(state.journal_bytes)
        self._write(guard=note)
        # The next time it comes back to this very state, and the journal keeps what was written about it.
        self._snapshot = dataclasses.replace(self._snapshot, state=dataclasses.replace(state))

    # ------------------------------------------------------------------------------------------------------- beginning

    def _find_checkpoint(self, resume: bool) -> bool:
        """Go on from the newest checkpoint if asked to and there is one; else remove what is left of other runs."""
        if self._directory is None:
            return False
        sweep_checkpoints(self._directory)
        if not resume:
            remove_checkpoints(self._directory)
            return False
        found = newest_checkpoint(self._directory)
        if found is None:
            self._notes.append("there is no checkpoint yet: starting from the beginning")
            return False
        self._notes += [*found.notes, *changes(found, self._settings)]
        self._run.restore(state_from_json(found.state), to_tensors(found.tensors))
        self._notes.append(f"going on after step {self.state.step}")
        return True

    def _open_journal(self, directory: Path) -> Journal:
        return Journal(
            directory,
            position=self.state.journal_bytes,
            step=self.state.step,
            tensorboard=self.config.tensorboard,
        )

    def _prepare(self) -> None:
        """Measure the machine and, under a budget, what the end will take; refuse a budget that is too short."""
        pace = self._pace
        self._peak_flops = measure_peak()
        pace.step_estimate = 6.0 * self.model.count_flops() * self._step_tokens / (0.5 * self._peak_flops)
        try:
            self._snapshot = take_snapshot(self._run)
        except Trouble as trouble:
            raise guard.TrainingError(f"{trouble}", hint="the model is damaged before training begins") from None
        is_new = self.state.step == 0
        if pace.budget is None:
            return
        if is_new:
            refuse_if_too_short(pace)
            self._save()  # also tells how long that takes
        if self._examiner is not None:
            self._examiner.rehearse(pace, with_temperature=self.config.fit_temperature)
        if is_new:
            refuse_if_too_short(pace)
            left = training_end(pace.budget, pace.reserve) - pace.clock()
            self._notes.append(
                f"of {format_duration(pace.budget.seconds)}, {format_duration(pace.spent())} went to get ready, "
                f"{format_duration(left)} are for training, the rest to measure and to save"
            )

    # ---------------------------------------------------------------------------------------------------------- ending

    def _finish(self, why: str) -> None:
        """The weights to keep, their temperature, the number to report, and the last checkpoint."""
        state, pace = self.state, self._pace
        if self._examiner is not None and state.validated_step < state.step:
            try:
                self._validate()
            except Trouble as trouble:
                if not self._run.best:
                    raise guard.TrainingError(f"{trouble}", hint="lower train.learning_rate") from None
                self._notes.append(f"{trouble}")
            else:
                self._forgo_validation()
            self._obey_signal()
        self._save()  # a stop from here on loses nothing: only the end is done again
        if self._run.best and state.best_step < state.step:
            self._notes.append(f"the weights of step {state.best_step} did best on the validation text and are kept")
        self._run.settle()
        self.model.eval()
        self.outcome = Outcome(state.step, state.tokens, pace.epochs(state), pace.spent(), why)
        if self._examiner is not None:
            self.outcome = self._measure(self._examiner, self.outcome)
        self._obey_signal(is_saved=True)
        self.outcome = dataclasses.replace(self.outcome, seconds=pace.spent())
        state.is_finished, state.outcome = True, dataclasses.asdict(self.outcome)
        self._save()

    def _forgo_validation(self) -> None:
        """Where the time was too short for a look at the last weights, they are kept unseen: the rate was lowest."""
        if self.state.validated_step < self.state.step and self._pace.is_late():
            self._notes.append("this budget had no time to validate the last weights, which are kept")
            self._run.best = {}

    def _measure(self, examiner: Examiner, outcome: Outcome) -> Outcome:
        found = examiner.conclude(self._run, self._pace, should_stop=self._should_stop)
        self._notes += found.notes
        if found.tally is not None and found.tally.nats_per_token is not None:
            nats = found.tally.nats_per_token
            self._write(final_nats_per_token=nats, final_perplexity=perplexity(nats))
        return dataclasses.replace(outcome, tally=found.tally, is_whole=found.is_whole, temperature=found.temperature)

    def _load_outcome(self) -> None:
        """For a run that had finished already."""
        self.model.eval()
        self.outcome = TypeAdapter(Outcome).validate_python(self.state.outcome)

    def _obey_signal(self, *, is_saved: bool = False) -> None:
        if self._signals.caught is None:
            return
        if not is_saved:
            self._mend()
            self._save()
        saved = "saved" if self._directory is not None else "nothing is saved"
        raise Stopped(
            f"stopped by {self._signals.name} after step {self.state.step}, {saved}",
            signum=self._signals.caught,
            hint=f"elman resume {self._directory} goes on from there" if self._directory is not None else None,
        )

    # --------------------------------------------------------------------------------------------------------- telling

    def spare_seconds(self) -> float | None:
        """What a budget leaves besides saving the model; None where there is no budget."""
        return self._pace.spare_seconds()

    def _save(self) -> None:
        if self._directory is None:
            return
        bad = self._run.bad_tensor()
        if bad is not None:
            raise Trouble(f"step {self.state.step}: the weight {bad} is not finite")
        began = self._pace.clock()
        state = self.state
        state.seconds = self._pace.spent()
        if self._journal is not None:
            state.journal_bytes = self._journal.sync()
        record = {**state_to_json(state), "settings": self._settings}
        write_checkpoint(self._directory, state.step, record, self._run.arrays())
        self._pace.note_save(began)

    def _log(self) -> None:
        state = self.state
        nats = state.logged_nats / max(state.logged_tokens, 1)
        self._write(
            nats_per_token=nats,
            perplexity=perplexity(nats),
            learning_rate=self._last.learning_rate,
            gradient_norm=self._last.gradient_norm,
            tokens_per_second=round(self._pace.meter.tokens_per_second, 1),
        )
        state.logged_nats, state.logged_tokens = 0.0, 0

    def _write(self, **values: float | str) -> None:
        """A line of the journal, with what every line has."""
        state = self.state
        epoch = round(self._pace.epochs(state), 4)
        if self._journal is not None:
            self._journal.write(state.step, {"epoch": epoch, "tokens": state.tokens, **values})
            state.journal_bytes = self._journal.position

    def _progress(self) -> Progress:
        state, pace = self.state, self._pace
        notes, self._notes = tuple(self._notes), []
        speed = pace.meter.tokens_per_second
        return Progress(
            step=state.step,
            epoch=pace.epochs(state),
            tokens=state.tokens,
            fraction=pace.fraction(state) if pace.has_end else None,
            nats_per_token=pace.meter.nats_per_token,
            learning_rate=self._last.learning_rate,
            gradient_norm=self._last.gradient_norm,
            tokens_per_second=speed,
            fraction_of_peak=6.0 * self.model.count_flops() * speed / self._peak_flops,
            elapsed_seconds=pace.spent(),
            eta_seconds=pace.eta(state),
            valid_nats_per_token=state.valid_nats,
            valid_error=state.valid_error,
            validated_step=state.validated_step or None,
            notes=notes,
        )
