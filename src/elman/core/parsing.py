"""From what a user wrote, on the command line or in a recipe, to records."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elman.core.errors import MissingError, UsageError
from elman.core.settings import Config

RECIPES = Path(__file__).parent.with_name("recipes")


def make(record: type[Config], settings: Mapping[str, Any], *, section: str) -> Any:
    """A record from settings, or a UsageError that names the nearest valid key."""
    for key in settings:
        if key not in record.model_fields:
            valid = [name for name in record.model_fields if name != "family"]
            close = difflib.get_close_matches(key, valid, n=1, cutoff=0.4)
            family = f" of {settings['family']}" if "family" in settings else ""
            hint = f"did you mean {section}.{close[0]}?" if close else None
            if not close:
                hint = f"valid here: {', '.join(f'{section}.{name}' for name in valid) or 'nothing can be set'}"
            raise UsageError(f"{section}.{key} is not a setting{family}", hint=hint)
    try:
        return record.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (section, *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        got = f" (got {first['input']!r})" if first["loc"] else ""
        raise UsageError(f"{place}: {message[:1].lower()}{message[1:]}{got}") from None


def parse_settings(pairs: Iterable[str], recipe: Path | None = None) -> dict[str, dict[str, Any]]:
    """`section.key=value` pairs and a recipe file as {section: {key: value}}; pairs win over the file."""
    settings: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "train": {}}
    if recipe is not None:
        for section, values in read_recipe(recipe).items():
            _section(settings, section, f"[{section}] in {recipe}").update(values)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        section, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise UsageError(f"--set {pair} is not of the form section.key=value", hint="for example model.order=5")
        _section(settings, section, f"--set {pair}")[name] = value
    return settings


def _section(settings: dict[str, dict[str, Any]], section: str, where: str) -> dict[str, Any]:
    if section not in settings:
        raise UsageError(f"{where}: there is no section {section!r}", hint=f"sections: {', '.join(settings)}")
    return settings[section]


def recipes() -> list[str]:
    """The names of the recipes that are shipped."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML recipe: a file, or a shipped one by its name."""
    if str(path) in recipes() and not path.is_file():
        path = RECIPES / f"{path}.toml"
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        hint = f"a file, or one of {', '.join(recipes())}"
        raise MissingError(f"cannot read the recipe {path}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    for section, values in tables.items():
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {section} is outside a table", hint="put it under [data], [model] or [train]")
    return tables
