"""A model directory: config, tensors, tokenizer, card. What is loaded is what was saved, to the bit, or an error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator

from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError
from elman.core.settings import Config
from elman.tasks.choices import ModelConfig, tasks
from elman.tasks.lm import build
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.training.config import TrainConfig

R = TypeVar("R", bound="AnyRecord")
N = TypeVar("N")
CONFIG = "config.json"
TENSORS = "model.safetensors"
METRICS = "metrics.jsonl"
CURVES = "curves.svg"
CARD = "README.md"


class Source(Config):
    """The text a model was made from."""

    fingerprint: str
    lines: int
    tokens: int
    bytes: int


class AnyRecord(Config):
    """config.json: everything to rebuild a model, and how it came about."""

    model_type: Literal["elman"] = "elman"
    format_version: int = files.FORMAT_VERSION
    task: str
    data: SerializeAsAny[Config]
    model: SerializeAsAny[Config]
    seed: int
    train: TrainConfig | None = None  # nets only
    outcome: dict[str, Any] | None = None  # of a net's training: steps, tokens, passes, why it ended
    threads: int | None = None
    source: Source | None = None  # None for what was imported
    seconds: float | None = None
    command: str | None = None
    notes: tuple[str, ...] = ()  # what was said while it was made: discounts, weights, what was chosen
    valid: dict[str, Any] | None = None  # its numbers on the held-out text, by the keys of `evaluate`


class Record(AnyRecord):
    """A language model."""

    task: Literal["lm"] = "lm"
    vocab_size: int = Field(ge=1)
    eos_token_id: int = EOS_ID
    unk_token_id: int = UNK_ID
    data: DataConfig
    model: ModelConfig


class TaskRecord(AnyRecord):
    """A net for another task, whose settings are of that task's own kind."""

    labels: tuple[str, ...] = ()  # what it chooses from, where these are not the symbols of a tokenizer

    @field_validator("data", "model", mode="before")
    @classmethod
    def _of_its_task(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            return value
        found = tasks().get(info.data.get("task", ""))
        if found is None:
            raise ValueError("there is no such task")
        return getattr(found, info.field_name or "").model_validate(value)


@dataclass(frozen=True)
class Saved:
    """A model and all that belongs to it."""

    record: Record
    tokenizer: Tokenizer
    lm: build.Saveable
    manifest: files.Manifest


@contextlib.contextmanager
def reserve(directory: Path, *, overwrite: bool) -> Iterator[None]:
    """Make sure, before any work is done, that a model may be written there, and that nobody else does."""
    files.check_vacant(directory, overwrite=overwrite)
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
    record: AnyRecord,
    *,
    tensors: Mapping[str, Array],
    contents: Mapping[str, bytes],
    metrics: Sequence[Mapping[str, Any]] = (),
) -> files.Manifest:
    """Write a model into a directory that is reserved, in place of the one that was there.

    `contents` are its other files, as its tokenizer's. `metrics` is its journal, a line for each measurement; without
    one, its numbers on the held-out text are the only line.
    """
    if not metrics and record.valid:
        metrics = [{"split": "valid", **record.valid}]
    everything: dict[str, files.Content] = {
        CONFIG: _json(record.model_dump(mode="json")),
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


def task_of(directory: Path) -> str:
    """What the model in a directory is for."""
    task = _read_json(files.open_directory(directory, verify=False)).get("task")
    return task if isinstance(task, str) else "lm"


@dataclass(frozen=True)
class SavedTask(Generic[N]):
    """A net for a task, and all that belongs to it."""

    record: TaskRecord
    net: N
    read: Callable[[str], bytes]  # its other files
    manifest: files.Manifest


def load_task(
    directory: Path, restore: Callable[[TaskRecord, Callable[[str], bytes], dict[str, Array]], N], *, verify: bool
) -> SavedTask[N]:
    """The net for a task in a directory, as `restore` makes it from its record, its other files and its tensors."""

    def load_stored(stored: files.Stored) -> SavedTask[N]:
        record = _validated(TaskRecord, stored)
        with _explained(stored):
            net = restore(record, stored.read, stored.tensors(TENSORS))
        _verify_rest(stored)
        return SavedTask(record, net, stored.read, stored.manifest)

    return files.read_consistently(directory, load_stored, verify=verify)


def load(directory: Path, *, verify: bool = True) -> Saved:
    """The model in a directory."""
    return files.read_consistently(directory, _load, verify=verify)


def _load(stored: files.Stored) -> Saved:
    record = _validated(Record, stored)
    with ThreadPoolExecutor(max_workers=1) as pool:  # hashing a large model takes as long as reading a large vocabulary
        reading = pool.submit(stored.tensors, TENSORS)
        tokenizer = Tokenizer.from_files(stored.read)
    if tokenizer.vocab_size != record.vocab_size:
        raise DataError(
            f"{stored.directory} does not fit together: {tokenizer.vocab_size} symbols in its tokenizer, "
            f"{record.vocab_size} in {CONFIG}"
        )
    tensors = reading.result()
    with _explained(stored):
        lm = build.restore(record.model, tensors, vocab_size=record.vocab_size, reset_lines=record.data.reset_lines)
    _verify_rest(stored)
    return Saved(record, tokenizer, lm, stored.manifest)


@contextlib.contextmanager
def _explained(stored: files.Stored) -> Iterator[None]:
    """Errors of a model that cannot be put together say where it is."""
    try:
        yield
    except ElmanError as error:
        raise DataError(f"{stored.path(TENSORS)}: {error.what}", hint=error.hint) from None
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{stored.path(TENSORS)} does not fit {CONFIG}: {error}") from None


def _verify_rest(stored: files.Stored) -> None:
    for name in set(stored.manifest.files) & {METRICS, CURVES, CARD} if stored.verify else ():
        stored.read(name)  # not needed, but what the manifest vouches for is all there


def _validated(kind: type[R], stored: files.Stored) -> R:
    try:
        return kind.model_validate(_read_json(stored))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{stored.path(CONFIG)}: {place}: {first['msg'].lower()}") from None


def _read_json(stored: files.Stored) -> dict[str, Any]:
    try:
        content = json.loads(stored.read(CONFIG))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{stored.path(CONFIG)} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{stored.path(CONFIG)} is not a JSON object")
    return content


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def card(record: AnyRecord) -> str:
    """The model card: what it is, the command that made it, its numbers."""
    is_lm = isinstance(record, Record)
    family = record.model.family if isinstance(record, Record) else record.task
    lines = [
        "---",
        "library_name: elman",
        *(["pipeline_tag: text-generation"] if is_lm else []),
        "license: unknown",
        f"tags: [elman, {'language-model' if is_lm else 'sequence-model'}, {family}]",
        *(["metrics: [perplexity]"] if is_lm else []),
        "---",
        "",
        f"# A {'language' if is_lm else 'sequence'} model: {family}",
        "",
    ]
    if isinstance(record, Record):
        reads = "each line read alone" if record.data.reset_lines else "lines read as one stream"
        lines.append(f"- units `{record.data.units}`, {record.vocab_size:,} symbols, {reads}")
    if record.source:
        lines.append(f"- made from {record.source.tokens:,} tokens in {record.source.lines:,} lines")
    settings = {key: value for key, value in record.model.model_dump(mode="json").items() if key != "family"}
    if settings and "members" not in settings:
        lines.append("- settings: " + ", ".join(f"`model.{key}={_setting(value)}`" for key, value in settings.items()))
    lines.append(f"- seed {record.seed}")
    if record.command:
        lines += ["", "Made by", "", "```sh", record.command, "```"]
    if record.valid:
        rows = [(key, value) for key, value in record.valid.items() if value is not None]
        lines += ["", "On held-out text:", "", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)]
    if record.notes:
        lines += ["", "Notes:", "", *(f"- {note}" for note in record.notes)]
    uses = ("generate DIR", "next DIR PROMPT", "evaluate DIR FILE") if is_lm else ("predict DIR", "evaluate DIR FILE")
    lines += ["", f"Use it with {', '.join(f'`elman {use}`' for use in uses)}.", ""]
    return "\n".join(lines)


def _setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
