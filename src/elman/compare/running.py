"""Trains, measures and tells apart: one model after the other, each written down before the next begins."""

from __future__ import annotations

import io
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman.api import load, mix, resume, train
from elman.compare import measuring, tables
from elman.compare.entries import Entry, looks_at
from elman.compare.measuring import MeasuredText
from elman.compare.request import CACHES, MIN_NET_SECONDS, Request
from elman.compare.sizes import settle
from elman.compare.state import SCORES, write_state
from elman.compare.texts import Parts
from elman.core.arrays import Array
from elman.core.errors import ElmanError, FullDiskError, UsageError
from elman.core.files import holds_run, write_bytes, write_errors
from elman.core.stored import holds_model
from elman.tasks.base import Report, TaskModel
from elman.training.progress import Progress

KEPT_SHARE, KEPT_SECONDS = 0.04, 6.0  # of the budget, and at least: for what is neither training nor measuring
MEASURING_SHARE = 0.01  # of the budget for measuring a net, before one was measured
MIXING = (
    3.0  # times as long as measuring: tuning a mixture scores the validation text by all members, then it is measured
)
UNBOUNDED_SECONDS = 1_800.0  # that a sweep is sized for where there is no budget, as `train` does
BASELINE = "linear_"  # what the keys of a baseline begin with, in what `evaluate` finds


@dataclass
class Runner:
    """A comparison on its way. `state` is what comparison.json holds."""

    request: Request
    parts: Parts
    out: Path
    state: dict[str, Any]
    started: float  # of this process, on the clock of time.monotonic
    report: Report
    on_progress: Callable[[Progress], None]
    spent: float = field(init=False)  # by processes before this one
    measuring_seconds: float = 0.0  # that the slowest model took to be measured
    text: MeasuredText | None = None

    def __post_init__(self) -> None:
        self.spent = float(self.state["seconds"])

    def run(self) -> None:
        """Do what is left to do. However it ends, what is done is written down."""
        try:
            self._settle()
            for entry in self.request.entries:
                row = self._row(entry.name)
                if row is None or row["error"] is not None:
                    self._put(self._try(entry))
                    self._save()
        finally:
            self._save()

    # ---------------------------------------------------------------------------------------------------- the time

    def _left(self) -> float:
        """Seconds of the budget that are left."""
        assert self.request.budget_seconds is not None
        return self.request.budget_seconds - self.spent - (time.monotonic() - self.started)

    def _seconds_for(self, entry: Entry) -> float | None:
        """The share of a net in the time that is left; None without a budget. Counting takes what it needs."""
        if self.request.budget_seconds is None or not self.request.is_trained(entry):
            return None
        rest = [one for one in self.request.entries if self._row(one.name) is None or one == entry]
        shares = [one.share for one in rest if self.request.is_trained(one)]
        each = max(self.measuring_seconds, MEASURING_SHARE * self.request.budget_seconds)
        times = sum(MIXING if one.members else 1.0 for one in rest)
        kept = max(KEPT_SECONDS, KEPT_SHARE * self.request.budget_seconds) + each * times
        left = self._left()
        if left < MIN_NET_SECONDS:
            raise UsageError(
                "nothing is left of the budget",
                code="budget-too-short",
                hint="--overwrite begins again, with a longer --budget",
            )
        return max(0.5 * left, left - kept) * entry.share / sum(shares)

    # ------------------------------------------------------------------------------------------------------- a model

    def _try(self, entry: Entry) -> dict[str, Any]:
        """A row of the table; of a model that failed, why."""
        from elman.training.signals import Stopped

        self.report(f"{entry.name} ...")
        try:
            return self._compare(entry)
        except Stopped as stopped:
            hint = "the same command goes on"
            raise Stopped(f"{entry.name}: {stopped.what}", signum=stopped.signum, hint=hint) from None
        except FullDiskError as error:  # the others could not be written either
            raise FullDiskError(
                f"{entry.name}: {error.what}", hint="free disk space; the same command goes on"
            ) from None
        except ElmanError as error:
            what = error.what
        except Exception as error:  # one model's bug is no reason to lose the others
            what = f"a bug in elman: {type(error).__name__}: {error}"
        self.report(f"{entry.name} failed: {what}")
        return {
            "name": entry.name,
            "model": entry.model,
            "what": entry.what,
            "directory": entry.directory,
            "error": what,
        }

    def _compare(self, entry: Entry) -> dict[str, Any]:
        directory = self.out / entry.directory
        made, command = self._mix(entry, directory) if entry.members else self._train(entry, directory)
        began = time.monotonic()
        info, record = made.info(), made.record
        outcome = record.outcome or {}
        tokens = outcome.get("tokens") or (0 if entry.members or record.source is None else record.source.tokens)
        is_tuned = bool(entry.members) or bool(record.train is not None and record.train.fit_temperature)
        row: dict[str, Any] = {
            "name": entry.name,
            "model": entry.model or (None if entry.members else info.get("model")),
            "what": looks_at(entry, info["settings"]),
            "settings": {key: value for key, value in info["settings"].items() if key not in ("family", "members")},
            "command": command,
            "directory": entry.directory,
            "error": None,
        }
        measured = self._measure(entry, made) if self.request.task.makes_language_models else self._evaluate(made)
        row |= measured | {
            "parameters": info["parameters"],
            "bytes": measuring.size_on_disk(directory),
            "seconds": record.seconds,
            "tokens_per_second": tokens / record.seconds if tokens and record.seconds else None,
            "passes": outcome.get("epochs"),
            "curve": measuring.curve(directory),
            "tuned": is_tuned and self.request.task.makes_language_models,
            "significant_next": None,
        }
        self.measuring_seconds = max(self.measuring_seconds, time.monotonic() - began)
        return row

    def _train(self, entry: Entry, directory: Path) -> tuple[TaskModel[Any], str]:
        """A model that is there already is not trained again; a run that was stopped goes on."""
        settings = {**self.state["sizes"].get(entry.name, {}), **self.request.settings_of(entry)}
        if self.request.sweep is not None and self.request.sweep.equal is not None:
            settings["model.hidden"] = self.state["sizes"][entry.name]["model.hidden"]
        made: TaskModel[Any]
        if holds_run(directory):
            made = resume(directory, threads=self.request.threads, on_progress=self.on_progress, progress=False)
        elif holds_model(directory):
            made = load(directory)
        else:
            seconds = self._seconds_for(entry)
            command = self._train_command(entry, directory, settings, seconds)
            made = train(
                self.request.task.name,
                list(self.parts.train),
                valid=self.parts.valid,
                model=entry.model,
                settings=settings,
                budget=seconds,
                out=directory,
                seed=self.request.seed,
                threads=self.request.threads,
                command=command,
                on_progress=self.on_progress,
                progress=False,
            )
        return made, str(made.record.command)

    def _train_command(self, entry: Entry, directory: Path, settings: Mapping[str, Any], seconds: float | None) -> str:
        words = ["elman", "train", self.request.task.name, *self.parts.train]
        words += ["--valid", self.parts.valid] if self.parts.valid else []
        words += ["--model", entry.model] if entry.model else []
        words += ["--budget", f"{seconds:.0f}s"] if seconds is not None else []
        for key, value in settings.items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        return shlex.join([*words, "--seed", str(self.request.seed), "--out", str(directory)])

    def _mix(self, entry: Entry, directory: Path) -> tuple[TaskModel[Any], str]:
        """A mixture, tuned on the validation text."""
        parts: list[str] = []
        for member in entry.members:
            row = self._row(member)
            if row is not None and row["error"] is not None:
                raise ElmanError(f"its member {member} failed", code="part-failed")
            parts.append(member if row is None else str(self.out / row["directory"]))
        assert self.parts.valid is not None
        words = ["elman", "mix", *parts, "--valid", self.parts.valid, "--seed", str(self.request.seed)]
        command = shlex.join([*words, "--out", str(directory)])
        if holds_model(directory):
            return load(directory), command
        made = mix(parts, valid=self.parts.valid, out=directory, seed=self.request.seed, command=command)
        return made, command

    # ------------------------------------------------------------------------------------------------- its numbers

    def _measure(self, entry: Entry, made: TaskModel[Any]) -> dict[str, Any]:
        """A language model on the text that all are measured on."""
        model = made.language_model()
        text = self._text(model)
        text.check(model, entry.name)
        numbers, nats_N = measuring.measure(model, text, seed=self.request.seed)
        place = self.out / SCORES / f"{entry.directory}.npy"
        with write_errors(place):
            place.parent.mkdir(exist_ok=True)
        content = io.BytesIO()
        np.save(content, nats_N, allow_pickle=False)
        write_bytes(place, content.getvalue())
        if entry.members:
            self._replace(
                "mixtures", "name", {"name": entry.name, "weights": _weights(entry, model.tensors()["weights"])}
            )
        else:
            assert self.parts.valid is not None
            layers = measuring.gradients(model, self.parts.valid)
            if layers is not None:
                self._replace("gradients", "model", {"model": entry.name, "layers": layers})
        return {
            **{key: value for key, value in numbers.items() if key not in ("signature", "tokens", "lines")},
            "sample": measuring.draw_sample(model, seed=self.request.seed),
        }

    def _text(self, model: Any) -> MeasuredText:
        """The text that all models are measured on, read when the first of them is there."""
        if self.text is None:
            assert self.parts.test is not None
            self.text = MeasuredText(self.parts.test, self.parts.train, model)
            record = model.record
            self.state |= {
                "units": model.tokenizer.units,
                "vocab_size": record.vocab_size,
                "signature": model.signature(reset_lines=record.data.reset_lines),
            }
            self.state["data"] |= {
                "train_tokens": record.source.tokens if record.source else None,
                "test_tokens": len(self.text.ids),
                "lines": self.text.corpus.num_lines,
            }
        return self.text

    def _evaluate(self, made: TaskModel[Any]) -> dict[str, Any]:
        """A model of another task: the numbers of `evaluate`."""
        return measuring.evaluate_rows(made, self.parts.measured, seed=self.request.seed)

    # ------------------------------------------------------------------------------------------------ what is known

    def _settle(self) -> None:
        """Sizes of a sweep, chosen once."""
        sweep, entries = self.request.sweep, self.request.entries
        if sweep is None or self.state["sizes"] or not self.request.is_trained(entries[0]):
            return
        seconds = self._seconds_for(entries[0]) or UNBOUNDED_SECONDS
        self.state["sizes"] = settle(self.request, self.parts, seconds=0.9 * seconds)
        self._save()

    def _row(self, name: str) -> dict[str, Any] | None:
        rows: list[dict[str, Any]] = self.state["models"]
        return next((row for row in rows if row["name"] == name), None)

    def _put(self, row: dict[str, Any]) -> None:
        """A row in its place: the models are in the order they were asked for."""
        self._replace("models", "name", row)
        order = [entry.name for entry in self.request.entries]
        self.state["models"].sort(key=lambda one: order.index(one["name"]) if one["name"] in order else -1)

    def _replace(self, table: str, key: str, row: dict[str, Any]) -> None:
        self.state[table] = [one for one in self.state[table] if one[key] != row[key]] + [row]

    def _save(self) -> None:
        """Write down all that is known."""
        done = [row for row in self.state["models"] if row["error"] is None]
        self.state["failed"] = [
            {"name": row["name"], "error": row["error"]} for row in self.state["models"] if row["error"] is not None
        ]
        if self.request.task.makes_language_models and done:
            self._tell_apart(done)
        elif done:
            self._add_baseline(done)
        if self.request.sweep is not None:
            self.state["sweep"] = self._points(self.request.sweep.setting, self.request.sweep.equal)
        self.state["seconds"] = round(self.spent + time.monotonic() - self.started, 1)
        write_state(self.out, self.state)

    def _tell_apart(self, done: Sequence[dict[str, Any]]) -> None:
        """Everything that needs the nats of several models."""
        text = self.text or self._text(load(self.out / done[0]["directory"]).language_model())
        nats = self._nats(done)
        found = tables.differences(nats, text.ids, seed=self.request.seed)
        lines = tables.telling_lines(nats, text.ids)
        texts = text.texts([line for line, _ in lines])
        self.state |= {
            "differences": found,
            "by_frequency": tables.by_frequency(nats, text.ids, text.counts),
            "by_position": tables.by_position(nats, text.ids),
            "lines": [{"text": texts[line], **row} for line, row in lines],
        }
        is_sure = {(one["a"], one["b"]): one["significant"] for one in found}
        for row, after in zip(done, [*done[1:], None], strict=True):
            row["significant_next"] = None if after is None else is_sure.get((row["name"], after["name"]))

    def _nats(self, done: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
        """Of every model, the nats of the tokens; without those for which some are impossible."""
        columns = {row["name"]: np.load(self.out / SCORES / f"{row['directory']}.npy", mmap_mode="r") for row in done}
        return {name: column for name, column in columns.items() if np.isfinite(column).all()}

    def _add_baseline(self, done: Sequence[Mapping[str, Any]]) -> None:
        """The linear model beside the nets, as a row of its own."""
        own = next(({k: v for k, v in row.items() if k.startswith(BASELINE)} for row in done), {})
        if own:
            numbers = {key.removeprefix(BASELINE): value for key, value in own.items()}
            about = {"name": "linear", "model": "linear", "what": "words and pairs of words", "settings": {}}
            place = {"command": done[0]["command"], "directory": done[0]["directory"], "error": None}
            self._put({**about, **place, **numbers, "curve": [], "tuned": False, "significant_next": None})

    def _points(self, setting: str, equal: str | None) -> dict[str, Any]:
        points = []
        for entry in self.request.entries:
            row = self._row(entry.name)
            if row is not None and row["error"] is None:
                value = _number(entry.settings[setting])
                numbers = {"parameters": row["parameters"], "perplexity": row.get("perplexity")}
                points.append({"value": value, "name": entry.name, **numbers})
        return {"setting": setting, "equal": equal, "points": points}


def _weights(entry: Entry, weights: Array) -> dict[str, float]:
    """The weight of each member, the mean over buckets; caches that are tuned stand behind the models."""
    tuned = [*(one for one in entry.members if one == "cache"), *(one for one in entry.members if _is_neural(one))]
    names = [*(one for one in entry.members if one not in tuned), *tuned]
    return dict(zip(names, weights.reshape(-1, len(names)).mean(axis=0).tolist(), strict=True))


def _is_neural(member: str) -> bool:
    return member.partition(":")[0] == CACHES[1]


def _number(value: Any) -> Any:
    """A value of a sweep as a number, if it is one."""
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() and "." not in str(value) else number
