"""A text that was read with recording on, and its tokens in colours. For kinds that show numbers over a text.

T tokens · H hidden
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.explanation import LONGEST_TOKEN, Line, Span, column, shorten, shown
from elman.explain.reading import Reading, refuse_empty
from elman.text.units.vocabulary import EOS, UNK

if TYPE_CHECKING:
    from torch import Tensor

    from elman.nets.trace import NetTrace

WIDTH = 96  # columns of a terminal
END = "↵"  # of a line


@dataclass(frozen=True)
class RecordedText:
    """Tokens of a text and what was recorded of each."""

    tokens: Sequence[str]
    texts: Sequence[str]  # as they are drawn: ends of lines as arrows, unknown ones with a question mark
    traced: NetTrace
    first: int  # of the recorded steps: 1 where they begin with a start symbol
    notes: list[str]

    @property
    def names(self) -> list[str]:
        """The tokens in a picture, where spaces have to be seen."""
        return [shown(text) for text in self.texts]

    def steps(self, tensors: Sequence[Tensor]) -> Array:
        """Recorded steps of the tokens. -> (T, H)"""
        import torch

        found: Array = torch.cat(list(tensors))[self.first :][: len(self.tokens)].to(torch.float64).cpu().numpy()
        return found


def read_recorded(reading: Reading, most: int) -> RecordedText:
    """Read a text with recording on, without gradients; of what is read from both sides all is read, and a part shown."""
    import torch

    first = int(reading.is_causal)  # the start symbol
    tokens, known = reading.tokens[first:], reading.is_known[first:]
    refuse_empty(tokens)
    notes = []
    if len(tokens) > most:
        notes.append(f"only the first {most:,} of {len(tokens):,} tokens were looked at")
    with torch.no_grad():
        words = reading.words()
        traced, _ = reading.trace(words[: first + most] if reading.is_causal else words)
    if not traced.layers:
        raise UsageError(
            "this model has no layers between its words and its output",
            code="not-for-this-model",
            hint="model.layers=1 has one",
        )
    unknown = sum(not one for one in known[:most])
    if unknown:
        notes.append(f"{unknown:,} of the tokens are unknown to the model")
    texts = [END if token == EOS else shorten(token, LONGEST_TOKEN) for token in tokens[:most]]
    texts = [text if one or text == UNK else f"{text}?" for text, one in zip(texts, known[:most], strict=True)]
    return RecordedText(tokens[:most], texts, traced, first, notes)


def coloured_text(texts: Sequence[str], values: Array, *, most: int | None = None) -> list[Line]:
    """Tokens coloured by values (T,), the strongest most; below each line the same values as blocks.

    most: only so many lines of it.
    """
    strongest, lowest = float(np.abs(values).max()) or 1.0, float(values.min())
    reach = float(values.max()) - lowest or 1.0
    # characters and pieces of words bring their own spaces
    gap = "" if any(" " in text for text in texts) or all(len(text) == 1 for text in texts) else " "
    lines: list[Line] = []
    above: list[Span] = []
    below: list[Span] = []
    for place, (text, value) in enumerate(zip(texts, values.tolist(), strict=True)):
        above += [Span(text, value / strongest), Span(gap)]
        below += [Span(column((value - lowest) / reach) * len(text)), Span(gap)]
        following = texts[place + 1] if place + 1 < len(texts) else None
        is_full = following is not None and sum(len(span.text) for span in above) + len(following) > WIDTH
        if following is None or is_full or text == END:
            lines += [above, below]
            above, below = [], []
    return lines if most is None else lines[: 2 * most]


def liveliest_part(texts: Sequence[str], values: Array, *, lines: int) -> int:
    """Where to begin, at the beginning of a line, so that values (T,) differ most in what fills so many lines."""
    size = round(lines * WIDTH / np.mean([len(text) + 0.5 for text in texts]))
    begins = [0, *(place + 1 for place, text in enumerate(texts[:-1]) if text == END)]
    return max(begins, key=lambda begin: float(values[begin : begin + size].std()))
