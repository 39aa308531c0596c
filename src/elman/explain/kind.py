"""What a kind of explanation is, and what it may ask of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from elman.core.settings import Config
from elman.explain.explanation import Explanation
from elman.explain.reading import Reading


class Explainable(Protocol):
    """A trained model at the text level, as far as kinds of explanations know it."""

    @property
    def directory(self) -> Path | None:
        """Where it was loaded from."""

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """The kinds of explanations that it can give; the first says most, for this text."""

    def reading(self, text: str) -> Reading:
        """A text as its net reads it."""

    def language_model(self) -> Any:
        """The language model that it is or holds: `trace(text)`, `lm`, `tokenizer`."""


class NoOptions(Config):
    """Of kinds that have no settings."""


O = TypeVar("O", bound=Config)  # noqa: E741


class Kind(ABC, Generic[O]):
    """One kind of explanation."""

    options: ClassVar[type[Config]] = NoOptions  # its settings, each with a description
    compares: ClassVar[bool] = False  # whether it takes several models
    needs_text: ClassVar[bool] = True

    @abstractmethod
    def explain(self, models: Sequence[Any], texts: Sequence[str], options: O) -> Explanation:
        """What models do with texts. Models can give this kind; there is at least one of each, where a text is needed."""


def name_of(model: Explainable) -> str:
    """A model in a picture."""
    return model.directory.name if model.directory else "model"
