"""JSONL: one record of text, or of symbols, as lines."""

from __future__ import annotations

import json
import re
from typing import Any

from elman.core.errors import DataError

_SURROGATES = re.compile("[\ud800-\udfff]")
_WHITESPACE = re.compile(r"[ \t\n\v\f\r]")
_TEXT_HINT = 'a record looks like {"text": "..."} or {"tokens": ["a", "b"]}'


def parser_says(error: Exception) -> str:
    """Why a line is no JSON, without what only a programmer could use."""
    match error:
        case json.JSONDecodeError():
            return f"the parser says: {error.msg.lower()} at character {error.pos + 1}"
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case _:  # what Python says of an integer of thousands of digits
            return "it has a number with too many digits"


def record_text(record: bytes, *, separator: str | None, replaces: bool) -> tuple[str, bool]:
    """The lines of a record, the last one without an end, and whether it gave them as symbols.

    A DataError says what is wrong with the record, but not where it is.
    """
    try:
        content: Any = json.loads(record.decode())
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON", code="malformed-line", hint=parser_says(error)) from None
    if not isinstance(content, dict) or not content.keys() & {"text", "tokens"}:
        raise DataError("has neither `text` nor `tokens`", code="malformed-line", hint=_TEXT_HINT)
    has_tokens = "text" not in content
    text = _join(content["tokens"], separator) if has_tokens else content["text"]
    if not isinstance(text, str):
        raise DataError("has a `text` that is not a string", code="malformed-line", hint=_TEXT_HINT)
    if _SURROGATES.search(text):
        if not replaces:
            raise DataError(
                "has half a character (a lone surrogate)",
                code="malformed-line",
                hint="--set data.errors=replace puts U+FFFD",
            )
        text = _SURROGATES.sub("\ufffd", text)
    text = text.removesuffix("\n").replace("\r\n", "\n").removesuffix("\r")
    return text, has_tokens


def _join(tokens: Any, separator: str | None) -> str:
    if not (isinstance(tokens, list) and all(isinstance(token, str) and token for token in tokens)):
        raise DataError("has `tokens` that are not strings", code="malformed-line", hint=_TEXT_HINT)
    for token in tokens:
        if separator is None and _WHITESPACE.search(token):
            raise DataError(
                f"has the token {token!r} with a space in it", code="malformed-line", hint="--set data.separator=STRING"
            )
        if separator is not None and (separator in token or "\n" in token):
            raise DataError(
                f"has the token {token!r} with a separator in it",
                code="malformed-line",
                hint="choose another data.separator",
            )
    return (separator or " ").join(tokens)
