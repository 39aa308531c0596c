"""Settings: frozen records that refuse unknown keys, made from recipes, --set and flags."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from elman.core.errors import MissingError, UsageError, nearest
from elman.core.values import Form, choices, describe_values

SECTIONS = ("data", "model", "train", "count")
RECIPES = Path(__file__).parent.with_name("recipes")

Sections = dict[str, dict[str, Any]]  # by section, then by key


class Config(BaseModel):
    """A frozen record of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


C = TypeVar("C", bound=Config)


def _split_commas(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _as_columns(value: Any) -> Any:
    parts = _split_commas(value)
    if isinstance(parts, int):
        return [parts]
    if not isinstance(parts, list | tuple):
        return parts
    return [int(part) if isinstance(part, str) and part.strip().lstrip("-").isdigit() else part for part in parts]


Integers = Annotated[tuple[int, ...], BeforeValidator(_split_commas), Form("whole numbers with commas between")]
Columns = Annotated[
    tuple[int | str, ...], BeforeValidator(_as_columns), Form("numbers from 1 or names, with commas between")
]


def make(record: type[C], settings: Mapping[str, Any], *, section: str) -> C:
    """A record from settings, or a UsageError that names the nearest valid key."""
    for key in settings:
        if key not in record.model_fields:
            valid = [name for name in record.model_fields if name != "family"]
            close = nearest(key, valid, cutoff=0.4)
            family = f" of {settings['family']}" if "family" in settings else ""
            hint = f"did you mean {section}.{close}?" if close else None
            if not close:
                hint = f"valid settings: {', '.join(f'{section}.{name}' for name in valid) or 'none'}"
            raise UsageError(f"{section}.{key} is not a setting{family}", code="unknown-setting", hint=hint)
    try:
        return record.model_validate(dict(settings))
    except ValidationError as error:
        raise _refused(record, error, section) from None


def _refused(record: type[Config], error: ValidationError, section: str) -> UsageError:
    """What a record refused, in words: what does not fit together as its validators say it, else what can be set."""
    first = error.errors()[0]
    if not first["loc"]:
        return UsageError(f"{section}: {first['msg'].removeprefix('Value error, ')}", code="bad-value")
    name, given = str(first["loc"][0]), first["input"]
    field = record.model_fields[name]
    if first["type"] == "value_error":
        return UsageError(
            f"{section}.{name}: {first['msg'].removeprefix('Value error, ')} (got {given!r})", code="bad-value"
        )
    close = nearest(str(given), choices(field))
    hint = f"did you mean {close}?" if close else None
    if not close and section in (*SECTIONS, "explain"):
        hint = f"elman settings {section}.{name} says what it is"
    return UsageError(f"{section}.{name} is {describe_values(field)} (got {given!r})", code="bad-value", hint=hint)


def parse_pairs(pairs: Iterable[str] | None) -> dict[str, str]:
    """The arguments of --set, `section.key=value`, as {"section.key": "value"}."""
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise UsageError(
                f"--set {pair} is not of the form section.key=value", code="bad-value", hint="for example model.order=5"
            )
        settings[key] = value
    return settings


def sections_of(settings: Mapping[str, Any]) -> Sections:
    """{"model.order": 5} as {"model": {"order": 5}}, with an entry for every section."""
    sections: Sections = {section: {} for section in SECTIONS}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section not in sections or not key:
            raise UsageError(
                f"{name!r} is not of the form section.key", code="bad-value", hint=f"sections: {', '.join(sections)}"
            )
        sections[section][key] = value
    return sections


def merge_settings(
    flags: Mapping[str, Any], *, settings: Mapping[str, Any] | None, recipe: str | Path | None
) -> Sections:
    """Settings by section from a recipe, --set and flags ({"data.units": "char"}); --set and flags must not disagree."""
    given = sections_of(settings or {})
    for name, value in flags.items():
        section, _, key = name.partition(".")
        if value is not None and given[section].setdefault(key, value) != value:
            raise UsageError(f"{name} is given twice: {value} and {given[section][key]}", code="given-twice")
    base = read_recipe(Path(recipe)) if recipe is not None else {}
    return {section: {**base.get(section, {}), **values} for section, values in given.items()}


def refuse(sections: Mapping[str, Mapping[str, Any]], names: Sequence[str], what: str) -> None:
    """Raise an error if anything is set in these sections."""
    for name in names:
        for key in sections[name]:
            raise UsageError(
                f"{name}.{key} does not apply to {what}", code="does-not-apply", hint=f"leave {name}.{key} out"
            )


def recipes() -> list[str]:
    """The names of the recipes that are shipped."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(path: Path) -> Sections:
    """The tables of a TOML recipe: a file, or a shipped one by its name."""
    if str(path) in recipes() and not path.is_file():
        path = RECIPES / f"{path}.toml"
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        close = nearest(str(path), recipes())
        hint = f"did you mean {close}?" if close else f"a file, or one of {', '.join(recipes())}"
        raise MissingError(f"cannot read the recipe {path}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", code="bad-recipe") from None
    except ValueError:  # Python's limit on digits, which speaks of Python
        raise UsageError(f"{path} has a number with too many digits", code="bad-recipe") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply", code="bad-recipe") from None
    for section, values in tables.items():
        if section not in SECTIONS:
            raise UsageError(
                f"{path}: there is no section [{section}]", code="bad-recipe", hint=f"sections: {', '.join(SECTIONS)}"
            )
        if not isinstance(values, dict):
            raise UsageError(
                f"{path}: {section} is outside a table",
                code="bad-recipe",
                hint="put it under [data], [model], [train] or [count]",
            )
    return tables
