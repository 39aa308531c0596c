"""Every setting there is: what it means, what it can be, and which tasks and models have it."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elman.core.errors import no_such
from elman.core.settings import SECTIONS, Config
from elman.core.values import choices, describe_default, describe_values
from elman.explain import KINDS, kind_named
from elman.tasks.catalogue import TASKS, find_task

FAMILY_MEANING = "the kind of model; the same as --model"


@dataclass(frozen=True)
class Setting:
    """A key that --set and a recipe take, as some tasks or models have it."""

    key: str
    meaning: str
    values: str
    default: str  # nothing where there is none, or it depends on other things
    owners: tuple[str, ...]  # tasks, and the models of a task where these differ

    def as_json(self) -> dict[str, Any]:
        """As `elman settings --json` prints it."""
        default = {"default": self.default or None}
        return {"key": self.key, "meaning": self.meaning, "values": self.values, **default, "for": list(self.owners)}


def all_settings() -> list[Setting]:
    """Every setting, by section and name; one that several have alike is there once, with all of them."""
    found: dict[
        tuple[str, str, str, str], dict[str, list[str]]
    ] = {}  # of each: the tasks that have it, and their models
    for name in TASKS:
        records = list(find_task(name).records())
        num_models = sum(section == "model" for section, *_ in records)
        for section, record, unused in records:
            models = choices(record.model_fields["family"]) if section == "model" and num_models > 1 else []
            for key in record.model_fields.keys() - unused:
                owners = found.setdefault(_describe(section, key, record), {})
                owners.setdefault(name, []).extend(models)
    settings = [
        Setting(*texts, tuple(f"{task} ({' '.join(models)})" if models else task for task, models in owners.items()))
        for texts, owners in found.items()
    ]
    return sorted(settings, key=lambda one: (SECTIONS.index(one.key.partition(".")[0]), one.key))


def explain_settings() -> list[Setting]:
    """What `elman explain --set` takes, and which kinds have it. Kinds may need torch, so these are not with the others."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for name in KINDS:
        record = kind_named(name).options
        for key in record.model_fields:
            found.setdefault(_describe("explain", key, record), []).append(name)
    return sorted((Setting(*texts, tuple(owners)) for texts, owners in found.items()), key=lambda one: one.key)


def find_settings(pattern: str) -> list[Setting]:
    """The settings whose keys hold a text, or match a pattern with * in it; those of `explain` by its name alone."""
    everything = explain_settings() if pattern.startswith("explain") else all_settings()
    wanted = pattern.lower() if "*" in pattern else f"*{pattern.lower()}*"
    found = [one for one in everything if fnmatch.fnmatchcase(one.key, wanted)]
    if not found:
        keys = {one.key for one in everything}
        raise no_such("setting", pattern, sorted(keys | {key.partition(".")[2] for key in keys}))
    return found


def render(settings: Sequence[Setting]) -> str:
    """Settings as text, a paragraph each."""
    return "\n\n".join(
        f"{one.key}\n  {one.meaning}\n  {one.values}{f'; default {one.default}' if one.default else ''}\n"
        f"  for {', '.join(one.owners)}"
        for one in settings
    )


def _describe(section: str, key: str, record: type[Config]) -> tuple[str, str, str, str]:
    """Key, meaning, values and default of a field."""
    field = record.model_fields[key]
    meaning = FAMILY_MEANING if key == "family" else field.description or ""
    return f"{section}.{key}", meaning, describe_values(field), describe_default(field)
