"""What belongs to a classifier besides its weights: its words, and the linear model beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elman.tasks.base import ReadFile
from elman.tasks.classify.config import ClassifierConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.word_list import WordList

if TYPE_CHECKING:
    from elman.tasks.classify.linear import LinearModel

LINEAR = "linear.safetensors"


@dataclass(frozen=True)
class ClassifyAssets:
    """Words, and the linear model where there is one."""

    words: WordList
    linear: LinearModel | None

    def files(self) -> dict[str, bytes]:
        """What to store."""
        from safetensors.numpy import save

        found = dict(self.words.tokenizer.files())
        if self.linear is not None:
            found[LINEAR] = save(self.linear.tensors())
        return found


def read_assets(model: ClassifierConfig, read: ReadFile) -> ClassifyAssets:
    """What was stored."""
    from safetensors.numpy import load

    from elman.tasks.classify.linear import LinearModel

    words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
    linear = LinearModel.from_tensors(model.output, load(read(LINEAR))) if model.baseline else None
    return ClassifyAssets(words, linear)
