"""What was written for a source, how it is printed, and how it is searched for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elman.core.arrays import Array
from elman.tasks.base import Prediction, PredictOptions
from elman.tasks.measuring import rounded

BEAM = 5
LENGTH_PENALTY = 0.6


@dataclass(frozen=True)
class Translation:
    """What was written for a source, and how sure the model was: nats is -log p, its end included."""

    text: str
    nats: float
    tokens: tuple[str, ...]  # of the target, the end among them
    source_tokens: tuple[str, ...]
    attention: Array | None = field(default=None, repr=False)  # (target tokens, source tokens), rows sum to one
    is_cut: bool = False  # of its source only the beginning was read

    def alignment(self) -> str:
        """The source place that attention looked at most for each target token, as aligners write it: 0-0 2-1."""
        if self.attention is None:
            return ""
        places = self.attention[: len(self.tokens) - 1, : len(self.source_tokens) - 1]
        return " ".join(f"{int(row.argmax())}-{place}" for place, row in enumerate(places) if len(row))

    def as_json(self) -> dict[str, Any]:
        """Text, nats and tokens; the attention where it was asked for."""
        record: dict[str, Any] = {"text": self.text, "nats": self.nats, "tokens": list(self.tokens)}
        if self.attention is not None:
            record |= {"source_tokens": list(self.source_tokens), "attention": rounded(self.attention)}
        return record


@dataclass(frozen=True)
class SearchOptions:
    """How to search: a beam of one is greedy."""

    beam: int = BEAM
    n_best: int = 1
    length_penalty: float = LENGTH_PENALTY
    prefix: str = ""  # with which every target has to begin
    max_tokens: int | None = None
    copies_unknown: bool = True  # unknown words are copied from where attention looked
    with_attention: bool = False
    truncates: bool = False  # sources that are too long are cut instead of refused


@dataclass(frozen=True)
class Translations(Prediction):
    """The best targets of one source, as they are printed."""

    number: int  # of the source, from 1
    source: str
    best: Sequence[Translation]
    options: PredictOptions

    @property
    def is_cut(self) -> bool:  # type: ignore[override]
        """Whether only the beginning of the source was read."""
        return any(one.is_cut for one in self.best)

    def pair(self) -> tuple[str, str | None]:
        """The source and its best target."""
        return self.source, self.best[0].text

    def line(self) -> str:
        """The best target; of several a line each: number, text, nats. Alignments behind."""
        lines = []
        for one in self.best:
            columns = [str(self.number), one.text, f"{one.nats:.4f}"] if self.options.n_best else [one.text]
            lines.append("\t".join([*columns, one.alignment()] if self.options.alignments else columns))
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """With tokens and attention."""
        return {"source": self.source, "predictions": [one.as_json() for one in self.best]}
