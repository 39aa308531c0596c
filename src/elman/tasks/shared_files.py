"""Files that are trained on and validated on: numbers that mislead."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from elman.text.opening import MemorySource, Source
from elman.text.readers import find_files

if TYPE_CHECKING:
    from elman.tasks.base import TrainRequest

BY_HEART = "its numbers say how well the text was learned by heart, not how good the model is"


def shared_files(request: TrainRequest) -> list[str]:
    """What to say of a validation file that is a training file too; nothing where there is none."""
    if request.valid is None:
        return []
    training = {_identity(file) for file in find_files(request.data)}
    shared = [file for file in find_files(request.valid) if _identity(file) in training]
    return [f"{file} is training text too: {BY_HEART}" for file in shared[:1]]


def _identity(source: Source) -> str | bytes:
    """Where a file lies, or what was handed in from Python, all of which has the same name."""
    return source.data if isinstance(source, MemorySource) else os.path.realpath(str(source))
