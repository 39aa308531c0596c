"""Data handed in from Python: lists of texts, rows, records, data frames and open files, as sources like any file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from elman.core.errors import MissingError, UsageError
from elman.text.opening import STDIN, MemorySource, Sources

NAME = "the data from Python"


def texts(lines: Iterable[str]) -> MemorySource:
    """Strings as texts, a line each (or several, where one has line breaks): never taken for names of files."""
    return MemorySource(NAME, "".join(_ended(line) for line in lines).encode())


def as_texts(data: Any) -> list[str]:
    """One text or several, handed in from Python to be read as they are: a string, or strings in anything iterable."""
    if isinstance(data, str):
        return [data]
    items = list(rows_of(data))
    for index, item in enumerate(items):
        if not isinstance(item, str):
            where = f"it is number {index + 1} of {len(items):,}"
            raise UsageError(
                f"a text is needed, not {item!r}", code="wrong-type", hint=f"{where}; give a text, or a list of texts"
            )
    return items


def rows_of(data: Any) -> Iterable[Any]:
    """What is iterable, but for data frames, of which Python gives the names of the columns."""
    if _is_frame(data):
        raise UsageError(
            "a data frame is no list of texts", code="wrong-type", hint="give one of its columns, like frame['text']"
        )
    if isinstance(data, bytes) or not isinstance(data, Iterable):
        raise UsageError(f"{type(data).__name__} is no text", code="wrong-type", hint="give a text, or a list of texts")
    return data


def as_sources(data: Any) -> Sources:
    """Names of files, or what is in memory, as sources.

    A string is the name of a file. Of a list of strings, all are names of files or all are texts; where that cannot be
    told, it is an error. Tuples are rows with their columns in the order of a file, mappings and data frames are records.
    """
    if isinstance(data, str | Path | MemorySource):
        return [data]
    if _is_frame(data):
        return [_records(data.to_dict("records"))]
    if hasattr(data, "read"):
        content = data.read()
        return [
            MemorySource(str(getattr(data, "name", NAME)), content.encode() if isinstance(content, str) else content)
        ]
    if isinstance(data, Mapping):
        hint = "give a list of records, or pandas.DataFrame(...) of the columns"
        raise UsageError("one dictionary is no list of data", code="wrong-type", hint=hint)
    if not isinstance(data, Iterable):
        raise UsageError(
            f"{type(data).__name__} is no data to read",
            code="wrong-type",
            hint="give files, texts, rows or a data frame",
        )
    items = list(data)
    if all(isinstance(item, Path | MemorySource) for item in items):
        return items
    if all(isinstance(item, Mapping) for item in items):
        return [_records(items)]
    if all(isinstance(item, tuple | list) for item in items):
        return [MemorySource(NAME, "".join("\t".join(map(_cell, row)) + "\n" for row in items).encode())]
    if not all(isinstance(item, str | Path) for item in items):
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise UsageError(
            "a list of data is all strings, all rows or all records", code="wrong-type", hint=f"this one holds {kinds}"
        )
    return _files_or_texts(items)


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "to_dict")  # whoever made it


def _files_or_texts(items: list[str | Path]) -> Sources:
    missing = [str(item) for item in items if str(item) != STDIN and not _exists(item)]
    if not missing:
        return items
    if len(missing) == len(items) and any(" " in item or "\n" in item for item in missing):
        return [texts(missing)]
    raise MissingError(
        f"there is no file {missing[0]!r}",
        hint="is the name right? Strings that are texts and not files: elman.texts([...])",
    )


def _exists(name: str | Path) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _records(rows: Iterable[Mapping[Any, Any]]) -> MemorySource:
    lines = (
        json.dumps({str(key): value for key, value in row.items()}, ensure_ascii=False, default=str) for row in rows
    )
    return MemorySource(NAME, "".join(f"{line}\n" for line in lines).encode(), kind="csv")


def _cell(value: object) -> str:
    return " ".join(str(value).split()) if any(mark in str(value) for mark in "\t\n\r") else str(value)


def _ended(line: str) -> str:
    return line if line.endswith("\n") else line + "\n"
