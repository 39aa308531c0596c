"""A trained model of both directions (`train bilm`) inside another net: read from its directory, kept with the net."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.config import RecurrentConfig
from elman.tasks.tag.bilm_words import UNITS, ForeignWords
from elman.text.units.tokenizer import Tokenizer

BILM_CONFIG = "bilm_config.json"  # of the directory of a net that has one: its settings
TENSORS = "bilm."  # with which the names of its tensors begin, in a run and in the net
HEADS = ("onward.head.", "backward.head.")  # of its tensors, those that only predict words


@dataclass(frozen=True)
class Borrowed:
    """Settings, words and tensors of such a model."""

    config: RecurrentConfig
    words: ForeignWords
    tensors: dict[str, Array]  # under the names that they have in a net

    def files(self) -> dict[str, bytes]:
        """What to store besides its words."""
        return {BILM_CONFIG: self.config.model_dump_json().encode()}


def read_bilm(directory: Path) -> Borrowed:
    """The model in a directory, whose symbols have to be words. Never imports torch."""
    task = store.task_of(directory)
    if task != "bilm":
        raise UsageError(
            f"model.bilm: {directory} holds a model for {task}, not for bilm",
            hint="`elman train bilm TEXT --units word --out DIR` makes one",
        )
    saved = store.load_task(directory, lambda record, read, tensors: tensors, verify=True)
    tokenizer = Tokenizer.from_files(saved.read)
    if tokenizer.units not in UNITS:
        raise UsageError(
            f"model.bilm: {directory} reads {tokenizer.units} units, and the words of a sentence are not its symbols",
            hint="train one on words: `elman train bilm TEXT --units word`, or `--units space` for text that is split",
        )
    assert isinstance(saved.record.model, RecurrentConfig)
    tensors = {TENSORS + name: array.copy() for name, array in saved.net.items() if not name.startswith(HEADS)}
    return Borrowed(saved.record.model, ForeignWords(tokenizer), tensors)


def bilm_settings(content: bytes) -> RecurrentConfig:
    """The settings that were stored."""
    return RecurrentConfig.model_validate_json(content)
