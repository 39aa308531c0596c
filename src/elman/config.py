"""Everything a user can set, as frozen records. Unknown keys are refused, and the nearest valid one is named.

A setting that cannot apply is not a field of that family's record, so it is refused like any other unknown key.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from elman.errors import MissingError, UsageError


class Config(BaseModel):
    """A frozen record of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _split_commas(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Integers = Annotated[tuple[int, ...], BeforeValidator(_split_commas)]


class DataConfig(Config):
    """How text becomes symbols."""

    units: str = Field("auto", pattern=r"^(auto|space|word|char|byte|bpe:[1-9][0-9]*)$")
    reset_lines: bool = False  # each line alone (the n-gram tools' way) instead of one stream
    min_count: int = Field(2, ge=1)  # words seen less often are <unk>, unless the text has <unk> itself
    max_words: int = Field(60_000, ge=1, le=2_000_000)
    errors: Literal["strict", "replace"] = "strict"  # broken UTF-8: refuse, or put U+FFFD
    skip_bad: bool = False  # drop malformed lines and count them
    separator: str | None = Field(None, min_length=1)  # for `space` units whose symbols contain spaces
    heldout: float = Field(0.05, gt=0, lt=1)  # the part of DATA held out where no --valid is given


class UniformConfig(Config):
    """Every symbol as likely as any other: the model every other one has to beat."""

    family: Literal["uniform"] = "uniform"


Smoothing = Literal["ml", "add", "interpolated", "witten-bell", "absolute"]


class UnigramConfig(Config):
    """Words by their frequency alone."""

    family: Literal["unigram"] = "unigram"
    smoothing: Literal["ml", "add"] = "add"
    alpha: float | None = Field(None, gt=0)  # tuned on held-out text if not given

    @property
    def order(self) -> int:
        return 1


class BigramConfig(Config):
    """One word of history."""

    family: Literal["bigram"] = "bigram"
    smoothing: Smoothing = "add"
    alpha: float | None = Field(None, gt=0)

    @property
    def order(self) -> int:
        return 2


class NgramConfig(Config):
    """order - 1 words of history, smoothed in one of the classic ways."""

    family: Literal["ngram"] = "ngram"
    order: int = Field(3, ge=1, le=20)
    smoothing: Smoothing = "interpolated"
    alpha: float | None = Field(None, gt=0)  # `add` only
    prune: Integers = ()  # drop k-grams seen at most prune[k-1] times; the last number holds for higher orders

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)


class KneserNeyConfig(Config):
    """Interpolated Kneser-Ney: `kn` with one discount an order, `mkn` with three (Chen & Goodman 1998)."""

    family: Literal["kn", "mkn"] = "mkn"
    order: int = Field(5, ge=1, le=20)
    prune: Integers = ()

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)


class SnmConfig(Config):
    """Sparse non-negative matrix estimation: n-gram and skip-gram features, adjustment fitted on held-out text."""

    family: Literal["snm"] = "snm"
    order: int = Field(5, ge=1, le=10)  # n-gram features of 0 .. order-1 words
    skip_words: int = Field(2, ge=0, le=4)  # words of context in a skip-gram feature; 0 for none
    max_skip: int = Field(3, ge=1, le=10)  # words a skip-gram may leave out


class CacheConfig(Config):
    """What was said is said again: p from the text just read. Only useful inside a mixture."""

    family: Literal["cache"] = "cache"
    window: int | None = Field(None, ge=1)  # the last so many words, equally; or
    decay: float = Field(0.995, gt=0, lt=1)  # every word, each step's weight times this


class MixtureConfig(Config):
    """Weighted models. The weights are fitted by EM and kept with the model."""

    family: Literal["mixture"] = "mixture"
    members: tuple[ModelConfig, ...] = Field(min_length=1)
    bucketed: bool = False  # one set of weights per bucket of how often the history was seen


ModelConfig = Annotated[
    UniformConfig
    | UnigramConfig
    | BigramConfig
    | NgramConfig
    | KneserNeyConfig
    | SnmConfig
    | CacheConfig
    | MixtureConfig,
    Field(discriminator="family"),
]
MixtureConfig.model_rebuild()


def families() -> dict[str, type[Config]]:
    """The name of every family and its record."""
    found: dict[str, type[Config]] = {}
    for record in get_args(get_args(ModelConfig)[0]):
        for name in get_args(record.model_fields["family"].annotation):
            found[name] = record
    return found


def _checked_prune(value: tuple[int, ...]) -> tuple[int, ...]:
    if any(count < 0 for count in value) or list(value) != sorted(value):
        raise ValueError("prune takes counts that never fall from one order to the next, like 0,0,1")
    return value


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
        raise UsageError(f"{place}: {first['msg'].lower()} (got {first['input']!r})") from None


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


def read_recipe(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML recipe."""
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise MissingError(f"cannot read the recipe {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    for section, values in tables.items():
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {section} is outside a table", hint="put it under [data], [model] or [train]")
    return tables
