"""The words that are nearest to a word, by the cosine of their vectors; and how well cosines agree with people.

A file of pairs (word, word, how similar) gives Spearman's rank correlation, as WordSim-353 is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from elman import charts
from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.explain.explanation import Explanation, Line, Span, bar
from elman.explain.kind import Kind, KindOptions
from elman.explain.words import Words, read_lines, unknown_words, words_in, words_of

MAX_WORDS = 100  # that are shown side by side


class NeighboursOptions(KindOptions):
    """Settings of `neighbours`."""

    k: int = Field(10, ge=1, le=1000, description="neighbours of each word")
    file: str | None = Field(
        None,
        description="file of word pairs and how similar they are, with tabs, commas or spaces: Spearman's correlation",
    )


class Neighbours(Kind[NeighboursOptions]):
    """Nearest words, or the agreement with a file of similarities."""

    options = NeighboursOptions
    compares = True
    needs_text = False

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: NeighboursOptions) -> Explanation:
        """For each word those that are nearest; of several models side by side."""
        all_words = [words_of(model) for model in models]
        if options.file is not None:
            return _similarities(all_words, Path(options.file))
        asked = words_in(texts, most=MAX_WORDS)
        if not asked:
            raise UsageError(
                "neighbours needs words", code="missing-option", hint="give some behind the model, or file=F with pairs"
            )
        found, notes = [], []
        for words in all_words:
            places = {word: words.find(word) for word in asked}
            unknown = [word for word, place in places.items() if place is None]
            if len(unknown) == len(asked):
                words.require(asked[0])
            if unknown:
                notes.append(unknown_words(unknown, words.name))
            found += [
                {
                    "model": words.name,
                    "word": word,
                    "neighbours": words.nearest(words.directions[place], options.k, without=[place]),
                }
                for word, place in places.items()
                if place is not None
            ]
        title = f"Nearest words of {', '.join(words.name for words in all_words)}"
        return Explanation("neighbours", title, {"words": found}, _picture(found, title), _draw(found), notes)


def _picture(found: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    several = len({one["model"] for one in found}) > 1
    bars = []
    for one in found:
        rows = [{"neighbour": word, "cosine": cosine} for word, cosine in one["neighbours"]]
        name = f"{one['word']} ({one['model']})" if several else one["word"]
        chart = charts.score_bars(rows, name="neighbour", score="cosine", title=name)
        bars.append(chart | {"width": 180})
    return charts.side_by_side(bars, title=title)


def _draw(found: Sequence[dict[str, Any]]) -> list[Line]:
    several = len({one["model"] for one in found}) > 1
    width = max((len(word) for one in found for word, _ in one["neighbours"]), default=0)
    lines: list[Line] = []
    for one in found:
        lines.append([Span(f"{one['word']} ({one['model']})" if several else one["word"])])
        lines += [
            [Span(f"  {word:<{width}} {cosine:+.3f} "), Span(bar(max(0.0, cosine), 24))]
            for word, cosine in one["neighbours"]
        ]
    return lines


# ----------------------------------------------------------------------------------------------------------- similarities


def _similarities(all_words: Sequence[Words], path: Path) -> Explanation:
    """Spearman's correlation between cosines and the numbers of a file, over the pairs whose words are known."""
    pairs = read_pairs(path)
    found, rows, notes = [], [], []
    for words in all_words:
        known = [(words.find(one), words.find(other), number) for one, other, number in pairs]
        places = [(one, other, number) for one, other, number in known if one is not None and other is not None]
        if len(places) < 2:
            raise DataError(
                f"{words.name} knows the words of {len(places)} of the {len(pairs)} pairs in {path}",
                code="no-known-word",
                hint="two or more are needed: compare the case of their letters with that of its words",
            )
        first, second = (np.array([place[side] for place in places], dtype=np.int64) for side in (0, 1))
        cosines = (words.directions[first] * words.directions[second]).sum(axis=1)
        spearman = rank_correlation(cosines, np.array([number for _, _, number in places]))
        found.append({"model": words.name, "pairs": len(pairs), "known": len(places), "spearman": round(spearman, 4)})
        rows += [
            {"similarity": number, "cosine": round(float(cosine), 4), "model": words.name}
            for (_, _, number), cosine in zip(places, cosines, strict=True)
        ]
        if len(places) < len(pairs):
            notes.append(
                f"{words.name}: {len(pairs) - len(places)} of {len(pairs)} pairs have unknown words and are left out"
            )
    title = f"Cosines beside the similarities in {path.name}"
    width = max(len(words.name) for words in all_words)
    drawing: list[Line] = [
        [
            Span(
                f"{one['model']:<{width}}  Spearman {one['spearman']:+.3f}  {one['known']} of {one['pairs']} pairs known"
            )
        ]
        for one in found
    ]
    picture = charts.points(rows, x="similarity", y="cosine", colour="model", title=title)
    return Explanation("neighbours", title, {"models": found}, picture, drawing, notes)


def read_pairs(path: Path) -> list[tuple[str, str, float]]:
    """Two words and a number a line, with tabs, commas or spaces between; lines that begin with # say something else."""
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.replace(",", " ").split())]
        try:
            found.append((fields[0], fields[1], float(fields[2])))
        except (IndexError, ValueError):
            if not found and len(fields) > 2:  # the names of the columns
                continue
            raise DataError(
                f"line {number} of {path} is not two words and a number",
                code="malformed-line",
                hint="write them with tabs between",
            ) from None
    return found


def rank_correlation(first: Array, second: Array) -> float:
    """Spearman's: Pearson's of the ranks, those that are equal sharing theirs; 0 where one never changes."""
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (first, second)]
    size = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum() / size) if size else 0.0


def _ranks(values: Array) -> Array:
    """From 0; of equal values the mean of theirs."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    firsts = np.cumsum(counts) - counts
    return np.asarray((firsts + (counts - 1) / 2)[group])
