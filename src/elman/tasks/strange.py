"""Data of another task is no test of a model: nearly all of its labels or tags are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from elman.core.errors import DataError
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import STDIN, Reader, Sources
from elman.text.settings import DataConfig

STRANGE_SHARE = 0.9  # share of unknown labels from which on data is refused
SHOWN = 5


def refuse_strange(kind: str, strange: Sequence[str], total: int, data: Sources, *, task: str, hint: str) -> None:
    """An error where nearly all labels or tags (`kind`) are strange; it names the task that the file looks like."""
    if len(strange) <= STRANGE_SHARE * total:
        return
    examples = ", ".join(repr(label[:20]) for label in islice(dict.fromkeys(strange), SHOWN))
    other = "" if any(str(source) == STDIN for source in data) else _other_task(data, task)
    raise DataError(
        f"{len(strange):,} of {total:,} {kind} are none that this model knows ({examples})",
        code="unknown-labels",
        hint=other or f"is this data for another task or model? {hint}",
    )


def _other_task(data: Sources, task: str) -> str:
    block = next(Reader(data, DataConfig.model_validate({"errors": "replace"}), keep_records=True).blocks())
    lines = block.data.decode().removesuffix("\n").split("\n")
    guess = guess_task(lines[:SAMPLE_LINES], is_jsonl=block.has_records)
    return "" if guess.task == task else f"it looks like {guess.like}: data for elman train {guess.task}"
