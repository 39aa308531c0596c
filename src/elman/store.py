"""A model directory: config, tensors, other files, a card. What is loaded is what was saved, to the bit, or an error.

Knows nothing of tasks: whoever loads a model says what its record is and how it is put together.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError, WriteError
from elman.core.settings import Config
from elman.core.stored import FORMAT_VERSION, Manifest, Stored, read_consistently
from elman.training.config import TrainConfig
from elman.training.journal import METRICS

D = TypeVar("D", bound=Config)
M = TypeVar("M", bound=Config)
R = TypeVar("R", bound="Record[Any, Any]")
T = TypeVar("T")

CONFIG = "config.json"
TENSORS = "model.safetensors"
CURVES = "curves.svg"
CARD = "README.md"


class Source(Config):
    """The data a model was made from."""

    fingerprint: str
    lines: int
    tokens: int
    bytes: int


class Record(Config, Generic[D, M]):
    """config.json: everything to rebuild a model, and how it came about."""

    model_type: Literal["elman"] = "elman"
    format_version: int = FORMAT_VERSION
    task: str
    data: D
    model: M
    seed: int
    train: TrainConfig | None = None  # nets only
    outcome: dict[str, Any] | None = None  # of a net's training: steps, tokens, passes, why it ended
    threads: int | None = None
    source: Source | None = None  # None for what was imported
    seconds: float | None = None
    command: str | None = None
    notes: tuple[str, ...] = ()  # what was said while it was made: discounts, weights, what was chosen
    valid: dict[str, Any] | None = None  # its numbers on the held-out data, by the keys of `evaluate`

    def headline(self) -> str:
        """What it is, for the title of its card."""
        return f"sequence model: {self.task}"

    def card_metadata(self) -> list[str]:
        """Lines of the card's YAML header that depend on the task."""
        return [f"tags: [elman, sequence-model, {self.task}]"]

    def card_facts(self) -> list[str]:
        """What there is to say of its data."""
        return []

    def uses(self) -> tuple[str, ...]:
        """The verbs to use it with."""
        return ("predict DIR", "evaluate DIR FILE")


class LabelRecord(Record[D, M]):
    """A record of a model that may choose from labels which are not the symbols of a tokenizer."""

    labels: tuple[str, ...] = ()


@contextlib.contextmanager
def reserve(directory: Path, *, overwrite: bool) -> Iterator[None]:
    """Make sure, before any work is done, that a model may be written there, and that nobody else does."""
    try:
        files.check_vacant(directory, overwrite=overwrite)
    except WriteError:
        files.refuse_busy(directory)  # what is in the way belongs to somebody who is still at work
        raise
    with files.lock(directory):
        files.check_vacant(directory, overwrite=overwrite)
        files.recover(directory)
        yield


@contextlib.contextmanager
def reserve_run(directory: Path) -> Iterator[None]:
    """Make sure that nobody else goes on with the run that is there."""
    with files.lock(directory):
        files.recover(directory)
        yield


def save(
    directory: Path,
    record: Record[Any, Any],
    *,
    tensors: Mapping[str, Array],
    contents: Mapping[str, bytes],
    metrics: Sequence[Mapping[str, Any]] = (),
) -> Manifest:
    """Write a model into a directory that is reserved, in place of the one that was there.

    `contents` are its other files, as its tokenizer's. `metrics` is its journal, a line for each measurement; without
    one, its numbers on the held-out data are the only line.
    """
    if not metrics and record.valid:
        metrics = [{"split": "valid", **record.valid}]
    everything: dict[str, files.Content] = {
        CONFIG: json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False).encode() + b"\n",
        TENSORS: tensors,
        CARD: card(record).encode(),
        **contents,
    }
    if metrics:
        everything[METRICS] = b"".join(json.dumps(line).encode() + b"\n" for line in metrics)
    return files.commit(
        directory,
        everything,
        seed=record.seed,
        threads=record.threads,
        data_fingerprint=record.source.fingerprint if record.source else None,
    )


@dataclass(frozen=True)
class Saved(Generic[R]):
    """The files of a model, opened: its record is read, the rest when it is asked for."""

    record: R
    _stored: Stored

    @property
    def directory(self) -> Path:
        return self._stored.directory

    def read(self, name: str) -> bytes:
        """One of its other files."""
        return self._stored.read(name)

    def tensors(self) -> dict[str, Array]:
        """Its weights or tables, memory-mapped."""
        return self._stored.tensors(TENSORS)

    def restore(self, build: Callable[[dict[str, Array]], T], tensors: dict[str, Array] | None = None) -> T:
        """What `build` makes of its tensors; where these do not fit, an error says which file it was."""
        tensors = self.tensors() if tensors is None else tensors
        try:
            return build(tensors)
        except ElmanError as error:
            raise DataError(f"{self._stored.path(TENSORS)}: {error.what}", code=error.code, hint=error.hint) from None
        except (LookupError, TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
            raise DataError(
                f"{self._stored.path(TENSORS)} does not fit {CONFIG}: {error}", code="damaged-model"
            ) from None

    @property
    def num_bytes(self) -> int:
        """Of all its files."""
        return sum(entry.size for entry in self._stored.manifest.files.values())


def load(directory: Path, kind: type[R], restore: Callable[[Saved[R]], T], *, verify: bool) -> T:
    """The model in a directory, as `restore` makes it from its files. Only what it reads is verified, not the card."""

    def load_stored(stored: Stored) -> T:
        return restore(Saved(_validated(kind, stored), stored))

    return read_consistently(directory, load_stored, verify=verify)


def task_of(directory: Path, *, verify: bool = True) -> str:
    """What the model in a directory is for."""
    task = read_consistently(directory, _read_json, verify=verify).get("task")
    return task if isinstance(task, str) else "lm"


def _validated(kind: type[R], stored: Stored) -> R:
    content = _read_json(stored)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{stored.path(CONFIG)}: {place}: {first['msg'].lower()}", code="damaged-model") from None
    except ElmanError as error:  # a family or task that this version does not have
        raise DataError(f"{stored.path(CONFIG)}: {error.what}", code=error.code, hint=error.hint) from None


def _read_json(stored: Stored) -> dict[str, Any]:
    try:
        content = json.loads(stored.read(CONFIG))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{stored.path(CONFIG)} is not JSON: {error}", code="damaged-model") from None
    if not isinstance(content, dict):
        raise DataError(f"{stored.path(CONFIG)} is not a JSON object", code="damaged-model")
    return content


def card(record: Record[Any, Any]) -> str:
    """The model card: what it is, the command that made it, its numbers."""
    lines = ["---", "library_name: elman", *record.card_metadata(), "license: unknown", "---", ""]
    lines += [f"# A {record.headline()}", "", *(f"- {fact}" for fact in record.card_facts())]
    if record.source:
        lines.append(f"- made from {record.source.tokens:,} tokens in {record.source.lines:,} lines")
    settings = {key: value for key, value in record.model.model_dump(mode="json").items() if key != "family"}
    if settings and "members" not in settings:
        lines.append("- settings: " + ", ".join(f"`model.{key}={_setting(value)}`" for key, value in settings.items()))
    lines.append(f"- seed {record.seed}")
    if record.command:
        lines += ["", "Made by", "", "```sh", record.command, "```"]
    if record.valid:
        rows = [
            (key, value) for key, value in record.valid.items() if value is not None and not isinstance(value, list)
        ]
        lines += ["", "On held-out data:", "", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)]
    if record.notes:
        lines += ["", "Notes:", "", *(f"- {note}" for note in record.notes)]
    lines += ["", f"Use it with {', '.join(f'`elman {use}`' for use in record.uses())}.", ""]
    return "\n".join(lines)


def _setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
