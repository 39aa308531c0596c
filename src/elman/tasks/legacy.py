"""Runs that version 0.1.0 stopped: their held-out rows stand among the arrays, packed as bytes; they have no manifest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elman.core.arrays import Array
from elman.core.files import RUN_FOLDER
from elman.training.journal import METRICS

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


def adopt_journal(directory: Path) -> None:
    """Move the journal of such a run, which lies where a model has its own, to where runs have it now."""
    with contextlib.suppress(FileNotFoundError):
        if not (directory / RUN_FOLDER / METRICS).exists():
            (directory / METRICS).rename(directory / RUN_FOLDER / METRICS)


def _text(array: Array) -> str:
    return array.tobytes().decode()
