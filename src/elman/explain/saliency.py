"""Which tokens a prediction is made of: gradient times input, or integrated gradients (Sundararajan et al. 2017).

T tokens that are read · R predictions · E width of a word
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.explanation import Explanation, Line, Span, shown
from elman.explain.kind import Kind, KindOptions, name_of
from elman.explain.reading import Reading
from elman.explain.row_gradients import Predictions

SHOWN_TOKENS = 100  # more tokens than this are not drawn side by side


class SaliencyOptions(KindOptions):
    """Settings of `saliency`."""

    method: Literal["gradient", "integrated"] = Field(
        "gradient",
        description="gradient: the slope times the vector of a token; integrated: the mean slope on the way from zero, so"
        " that the parts add up to what the prediction gains",
    )
    steps: int = Field(50, ge=1, le=1000, description="of integrated gradients: places on the way from zero")
    row: int | None = Field(None, ge=1, description="only this prediction, counted from 1; all of them if not given")
    tokens: int = Field(256, ge=1, le=10_000, description="of a longer text only the first so many tokens are read")


class Saliency(Kind[SaliencyOptions]):
    """How much each token speaks for (or against) what was predicted."""

    options = SaliencyOptions

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: SaliencyOptions) -> Explanation:
        """A row for each prediction, a column for each token."""
        reading: Reading = models[0].reading("\n".join(texts))
        # what reads both ways is read whole: without its end it is another text
        num_tokens = min(len(reading.tokens), options.tokens) if reading.is_causal else len(reading.tokens)
        rows = _rows(reading, min(num_tokens, options.tokens), options.row)
        integrated = options.method == "integrated"
        steps = options.steps if integrated else None
        parts, change = attributions(reading, rows, num_tokens, steps=steps, report=self.report)
        tokens = [
            shown(token) if known else f"{shown(token)} (unknown)"
            for token, known in zip(reading.tokens[:num_tokens], reading.is_known, strict=False)
        ]
        names = [f"{shown(reading.rows[row])}{_answer(reading, row)}" for row in rows]
        method = "Integrated gradients" if integrated else "Gradient times input"
        title = f"{method} of {name_of(models[0])}"
        notes = list(reading.notes)
        if options.row is None and len(rows) < len(reading.rows):
            notes.append(f"the first {len(rows):,} of {len(reading.rows):,} predictions are explained")
        if num_tokens < len(reading.tokens):
            notes.append(f"only the first {num_tokens:,} of {len(reading.tokens):,} tokens were read")
        if integrated:
            gap = float(np.abs(parts.sum(axis=1) - change).max(initial=0))
            notes.append(f"the parts add up to what each prediction gains over zero vectors, to {gap:.2g} at worst")
        data = {
            "method": options.method,
            "tokens": list(reading.tokens[:num_tokens]),
            "rows": [
                {
                    "row": int(row) + 1,
                    "about": reading.rows[row],
                    "answer": _name(reading, row),
                    "parts": _rounded(part),
                }
                for row, part in zip(rows, parts, strict=True)
            ],
        }
        picture = pictures.signed_map(
            parts.tolist(), columns=tokens, rows=names, title=title, across="read", down="predicted"
        )
        return Explanation(
            "saliency", title, data, picture, _draw(tokens, names, parts, rows if reading.is_causal else None), notes
        )


def attributions(
    reading: Reading,
    rows: Array,
    num_tokens: int,
    *,
    steps: int | None,
    report: Callable[[float], None] = lambda share: None,
) -> tuple[Array, Array]:
    """The part of each token in each prediction, (R, T), and how far the predictions are above those of zero vectors, (R,).

    Without steps: gradient times input. With steps: the mean gradient at the places of Gauss and Legendre between zero
    vectors and the words.
    """
    words = reading.words().detach()[:num_tokens]
    places, weights = np.array([1.0]), np.array([1.0])
    if steps is not None:
        places, weights = np.polynomial.legendre.leggauss(steps)
        places, weights = (places + 1) / 2, weights / 2
    total = torch.zeros(len(rows), *words.shape, dtype=words.dtype)
    for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
        if steps is not None:
            report(float(place))
        total += weight * _slopes(reading, rows, words * place)
    parts = (total * words).sum((2, 3)).to(torch.float64).numpy()
    change = (
        _scores(reading, rows, words) - _scores(reading, rows, torch.zeros_like(words))
        if steps
        else np.zeros(len(rows))
    )
    return parts, change


def _slopes(reading: Reading, rows: Array, words: torch.Tensor) -> torch.Tensor:
    """The gradient of each prediction by all words. -> (R, T, 1, E)"""
    with torch.enable_grad():
        words = words.clone().requires_grad_()
        traced, scores = reading.trace(words)
        (grads,) = Predictions(reading, traced, scores, rows).gradients([words])
    return grads


def _scores(reading: Reading, rows: Array, words: torch.Tensor) -> Array:
    with torch.no_grad():
        traced, scores = reading.trace(words)
        return Predictions(reading, traced, scores, rows).scores.to(torch.float64).numpy()


def _rows(reading: Reading, num_tokens: int, row: int | None) -> Array:
    """The predictions that are looked at; of a cut text those that are made of it."""
    num_rows = len(reading.rows)
    is_by_token = num_rows == len(reading.tokens)
    if is_by_token:
        num_rows = num_tokens
    if row is None:
        return np.arange(num_rows)
    if row > num_rows:
        raise UsageError(
            f"there is no prediction {row}", code="bad-value", hint=f"they are counted from 1 to {num_rows}"
        )
    return np.array([row - 1])


def _name(reading: Reading, row: int) -> str:
    return str(reading.columns[int(reading.chosen[row])])


def _answer(reading: Reading, row: int) -> str:
    """What was predicted, where it says more than the row itself."""
    name = _name(reading, row)
    return "" if reading.is_causal or name == reading.rows[row] else f": {shown(name)}"


def _rounded(part: Array) -> list[float]:
    return [float(f"{value:.6g}") for value in part.tolist()]


def _draw(tokens: Sequence[str], names: Sequence[str], parts: Array, ends: Array | None) -> list[Line]:
    """For each prediction its tokens, the stronger the more they speak for it (orange) or against it (blue).

    ends: the last token of each prediction, where it is made of those before it alone.
    """
    lines: list[Line] = []
    width = max(map(len, names), default=0)
    for number, (name, part) in enumerate(zip(names, parts, strict=True)):
        part = part if ends is None else part[: ends[number] + 1]
        strongest = float(np.abs(part).max(initial=0)) or 1.0
        best = np.argsort(-np.abs(part), kind="stable")[:SHOWN_TOKENS]
        spans = [Span(f"{name:>{width}}  ")]
        for place in sorted(best.tolist()):
            spans += [Span(tokens[place], float(part[place]) / strongest), Span(" ")]
        lines.append(spans)
        strong = ", ".join(f"{tokens[place]} {part[place]:+.3g}" for place in best[:3].tolist())
        lines.append([Span(f"{'':>{width}}  {strong}")])
    return lines
