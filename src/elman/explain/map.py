"""A map of words: their vectors in the two directions in which they differ most (principal components).

N words on the map · E width of a vector
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from elman import charts
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.explanation import Explanation, Line, Span
from elman.explain.kind import Kind, KindOptions
from elman.explain.words import unknown_words, words_in, words_of

ROWS, COLUMNS = 32, 98  # characters of a map in a terminal
MAX_WORDS = 2_000  # on a map


class MapOptions(KindOptions):
    """Settings of `map`."""

    words: int = Field(
        100, ge=3, le=MAX_WORDS, description="of a model without words given: so many of the most frequent ones"
    )


class WordMap(Kind[MapOptions]):
    """Words in two dimensions."""

    options = MapOptions
    needs_text = False

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: MapOptions) -> Explanation:
        """The words given, or the most frequent ones."""
        words = words_of(models[0])
        asked, notes = words_in(texts, most=MAX_WORDS), []
        if asked:
            places = {word: words.find(word) for word in asked}
            unknown = [word for word, place in places.items() if place is None]
            if unknown:
                notes.append(unknown_words(unknown, words.name))
            chosen = list(dict.fromkeys(place for place in places.values() if place is not None))
        else:
            chosen = list(range(min(options.words, len(words.names))))
        if len(chosen) < 3:
            raise UsageError(
                f"{len(chosen)} words are no map", hint="give three or more that are known, or none at all"
            )
        points, shares = principal_components(words.directions[chosen])
        names = [words.names[place] for place in chosen]
        rows = [
            {"word": name, "x": round(float(x), 4), "y": round(float(y), 4)}
            for name, (x, y) in zip(names, points, strict=True)
        ]
        title = f"Words of {words.name}"
        axes = [f"component {side} ({share:.0%} of the variance)" for side, share in enumerate(shares, 1)]
        drawn = [{"word": row["word"], axes[0]: row["x"], axes[1]: row["y"]} for row in rows]
        drawing, left_out = _draw(names, points)
        if left_out:
            notes.append(f"{left_out} words have no room in the drawing; --out F.png has all of them")
        return Explanation(
            kind="map",
            title=title,
            data={"words": rows, "variance": [round(share, 4) for share in shares]},
            picture=charts.word_map(drawn, x=axes[0], y=axes[1], title=title),
            drawing=drawing,
            notes=notes,
        )


def principal_components(vectors: Array) -> tuple[Array, list[float]]:
    """Where vectors (N, E) lie in the two directions of largest variance, (N, 2), and the share of it in each.

    Of the two ways that a direction can point, that in which the word farthest out is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    count = min(2, len(sizes))
    points[:, :count] = left[:, :count] * sizes[:count]
    farthest = np.abs(points).argmax(axis=0)
    points *= np.where(points[farthest, [0, 1]] < 0, -1, 1)
    total = float((sizes**2).sum()) or 1.0
    return points, [float(size**2) / total for size in [*sizes[:2], 0.0, 0.0][:2]]


def _draw(names: Sequence[str], points: Array) -> tuple[list[Line], int]:
    """The map in characters, and how many words found no room in it; those given first have precedence."""
    canvas = [[" "] * COLUMNS for _ in range(ROWS)]
    low, high = points.min(axis=0), points.max(axis=0)
    shares = (points - low) / np.where(high > low, high - low, 1)
    left_out = 0
    for name, (across, up) in zip(names, shares.tolist(), strict=True):
        row, begin = round((1 - up) * (ROWS - 1)), round(across * (COLUMNS - 1))
        begin = max(0, min(begin, COLUMNS - len(name)))
        cells = canvas[row][max(0, begin - 1) : begin + len(name) + 1]
        if any(cell != " " for cell in cells) or len(name) > COLUMNS:
            left_out += 1
        else:
            canvas[row][begin : begin + len(name)] = name
    return [[Span("".join(row))] for row in canvas], left_out
