"""What is to be compared, as it was asked for: models, a sweep, settings. Refuses what cannot apply before anything is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elman.compare.entries import ENTRIES, USUAL, Entry
from elman.core.errors import UsageError, nearest, no_such
from elman.core.settings import SECTIONS, Config, make, merge_settings
from elman.tasks.base import NetTask, TrainRequest
from elman.tasks.catalogue import find_task
from elman.training.budget import format_duration
from elman.training.config import TrainConfig

CACHES = ("cache", "neural-cache")
EQUAL = "parameters"
DEFAULT_BUDGET = "10m"
MIN_NET_SECONDS = 3.0  # in less a net learns nothing


@dataclass(frozen=True)
class Sweep:
    """One setting, and the values it takes."""

    setting: str  # model.layers
    values: tuple[str, ...]
    equal: str | None = None  # what is about the same for all of them

    @classmethod
    def parse(cls, texts: Sequence[str], equal: str | None) -> Sweep | None:
        """From `model.layers=1,2,3`."""
        if equal is not None and equal != EQUAL:
            raise no_such("way to be equal", equal, [EQUAL])
        if not texts:
            if equal is not None:
                raise UsageError(
                    "--equal is for a sweep",
                    code="does-not-apply",
                    hint="--sweep model.layers=1,2,3 --equal parameters",
                )
            return None
        if len(texts) > 1:
            raise UsageError(
                "only one setting can be swept at a time",
                code="options-conflict",
                hint="--set gives others a fixed value",
            )
        setting, equals, listed = texts[0].partition("=")
        values = tuple(value.strip() for value in listed.split(",") if value.strip())
        if not equals or setting.partition(".")[0] not in SECTIONS or len(values) < 2:
            what = f"--sweep {texts[0]} is not of the form section.key=value,value"
            raise UsageError(what, code="bad-value", hint="for example model.window=2,5,10")
        if len(set(values)) < len(values):
            raise UsageError(f"--sweep {texts[0]} has a value twice", code="given-twice", hint="give each value once")
        return cls(setting, values, equal)

    @property
    def key(self) -> str:
        """The setting without its section."""
        return self.setting.partition(".")[2]


@dataclass(frozen=True)
class Request:
    """A comparison as it was asked for, checked."""

    task: NetTask[Any, Any, Any]
    entries: tuple[Entry, ...]
    sweep: Sweep | None
    budget_seconds: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)  # for every model that has them
    seed: int = 1
    threads: int | None = None

    def settings_of(self, entry: Entry) -> dict[str, Any]:
        """What a model is trained with: its own settings, and of the given ones those that it has."""
        given = {key: value for key, value in self.settings.items() if self._applies(key, entry)}
        return {**entry.settings, **given}

    def is_trained(self, entry: Entry) -> bool:
        """Whether it takes time from the budget."""
        return not entry.members and self.task.is_trained(entry.model)

    def _applies(self, setting: str, entry: Entry) -> bool:
        section, _, key = setting.partition(".")
        if entry.members:
            return False
        if section == "model":
            return key in _record(self.task, entry.model).model_fields
        return section == "data" or (section == "train" and self.is_trained(entry))

    def check(self) -> None:
        """Refuse settings that no model has, that a model refuses, and a mixture of what is not there."""
        for setting in self.settings:
            if not any(self._applies(setting, entry) for entry in self.entries):
                raise _no_setting(setting, self.task, self.entries)
        for entry in self.entries:
            if not entry.members:
                flags = {"model.family": entry.model}
                sections = merge_settings(flags, settings=self.settings_of(entry), recipe=None)
                make(TrainConfig, sections["train"], section="train")
                self.task.check(TrainRequest(self.task.name, [], sections))

        self._check_budget()

    def _check_budget(self) -> None:
        """Refuse a time in which a net learns nothing."""
        nets = [entry for entry in self.entries if self.is_trained(entry)]
        if self.budget_seconds is None or not nets:
            return
        least = self.budget_seconds * min(net.share for net in nets) / sum(net.share for net in nets)
        if least < MIN_NET_SECONDS:
            count = f"{len(nets)} nets" if len(nets) > 1 else "a net"
            needed = math.ceil(self.budget_seconds * MIN_NET_SECONDS / least)
            raise UsageError(
                f"a budget of {format_duration(self.budget_seconds)} is too short for {count}",
                code="budget-too-short",
                hint=f"give at least {format_duration(needed)}, or fewer --models",
            )

    def identity(self) -> dict[str, Any]:
        """What makes it this comparison and no other, besides the data."""
        return {
            "task": self.task.name,
            "models": [entry.name for entry in self.entries],
            "sweep": None if self.sweep is None else f"{self.sweep.setting}={','.join(self.sweep.values)}",
            "equal": None if self.sweep is None else self.sweep.equal,
            "settings": {key: str(value) for key, value in sorted(self.settings.items())},
            "budget_seconds": self.budget_seconds,
            "seed": self.seed,
        }


def make_entries(task: NetTask[Any, Any, Any], models: Sequence[str] | None, sweep: Sweep | None) -> tuple[Entry, ...]:
    """The models that are asked for, in that order; the members of a mixture stand before it."""
    if sweep is not None:
        return tuple(_swept(task, models, sweep))
    names = list(USUAL.get(task.name, task.model_names()) if models is None else models)
    if not names:
        raise UsageError(
            "there is no model to compare", code="missing-option", hint=f"models: {', '.join(_known(task))}"
        )
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is given twice", code="given-twice", hint="give each model once")
    found: dict[str, Entry] = {}
    for name in names:
        entry = _entry(task, name)
        for member in entry.members:
            if member.partition(":")[0] not in CACHES:
                found.setdefault(member, _entry(task, member))
        found[name] = entry
    directories: dict[str, str] = {}
    for entry in found.values():
        if directories.setdefault(entry.directory, entry.name) != entry.name:
            raise UsageError(
                f"{entry.name} and {directories[entry.directory]} would be in one directory", code="given-twice"
            )
    return tuple(found.values())


def _swept(task: NetTask[Any, Any, Any], models: Sequence[str] | None, sweep: Sweep) -> Iterator[Entry]:
    if models is None or len(models) != 1:
        raise UsageError(
            "a sweep is of one model", code="does-not-apply", hint=f"--models {task.model_names()[0]}, say"
        )
    base = _entry(task, models[0])
    if base.members:
        raise UsageError("a mixture has no setting to sweep", code="does-not-apply", hint="sweep one of its members")
    alone = Request(task, (base,), sweep, None)
    if not alone._applies(sweep.setting, base):
        raise _no_setting(sweep.setting, task, (base,))
    if sweep.equal is not None:
        if not alone.is_trained(base) or "hidden" not in _record(task, base.model).model_fields:
            raise UsageError(
                f"--equal {sweep.equal} is for nets, whose width can be chosen; {base.name} counts",
                code="does-not-apply",
            )
        if sweep.setting == "model.hidden":
            raise UsageError(
                "--equal parameters chooses model.hidden, which is swept",
                code="options-conflict",
                hint="sweep another setting",
            )
    for value in sweep.values:
        name = f"{base.name} {sweep.key}={value}"
        yield replace(base, name=name, settings={**base.settings, sweep.setting: value})


def _entry(task: NetTask[Any, Any, Any], name: str) -> Entry:
    """A model by its name: of the table, of the task, or a mixture `a+b`."""
    for entry in ENTRIES.get(task.name, ()):
        if entry.name == name:
            return entry
    if name in task.model_names():
        return Entry(name, name)
    if "+" in name and task.makes_language_models:
        members = tuple(name.split("+"))
        for member in members:
            if member.partition(":")[0] not in CACHES:
                _entry(task, member)
        if all(member.partition(":")[0] in CACHES for member in members):
            raise UsageError(
                f"{name} is a mixture of caches alone, which know nothing",
                code="bad-value",
                hint="add a model, like mkn",
            )
        if len(set(members)) < len(members):
            raise UsageError(f"{name} has a member twice", code="given-twice")
        return Entry(name, None, "all of that", members=members)
    raise no_such("model", name, _known(task))


def _known(task: NetTask[Any, Any, Any]) -> list[str]:
    return list(dict.fromkeys([*(entry.name for entry in ENTRIES.get(task.name, ())), *task.model_names()]))


def _record(task: NetTask[Any, Any, Any], model: str | None) -> type[Config]:
    """The settings of a model."""
    return type(task.model_settings({} if model is None else {"family": model}))


def _no_setting(setting: str, task: NetTask[Any, Any, Any], entries: Sequence[Entry]) -> UsageError:
    section, _, key = setting.partition(".")
    if section not in SECTIONS or not key:
        return UsageError(
            f"{setting!r} is not of the form section.key", code="bad-value", hint=f"sections: {', '.join(SECTIONS)}"
        )
    names = {name for entry in entries if not entry.members for name in _record(task, entry.model).model_fields}
    close = nearest(key, sorted(names - {"family"})) if section == "model" else None
    what = ", ".join(entry.name for entry in entries if not entry.members)
    return UsageError(
        f"{setting} is not a setting of {what}",
        code="unknown-setting",
        hint=f"did you mean model.{close}?" if close else None,
    )


def parse_models(text: str | None) -> list[str] | None:
    """`unigram,mkn,lstm` as names."""
    return None if text is None else [name for name in re.split(r"[,\s]+", text) if name]


def find_net_task(name: str) -> NetTask[Any, Any, Any]:
    """The task of that name, whose models can be compared."""
    task = find_task(name)
    assert isinstance(task, NetTask)  # all that are shipped are
    return task


def as_paths(data: str | Path | Sequence[str | Path]) -> list[str]:
    """Names of files or directories; what can be read only once cannot be compared on."""
    paths = [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]
    if not paths:
        raise UsageError("there is no DATA", code="missing-option", hint="give files")
    if "-" in paths:
        raise UsageError(
            "a comparison reads its text several times, and stdin only once",
            code="options-conflict",
            hint="give a file",
        )
    return paths
