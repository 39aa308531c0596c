"""Runs that version 0.1.0 stopped: their held-out rows stand among the arrays, packed as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elman.core.arrays import Array

PACKED = {  # by task, the arrays that hold the columns of the held-out rows
    "seq2seq": ("valid_source_text", "valid_target_text"),
    "classify": ("valid_text", "valid_label"),
    "tag": ("valid_words_text", "valid_tags_text"),
}


def upgrade_run(task: str, run: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[Any] | None:
    """The held-out rows of such a run as JSON; None where there are none, or they are in a file of their own."""
    if "valid_bytes" in run and "valid" in arrays:
        return [[run["valid_bytes"], run["valid_lines"], run["valid_unknown_tokens"]]]
    if task == "qa" and "valid_text" in arrays:
        return [json.loads(line) for line in _text(arrays["valid_text"]).split("\n")]
    names = PACKED.get(task, ())
    if not names or names[0] not in arrays:
        return None
    columns = [_text(arrays[name]).split("\n") for name in names]
    if task == "tag":
        columns = [[line.split("\t") for line in column] for column in columns]  # type: ignore[misc]
    return [list(row) for row in zip(*columns, strict=True)]


def _text(array: Array) -> str:
    return array.tobytes().decode()
