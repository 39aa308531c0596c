"""From a model that is made to one that is measured and saved: all of it, or nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elman import store
from elman.tasks.lm.model import Model, load_lm
from elman.tasks.runs import Report
from elman.text.corpus import Corpus

EVALUATION_TOKENS = 1 << 16


class Notes:
    """Passes on what is said, and remembers it for the record."""

    def __init__(self, report: Report) -> None:
        self.said: list[str] = []
        self._report = report

    def __call__(self, message: str) -> None:
        self.said.append(message)
        self._report(message)


@contextlib.contextmanager
def reserved(out: str | Path | None, *, overwrite: bool) -> Iterator[None]:
    """Make sure, before any work is done, that a model may be written there, if it is to be written at all."""
    with store.reserve(Path(out), overwrite=overwrite) if out is not None else contextlib.nullcontext():
        yield


def finished(made: Model, heldout: Corpus | None, begin: float) -> Model:
    """With its numbers on the held-out text and the time it took."""
    valid = None
    if heldout is not None:
        valid = made.evaluate_blocks(heldout.blocks(EVALUATION_TOKENS), seed=made.record.seed)
    changes = {"valid": valid, "seconds": round(time.perf_counter() - begin, 3)}
    return replace(made, record=made.record.model_copy(update=changes))


def saved(made: Model, out: str | Path | None) -> Model:
    """The same model, saved and read back from its files, where there is a place for it."""
    if out is None:
        return made
    store.save(Path(out), made.record, tensors=made.lm.tensors(), contents=made.tokenizer.files())
    return load_lm(out, verify=False)
