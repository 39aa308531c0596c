"""A model directory: config, tensors, tokenizer, card. What is loaded is what was saved, to the bit, or an error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from elman import build, files
from elman.config import Config, DataConfig, ModelConfig, TrainConfig
from elman.errors import DataError, ElmanError
from elman.text.tokenizer import Tokenizer
from elman.text.vocabulary import EOS_ID, UNK_ID

CONFIG = "config.json"
TENSORS = "model.safetensors"
METRICS = "metrics.jsonl"
CARD = "README.md"


class Source(Config):
    """The text a model was made from."""

    fingerprint: str
    lines: int
    tokens: int
    bytes: int


class Record(Config):
    """config.json: everything to rebuild a model, and how it came about."""

    model_type: Literal["elman"] = "elman"
    format_version: int = files.FORMAT_VERSION
    task: Literal["lm"] = "lm"
    vocab_size: int = Field(ge=1)
    eos_token_id: int = EOS_ID
    unk_token_id: int = UNK_ID
    data: DataConfig
    model: ModelConfig
    seed: int
    train: TrainConfig | None = None  # nets only
    outcome: dict[str, Any] | None = None  # of a net's training: steps, tokens, passes, why it ended
    threads: int | None = None
    source: Source | None = None  # None for what was imported
    seconds: float | None = None
    command: str | None = None
    notes: tuple[str, ...] = ()  # what was said while it was made: discounts, weights, what was chosen
    valid: dict[str, Any] | None = None  # its numbers on the held-out text, by the keys of `evaluate`


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
    record: Record,
    *,
    tokenizer: Tokenizer,
    lm: build.Saveable,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> files.Manifest:
    """Write a model into a directory that is reserved, in place of the one that was there.

    `metrics` is its journal, a line for each measurement; without one, its numbers on the held-out text are the only line.
    """
    if not metrics and record.valid:
        metrics = [{"split": "valid", **record.valid}]
    contents: dict[str, files.Content] = {
        CONFIG: _json(record.model_dump(mode="json")),
        TENSORS: lm.tensors(),
        CARD: card(record).encode(),
        **tokenizer.files(),
    }
    if metrics:
        contents[METRICS] = b"".join(json.dumps(line).encode() + b"\n" for line in metrics)
    return files.commit(
        directory,
        contents,
        seed=record.seed,
        threads=record.threads,
        data_fingerprint=record.source.fingerprint if record.source else None,
    )


def load(directory: Path, *, verify: bool = True) -> Saved:
    """The model in a directory."""
    return files.read_consistently(directory, _load, verify=verify)


def _load(stored: files.Stored) -> Saved:
    record = _read_record(stored)
    with ThreadPoolExecutor(max_workers=1) as pool:  # hashing a large model takes as long as reading a large vocabulary
        reading = pool.submit(stored.tensors, TENSORS)
        tokenizer = Tokenizer.from_files(stored.read)
    if tokenizer.vocab_size != record.vocab_size:
        raise DataError(
            f"{stored.directory} does not fit together: {tokenizer.vocab_size} symbols in its tokenizer, "
            f"{record.vocab_size} in {CONFIG}"
        )
    tensors = reading.result()
    try:
        lm = build.restore(record.model, tensors, vocab_size=record.vocab_size, reset_lines=record.data.reset_lines)
    except ElmanError as error:
        raise DataError(f"{stored.path(TENSORS)}: {error.what}", hint=error.hint) from None
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{stored.path(TENSORS)} does not fit {CONFIG}: {error}") from None
    for name in set(stored.manifest.files) & {METRICS, CARD} if stored.verify else ():
        stored.read(name)  # not needed, but what the manifest vouches for is all there
    return Saved(record, tokenizer, lm, stored.manifest)


def _read_record(stored: files.Stored) -> Record:
    path = stored.path(CONFIG)
    try:
        return Record.model_validate(json.loads(stored.read(CONFIG)))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {place}: {first['msg'].lower()}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def card(record: Record) -> str:
    """The model card: what it is, the command that made it, its numbers."""
    family = record.model.family
    lines = [
        "---",
        "library_name: elman",
        "pipeline_tag: text-generation",
        "license: unknown",
        f"tags: [elman, language-model, {family}]",
        "metrics: [perplexity]",
        "---",
        "",
        f"# A language model: {family}",
        "",
        f"- units `{record.data.units}`, {record.vocab_size:,} symbols, "
        + ("each line read alone" if record.data.reset_lines else "lines read as one stream"),
    ]
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
    lines += ["", "Use it with `elman generate DIR`, `elman next DIR PROMPT`, `elman evaluate DIR FILE`.", ""]
    return "\n".join(lines)


def _setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
