"""The models that are served: found by their ids, loaded before the first request, never by a name from a request."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elman.api import Model, TaskModel, load
from elman.core.errors import ElmanError, UsageError
from elman.serve.batching import Worker
from elman.serve.comparisons import Comparison, find_comparisons
from elman.serve.errors import ApiError
from elman.text.units.vocabulary import EOS_ID

TEXT_THREADS = 4  # for tokenizing and writing JSON
SLOW_THREADS = 2  # for explanations, predictions and embeddings


@dataclass(frozen=True)
class Served:
    """A model under its id; of a language model also the thread that runs it."""

    id: str
    model: TaskModel[Any]
    listing: dict[str, Any]  # as `GET /v1/models` has it
    lm: Model | None = None
    worker: Worker | None = None

    def language_model(self) -> tuple[Model, Worker]:
        """Its language model and the thread that runs it; an error where it is none."""
        if self.lm is None or self.worker is None:
            raise ApiError(
                400,
                f"{self.id} is a model for {self.model.record.task}, not left to right: use /v1/predict",
                param="model",
            )
        return self.lm, self.worker


@dataclass(frozen=True)
class Models(Mapping[str, Served]):
    """All of them, by id."""

    by_id: Mapping[str, Served]
    comparisons: Sequence[Comparison] = ()  # that some of them are of
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(TEXT_THREADS, "elman-text"))
    slow_threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(SLOW_THREADS, "elman-slow"))

    def __getitem__(self, name: str) -> Served:
        return self.by_id[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def find(self, name: str | None) -> Served:
        """The model of that id; the first one without one."""
        if name is None:
            return next(iter(self.values()))
        if name not in self.by_id:
            raise ApiError(
                404,
                f"there is no model {name[:100]!r}; GET /v1/models lists them",
                param="model",
                code="model_not_found",
            )
        return self.by_id[name]

    def find_language_model(self, name: str | None) -> Served:
        """The language model of that id; the first one without one."""
        if name is None:
            return next((one for one in self.values() if one.lm is not None), self.find(None))
        return self.find(name)

    def ids_by_directory(self) -> dict[Path, str]:
        """The id of each that was loaded from a directory."""
        return {one.model.directory.resolve(): one.id for one in self.values() if one.model.directory is not None}

    def close(self) -> None:
        """End all threads."""
        for one in self.values():
            if one.worker is not None:
                one.worker.close()
        for threads in (self.threads, self.slow_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def load_models(directories: Iterable[Path], *, max_rows: int, verify: bool = True) -> Models:
    """Load every directory; ids are the names of the directories, numbered where two are the same.

    The directory of a comparison stands for all its models.
    """
    loaded: dict[str, TaskModel[Any]] = {}
    comparisons, found = find_comparisons(directories)
    for directory in found:
        name = directory.resolve().name
        same = sum(other == name or other.rpartition("-")[0] == name for other in loaded)
        loaded[f"{name}-{same + 1}" if name in loaded else name] = load(directory, verify=verify)
    if not loaded:
        raise UsageError("there is no model to serve", code="missing-option", hint="give a model directory")
    return replace(serve_models(loaded, max_rows=max_rows), comparisons=comparisons)


def serve_models(models: Mapping[str, TaskModel[Any]], *, max_rows: int) -> Models:
    """Models that are loaded already, by their ids."""
    created = int(time.time())
    return Models({name: _served(name, model, created, max_rows) for name, model in models.items()})


def _served(name: str, model: TaskModel[Any], created: int, max_rows: int) -> Served:
    try:
        lm = model.language_model()
    except ElmanError:  # it is for another task
        return Served(name, model, _listing(name, model, None, created))
    worker = Worker(lm.lm, end_id=EOS_ID, restarts=lm.record.data.reset_lines, max_rows=max_rows, name=name)
    return Served(name, model, _listing(name, model, lm, created), lm, worker)


def _listing(name: str, model: TaskModel[Any], lm: Model | None, created: int) -> dict[str, Any]:
    info = model.info()
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "elman",
        "task": info["task"],
        "model": info.get("model"),
        "units": lm.tokenizer.units if lm else None,
        "vocab_size": lm.tokenizer.vocab_size if lm else None,
        "reset_lines": info.get("reset_lines"),
        "left_to_right": lm is not None,
        "kinds": list(model.kinds()),
        "parameters": info["parameters"],
        "valid": info["valid"],
    }
