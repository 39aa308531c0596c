"""Settings from all the places they may come from, by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elman import config
from elman.core.errors import UsageError


def merge_settings(
    flags: Mapping[tuple[str, str], Any], *, settings: Mapping[str, Any] | None, recipe: str | Path | None
) -> dict[str, dict[str, Any]]:
    """By section, from the recipe, --set and flags; what is said twice must be the same."""
    given = sections_of(settings or {})
    for (section, key), value in flags.items():
        if value is not None and given[section].setdefault(key, value) != value:
            raise UsageError(f"{section}.{key} is given twice: {value} and {given[section][key]}")
    base = config.parse_settings([], Path(recipe)) if recipe is not None else {}
    return {section: {**base.get(section, {}), **values} for section, values in given.items()}


def sections_of(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{"model.order": 5} as {"model": {"order": 5}}, with a place for every section."""
    sections = config.parse_settings([])
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section not in sections or not key:
            raise UsageError(f"{name!r} is not of the form section.key", hint=f"sections: {', '.join(sections)}")
        sections[section][key] = value
    return sections


def refuse(sections: Mapping[str, Mapping[str, Any]], names: Sequence[str], what: str) -> None:
    """An error if anything is set in these sections."""
    for name in names:
        for key in sections[name]:
            raise UsageError(f"{name}.{key} does not apply to {what}", hint=f"leave {name}.{key} out")
