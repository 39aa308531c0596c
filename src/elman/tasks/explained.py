"""What every model can be asked by those who look inside; a model says which kinds it can give, and how."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.explanation import Explanation
from elman.explain.filling import Filler
from elman.explain.reading import AttentionMap, Reading
from elman.lm.protocol import refuse_nan


class Explained:
    """A model that explains itself, as far as it says so."""

    record: Any
    directory: Path | None

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """Every array that is saved."""

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """The kinds of explanations that it can give; the first says most, for this text."""
        return ()

    def explain(self, text: str | Sequence[str] = (), *, kind: str | None = None, **options: Any) -> Explanation:
        """What it does with a text, or several: shows itself in a notebook. `options` are settings of the kind."""
        from elman.explain import explain

        for array in self.tensors().values():  # one that is loaded was looked at; one that was just trained was not
            if array.dtype.kind == "f":
                refuse_nan(array)
        return explain([self], [text] if isinstance(text, str) else list(text), kind=kind, options=options)

    def reading(self, text: str) -> Reading:
        """A text as its net reads it, for those who look inside; an error where it has none to show."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task}, which shows no reading",
            code="not-for-this-model",
        )

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Where it looked while it read a text, the most telling map first; an error where it has no attention."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task} without attention",
            code="not-for-this-model",
        )

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Its words, the most frequent first, and the vector of each, (V, E); an error where words have none."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task} without word vectors",
            code="not-for-this-model",
        )

    def filler(self) -> Filler:
        """How it fills a gap in a text; an error where it fills none."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task}, which fills no gaps",
            code="not-for-this-model",
        )

    def language_model(self) -> Any:
        """The language model that it is or holds; an error where it is none."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task}, not a language model",
            code="not-for-this-model",
        )
