"""a is to b as c is to … ?: the word that lies where c - a + b points (3CosAdd, Mikolov et al. 2013).

A file of questions, as Google's (four words a line, `: name` before a section), gives the share that is right.
Q questions · V words · E width of a vector
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
from elman.explain.words import BLOCK, Words, read_lines, words_of

Section = tuple[str, list[tuple[str, str, str, str]]]


class AnalogyOptions(KindOptions):
    """Settings of `analogy`."""

    k: int = Field(10, ge=1, le=1000, description="answers that are listed")
    file: str | None = Field(
        None, description="file of questions, four words a line, in sections that begin with `: name`"
    )


class Analogy(Kind[AnalogyOptions]):
    """The fourth word of an analogy, or how many of a file's are right."""

    options = AnalogyOptions
    compares = True
    needs_text = False

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: AnalogyOptions) -> Explanation:
        """Three words, or a file of questions."""
        all_words = [words_of(model) for model in models]
        if options.file is not None:
            return _scores(all_words, Path(options.file))
        asked = [word for text in texts for word in text.split()]
        if len(asked) != 3:
            raise UsageError(
                f"an analogy is of three words, not {len(asked)}",
                code="bad-value",
                hint="man king woman asks for a queen",
            )
        found: list[dict[str, Any]] = []
        for words in all_words:
            places = [words.require(word) for word in asked]
            first, second, third = words.directions[places]
            answers = words.nearest(third - first + second, options.k, without=places)
            found.append({"model": words.name, "answers": answers})
        title = f"{asked[0]} is to {asked[1]} as {asked[2]} is to …"
        width = max(len(word) for one in found for word, _ in one["answers"])
        drawing: list[Line] = [[Span(title)]]
        bars = []
        for one in found:
            if len(found) > 1:
                drawing.append([Span(one["model"])])
            drawing += [
                [Span(f"  {word:<{width}} {cosine:+.3f} "), Span(bar(max(0.0, cosine), 24))]
                for word, cosine in one["answers"]
            ]
            rows = [{"answer": word, "cosine": cosine} for word, cosine in one["answers"]]
            bars.append(charts.score_bars(rows, name="answer", score="cosine", title=one["model"]) | {"width": 240})
        picture = charts.side_by_side(bars, title=title)
        return Explanation("analogy", title, {"asked": asked, "models": found}, picture, drawing)


def _scores(all_words: Sequence[Words], path: Path) -> Explanation:
    """The share of right answers in each section, of the questions whose four words are known."""
    sections = read_questions(path)
    found: list[dict[str, Any]] = []
    notes = []
    for words in all_words:
        rows: list[dict[str, Any]] = [{"section": name, **_score(words, questions)} for name, questions in sections]
        total = {key: sum(row[key] for row in rows) for key in ("questions", "known", "right")}
        if not total["known"]:
            raise DataError(
                f"{words.name} does not know all four words of any question in {path}",
                code="no-known-word",
                hint="compare the case of their letters with that of its words",
            )
        found.append(
            {"model": words.name, "accuracy": round(total["right"] / total["known"], 4), **total, "sections": rows}
        )
        missing = total["questions"] - total["known"]
        if missing:
            notes.append(
                f"{words.name}: {missing:,} of {total['questions']:,} questions have unknown words and are left out"
            )
    title = f"Analogies of {path.name}"
    width = max(len(name) for name, _ in sections)
    drawing: list[Line] = []
    bars = []
    for one in found:
        drawing.append([Span(f"{one['model']}: {one['accuracy']:.1%} of {one['known']:,} questions right")])
        drawing += [
            [
                Span(f"  {row['section']:<{width}} {_share(row):>6.1%} of {row['known']:>5,} "),
                Span(bar(_share(row), 24)),
            ]
            for row in one["sections"]
        ]
        rows = [{"section": row["section"], "right": _share(row)} for row in one["sections"]]
        bars.append(charts.score_bars(rows, name="section", score="right", title=one["model"], highest=1))
    return Explanation("analogy", title, {"models": found}, charts.side_by_side(bars, title=title), drawing, notes)


def _share(row: dict[str, Any]) -> float:
    return float(row["right"] / row["known"]) if row["known"] else 0.0


def _score(words: Words, questions: Sequence[tuple[str, str, str, str]]) -> dict[str, int]:
    places = [[words.find(word) for word in question] for question in questions]
    known = np.array([row for row in places if None not in row], dtype=np.int64).reshape(-1, 4)
    right = int((answer_all(words, known[:, :3]) == known[:, 3]).sum())
    return {"questions": len(questions), "known": len(known), "right": right}


def answer_all(words: Words, asked: Array) -> Array:
    """The word nearest to c - a + b for each row a, b, c, none of which can be the answer. (Q, 3) -> (Q,)"""
    found = np.zeros(len(asked), dtype=np.int64)
    size = max(1, BLOCK // len(words.names))
    for begin in range(0, len(asked), size):
        part = asked[begin : begin + size]
        first, second, third = (words.directions[part[:, side]] for side in range(3))
        cosines_QV = (third - first + second) @ words.directions.T  # but for each row's length, which orders nothing
        cosines_QV[np.arange(len(part))[:, None], part] = -np.inf
        found[begin : begin + size] = cosines_QV.argmax(axis=1)
    return found


def read_questions(path: Path) -> list[Section]:
    """The sections of a file and their questions."""
    found: list[Section] = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split()
        if line.startswith(":"):
            found.append((" ".join(line[1:].split()) or "unnamed", []))
        elif len(fields) == 4:
            if not found:
                found.append(("all", []))
            found[-1][1].append((fields[0], fields[1], fields[2], fields[3]))
        elif fields:
            raise DataError(
                f"line {number} of {path} has {len(fields)} words, expected 4",
                code="malformed-line",
                hint="a section begins with `: name`",
            )
    if not any(questions for _, questions in found):
        raise DataError(f"{path} has no questions", code="empty-data", hint="four words a line: man king woman queen")
    return found
