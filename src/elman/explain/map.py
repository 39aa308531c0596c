"""A map of words: their vectors in the two directions in which they differ most (principal components).

N words on the map · E width of a vector · C places where a label may stand
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
MARGIN = 0.06  # of the axes, on either side
POINT, LETTER, LINE = 2.5, 6.2, 12.0  # pixels: half a point, the width of a letter, the height of a word
WAYS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1]])  # from a point to its label
DISTANCES = (POINT + 1, 8, 14, 22, 32, 44, 58)  # pixels between a point and its label
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
                f"{len(chosen)} words are no map",
                code="bad-value",
                hint="give three or more that are known, or none at all",
            )
        points, shares = principal_components(words.directions[chosen])
        names = [words.names[place] for place in chosen]
        rows = [
            {"word": name, "x": round(float(x), 4), "y": round(float(y), 4)}
            for name, (x, y) in zip(names, points, strict=True)
        ]
        title = f"Words of {words.name}"
        axes = [f"component {side} ({share:.0%} of the variance)" for side, share in enumerate(shares, 1)]
        domains = _domains(points)
        labels = label_places(points, names, domains)
        drawn = [
            {"word": row["word"], axes[0]: row["x"], axes[1]: row["y"]}
            | ({} if place is None else {"label x": place[0], "label y": place[1]})
            for row, place in zip(rows, labels, strict=True)
        ]
        drawing, left_out = _draw(names, points)
        if left_out:
            notes.append(f"{left_out} words have no room in the drawing; --out F.png has more room, F.json all of them")
        if None in labels:
            notes.append(f"{labels.count(None)} words have no room in a picture, and are points alone")
        return Explanation(
            kind="map",
            title=title,
            data={"words": rows, "variance": [round(share, 4) for share in shares]},
            picture=charts.word_map(drawn, x=axes[0], y=axes[1], domains=domains, title=title),
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


def _domains(points: Array) -> list[list[float]]:
    """What the axes of a picture show: a little more than from the lowest to the highest. -> from and to, for x and y"""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = np.where(high > low, (high - low) * MARGIN, 1.0)
    found: list[list[float]] = np.stack([low - margin, high + margin], axis=1).tolist()
    return found


def label_places(
    points: Array, names: Sequence[str], domains: Sequence[Sequence[float]]
) -> list[tuple[float, float] | None]:
    """The middle of each word's label, as near to its point as it covers no other label and no point; None if nowhere is.

    Those named first choose first.
    """
    low, high = np.array(domains).T
    size = np.array(charts.MAP_SIZE, dtype=np.float64)
    points_N2 = (points - low) / (high - low) * size  # pixels
    taken = np.concatenate([points_N2 - POINT, points_N2 + POINT], axis=1)  # boxes: left, bottom, right, top
    found: list[tuple[float, float] | None] = []
    for point, name in zip(points_N2, names, strict=True):
        half = np.array([LETTER * len(name) / 2 + 1, LINE / 2])
        middles_C2 = point + np.concatenate([WAYS * (half + distance) for distance in DISTANCES])
        boxes_C4 = np.concatenate([middles_C2 - half, middles_C2 + half], axis=1)
        is_inside = np.logical_and(boxes_C4[:, :2] >= 0, boxes_C4[:, 2:] <= size).all(axis=1)
        is_apart = (boxes_C4[:, None, :2] >= taken[:, 2:]) | (boxes_C4[:, None, 2:] <= taken[:, :2])
        free = np.flatnonzero(is_inside & np.all(np.any(is_apart, axis=2), axis=1))
        if not len(free):
            found.append(None)
            continue
        taken = np.concatenate([taken, boxes_C4[free[:1]]])
        x, y = (middles_C2[free[0]] / size * (high - low) + low).tolist()
        found.append((round(x, 5), round(y, 5)))
    return found


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
