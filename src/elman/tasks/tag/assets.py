"""What belongs to a tagger besides its weights: words, characters, and a trained `bilm` that it reads with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.tasks.base import ReadFile
from elman.tasks.bilm.config import BilmConfig
from elman.tasks.bilm.task import BilmRecord
from elman.tasks.tag.bilm_words import UNITS, BilmWords
from elman.tasks.tag.config import TaggerConfig
from elman.tasks.tag.data import BILM_PREFIX, CHARACTER_PREFIX, Lexicon
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.word_list import WordList

BILM_CONFIG = "bilm_config.json"  # the settings of the language models inside
BILM_TENSORS = "bilm."  # prefix of the bilm's tensors, in a run and in the net
HEADS = ("onward.head.", "backward.head.")  # prefixes of the bilm's tensors that only predict words, and are left out


@dataclass(frozen=True)
class TagAssets:
    """The lexicon, and the settings of the language models inside."""

    lexicon: Lexicon
    bilm: BilmConfig | None = None

    def files(self) -> dict[str, bytes]:
        """What to store."""
        settings = {} if self.bilm is None else {BILM_CONFIG: self.bilm.model_dump_json().encode()}
        return {**self.lexicon.files(), **settings}


def read_assets(model: TaggerConfig, read: ReadFile) -> TagAssets:
    """What was stored."""
    words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
    characters = Tokenizer.from_files(lambda name: read(CHARACTER_PREFIX + name))
    if model.bilm is None:
        return TagAssets(Lexicon(words, characters))
    known = BilmWords(Tokenizer.from_files(lambda name: read(BILM_PREFIX + name)))
    settings = BilmConfig.model_validate_json(read(BILM_CONFIG))
    return TagAssets(Lexicon(words, characters, known), settings)


@dataclass(frozen=True)
class TrainedBilm:
    """Settings, words and tensors of a model of `train bilm`, to be read with."""

    config: BilmConfig
    words: BilmWords
    tensors: dict[str, Array]  # under the names that they have in a tagger


def read_bilm(directory: Path) -> TrainedBilm:
    """The model in a directory, whose symbols have to be words. Never imports torch."""
    task = store.task_of(directory)
    if task != "bilm":
        raise UsageError(
            f"model.bilm: {directory} holds a model for {task}, not for bilm",
            code="base-mismatch",
            hint="`elman train bilm TEXT --units word --out DIR` makes one",
        )

    def restore(saved: store.Saved[BilmRecord]) -> TrainedBilm:
        tokenizer = Tokenizer.from_files(saved.read)
        if tokenizer.units not in UNITS:
            raise UsageError(
                f"model.bilm: {directory} reads {tokenizer.units} units, and the words of a sentence are not its symbols",
                code="base-mismatch",
                hint="train one on words: `elman train bilm TEXT --units word`, or `--units space` for text that is split",
            )
        kept = {name: array for name, array in saved.tensors().items() if not name.startswith(HEADS)}
        tensors = {BILM_TENSORS + name: array.copy() for name, array in kept.items()}
        return TrainedBilm(saved.record.model, BilmWords(tokenizer), tensors)

    return store.load(directory, BilmRecord, restore, verify=True)
