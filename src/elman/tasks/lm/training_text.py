"""The text that a model was trained on, as ids, where it can still be had."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from elman.core.errors import DataError, MissingError
from elman.explain.training_text import TrainingText
from elman.store import Source
from elman.tasks.lm.record import LmRecord
from elman.text.corpus import Corpus, corpus_of, read_corpus
from elman.text.units.tokenizer import Tokenizer

HINT = "train with --set data.index=true; elman explain takes another text by --set data=FILE"


def read_training_text(record: LmRecord, tokenizer: Tokenizer, data: Path | None, where: str) -> TrainingText:
    """What a file holds, or the files that the command names which trained the model; what was held out is apart.

    Without `data`, an error where the files are gone or have changed.
    """
    files, valid = _named_files(record.command)
    if data is not None:
        corpus = read_corpus([data], tokenizer, record.data)
        held_out = _held_out(corpus, record.source)
        if held_out is None:
            return TrainingText(corpus.ids, str(data), notes=(f"{data} is not the text that {where} was trained on",))
    else:
        if record.source is None or not files:
            raise MissingError(f"nothing says which text {where} was trained on", code="no-training-text", hint=HINT)
        missing = [file for file in files if not Path(file).exists()]
        if missing:
            raise MissingError(
                f"the training text of {where} is gone: {', '.join(missing)}", code="no-training-text", hint=HINT
            )
        corpus = read_corpus(files, tokenizer, record.data)
        held_out = _held_out(corpus, record.source)
        if held_out is None:
            raise DataError(
                f"{', '.join(files)} has changed since {where} was trained on it", code="data-changed", hint=HINT
            )
    found = TrainingText(corpus.ids[: len(corpus.ids) - held_out], str(data or ", ".join(files)))
    if held_out:
        return replace(found, heldout_ids=corpus.ids[len(corpus.ids) - held_out :])
    if valid is not None and Path(valid).is_file():
        return replace(found, heldout_ids=read_corpus([valid], tokenizer, record.data).ids)
    return found


def _held_out(corpus: Corpus, source: Source | None) -> int | None:
    """How many tokens stand behind those that a model was trained on; None if it was trained on others."""
    if source is None or len(corpus.ids) < source.tokens or corpus.num_lines < source.lines:
        return None
    part = corpus_of(corpus.ids[: source.tokens], corpus.line_bytes[: source.lines])
    return len(corpus.ids) - source.tokens if part.fingerprint == source.fingerprint else None


def _named_files(command: str | None) -> tuple[list[str], str | None]:
    """DATA and --valid of a command `elman train TASK DATA... --valid F`."""
    words = shlex.split(command or "")
    if words[1:2] != ["train"]:
        return [], None
    files: list[str] = []
    for word in words[3:]:
        if word.startswith("-"):
            break
        files.append(word)
    valid = words[words.index("--valid") + 1 :][:1] if "--valid" in words else []
    return files, next(iter(valid), None)
