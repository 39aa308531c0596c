"""What belongs to a reader besides its weights: its words, and those that answers are written in."""

from __future__ import annotations

from dataclasses import dataclass

from elman.tasks.base import ReadFile
from elman.tasks.qa.config import ReaderConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.word_list import WordList

ANSWER_PREFIX = "answer_"  # prefix of the files of the answers' tokenizer


@dataclass(frozen=True)
class QaAssets:
    """Words of contexts and questions; the tokenizer of answers that are written."""

    words: WordList
    answers: Tokenizer | None = None

    def files(self) -> dict[str, bytes]:
        """What to store."""
        found = dict(self.words.tokenizer.files())
        if self.answers is not None:
            found |= {ANSWER_PREFIX + name: content for name, content in self.answers.files().items()}
        return found


def read_assets(model: ReaderConfig, read: ReadFile) -> QaAssets:
    """What was stored."""
    words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
    if model.answer != "generated":
        return QaAssets(words)
    return QaAssets(words, Tokenizer.from_files(lambda name: read(ANSWER_PREFIX + name)))
