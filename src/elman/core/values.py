"""What a setting can be, in words: for error messages, for `elman settings` and for its page."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

LIMITS = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}


@dataclass(frozen=True)
class Form:
    """What a setting can be, in words, where its type does not say it; the pattern of a text, and examples of it."""

    words: str
    pattern: str | None = None
    names: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        return schema if self.pattern is None else no_info_after_validator_function(self._check, schema)

    def _check(self, value: str) -> str:
        if not re.fullmatch(str(self.pattern), value):
            raise PydanticCustomError("form", "it has another form")
        return value


def describe_values(field: FieldInfo) -> str:
    """What a field can be: `a whole number, at least 1`."""
    parts = _described(field.annotation, field.metadata)
    return " or ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def choices(field: FieldInfo) -> list[str]:
    """The names that a field chooses from; nothing where it does not choose from names."""
    found = [get_args(one) for one in _alternatives(field.annotation) if get_origin(one) is Literal]
    found += [one.names for one in field.metadata if isinstance(one, Form)]
    return [str(name) for names in found for name in names]


def describe_default(field: FieldInfo) -> str:
    """The default as it would be written after --set; nothing where there is none, or it depends on other things."""
    default = field.get_default()
    if field.is_required() or default is None or default == ():
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _described(annotation: Any, metadata: list[Any]) -> list[str]:
    given = [one.words for one in metadata if isinstance(one, Form)]
    if given:
        return given
    limits = [
        f"{words} {getattr(one, kind.__name__.lower()):,}"
        for one in metadata
        for kind, words in LIMITS.items()
        if isinstance(one, kind)
    ]
    found: list[str] = []
    for one in _alternatives(annotation):
        if get_origin(one) is Annotated:
            found += _described(get_args(one)[0], [*get_args(one)[1:], *metadata])
        elif get_origin(one) is Literal:
            found += map(str, get_args(one))
        elif one is bool:
            found += ["true", "false"]
        elif one in (int, float):
            found.append(
                ", ".join(["a whole number" if one is int else "a number", *[" and ".join(limits)] * bool(limits)])
            )
        elif one is not types.NoneType:
            found.append("text")
    return found


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """A type, or those it is a union of."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
