"""What a kind of explanation is, and what it may ask of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import Field

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.explain.explanation import Explanation
from elman.explain.filling import Filler
from elman.explain.reading import AttentionMap, Reading


class Explainable(Protocol):
    """A trained model at the text level, as far as kinds of explanations know it."""

    @property
    def directory(self) -> Path | None:
        """Where it was loaded from."""

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """The kinds of explanations that it can give; the first says most, for this text."""

    def reading(self, text: str) -> Reading:
        """A text as its net reads it."""

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Where it looked, the most telling map first. target: of a pair, instead of the best one it finds."""

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Its words, the most frequent first, and the vector of each. -> (V, E)"""

    def filler(self) -> Filler:
        """How it fills a gap in a text."""

    def language_model(self) -> Any:
        """The language model that it is or holds: `trace(text)`, `lm`, `tokenizer`."""


OF_WORDS = ("neighbours", "analogy", "map")  # kinds that need word vectors alone


def of_cells(family: str, *, recurrence: str | None = None) -> tuple[str, ...]:
    """The kinds that show what recurrent layers do."""
    has_gates = family in ("gru", "lstm") or recurrence == "gated"
    return ("states", "gates") if has_gates else ("states",)


class KindOptions(Config):
    """Settings of every kind."""

    seed: int = Field(1, ge=0, description="seed of everything random")


O = TypeVar("O", bound=KindOptions)  # noqa: E741


class Kind(ABC, Generic[O]):
    """One kind of explanation."""

    options: ClassVar[type[KindOptions]] = KindOptions  # its settings, each with a description
    compares: ClassVar[bool] = False  # whether it takes several models
    needs_text: ClassVar[bool] = True

    def __init__(self, report: Callable[[float], None] = lambda share: None) -> None:
        self.report = report  # a kind that takes long says how much of it is done, from 0 to 1

    @abstractmethod
    def explain(self, models: Sequence[Any], texts: Sequence[str], options: O) -> Explanation:
        """What models do with texts. Models can give this kind; there is at least one of each, where a text is needed."""


def name_of(model: Explainable) -> str:
    """A model in a picture."""
    return model.directory.name if model.directory else "model"


def names_of(models: Sequence[Explainable]) -> list[str]:
    """Several models in one picture: by the names of their directories, numbered where two are the same."""
    names = [name_of(model) for model in models]
    return [f"{name} {place + 1}" if names.count(name) > 1 else name for place, name in enumerate(names)]
