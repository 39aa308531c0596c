"""More charts, for looking inside models: lines over a text, scores beside chance, maps of words, ranked words, tables.

Vega-Lite specifications like those of `pictures`, which renders them. Knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from elman.pictures import SCHEMA, Spec, axis_labels

BLUE, ORANGE, GREY = "#4c78a8", "#f58518", "#777"
LINE_LETTERS = 100  # of a text that is drawn
MAP_SIZE = (760, 560)  # pixels
MAX_LABEL = 180  # pixels of a word beside its bar
MAX_PIECES = 600  # tokens of it


def stacked(charts: Sequence[Spec], *, title: str) -> Spec:
    """Charts below one another, each with its own colours."""
    parts = [{key: value for key, value in chart.items() if key != "$schema"} for chart in charts]
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "vconcat": parts,
        "spacing": 30,
        "resolve": {"scale": {"color": "independent"}, "legend": {"color": "independent"}},
    }


def side_by_side(charts: Sequence[Spec], *, title: str, columns: int = 3) -> Spec:
    """Charts beside one another, so many in a row."""
    parts = [{key: value for key, value in chart.items() if key != "$schema"} for chart in charts]
    heading = {"text": title, "anchor": "start"}
    return {"$schema": SCHEMA, "title": heading, "columns": columns, "concat": parts, "spacing": 30}


def points(rows: Sequence[Mapping[str, Any]], *, x: str, y: str, colour: str, title: str) -> Spec:
    """A point for each row, coloured by `colour`."""
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": 420,
        "height": 320,
        "data": {"values": [dict(row) for row in rows]},
        "mark": {"type": "point", "opacity": 0.7},
        "encoding": {
            "x": {"field": x, "type": "quantitative", "scale": {"zero": False}},
            "y": {"field": y, "type": "quantitative"},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }


def token_lines(
    rows: Sequence[Mapping[str, Any]], *, tokens: Sequence[str], title: str, y: str, colour: str, step: int = 16
) -> Spec:
    """A line over the tokens of a text for each value of `colour`; rows are {place, y: number, colour: name}."""
    axis = {
        "labelExpr": f"{json.dumps(list(tokens))}[datum.value]",
        "labelAngle": -50 if max(map(len, tokens), default=0) > 2 else 0,
        "labelOverlap": False,
        "ticks": False,
    }
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": {"step": step},
        "height": 180,
        "data": {"values": [dict(row) for row in rows]},
        "mark": {"type": "line", "point": {"size": 18}},
        "encoding": {
            "x": {"field": "place", "type": "ordinal", "title": "token that was read", "axis": axis},
            "y": {"field": y, "type": "quantitative"},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }


def score_bars(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str,
    score: str,
    title: str,
    mark: str | None = None,
    highest: float | None = None,
) -> Spec:
    """A bar for each row, longest first, orange above zero and blue below; a tick where `mark` is, on the same side.

    highest: where the axis ends, so that several charts can be compared; scores are then from 0 on.
    """
    across: Spec = {"field": score, "type": "quantitative", "title": score}
    if highest is not None:
        across["scale"] = {"domain": [0, highest]}
    upright = {"field": name, "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
    colour = {"condition": {"test": f"datum['{score}'] < 0", "value": BLUE}, "value": ORANGE}
    layers: list[Spec] = [{"mark": "bar", "encoding": {"x": across, "y": upright, "color": colour}}]
    if mark is not None:
        ticks = {"type": "tick", "color": "black", "thickness": 2}
        layers.append({"mark": ticks, "encoding": {"x": across | {"field": mark}, "y": upright}})
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": 420,
        "height": {"step": 20},
        "data": {"values": [dict(row) for row in rows]},
        "layer": layers,
    }


def word_map(
    rows: Sequence[Mapping[str, Any]], *, x: str, y: str, domains: Sequence[Sequence[float]], title: str
) -> Spec:
    """Words at their places; rows are {word, x: number, y: number}, and where a label stands beside: {label x, label y}.

    Rows without a place for their label are points alone. domains: what the axes show, from and to.
    """
    shared = {"type": "quantitative", "axis": {"tickCount": 6}}
    ways = zip("xy", (x, y), domains, strict=True)
    point = {way: shared | {"field": field, "title": field, "scale": {"domain": ends}} for way, field, ends in ways}
    label = {way: {**point[way], "field": f"label {way}"} for way in "xy"} | {"text": {"field": "word"}}
    line = point | {"x2": {"field": "label x"}, "y2": {"field": "label y"}}
    text = {"type": "text", "fontSize": 11}
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        **dict(zip(("width", "height"), MAP_SIZE, strict=True)),
        "data": {"values": [dict(row) for row in rows]},
        "layer": [
            {"mark": {"type": "rule", "color": "#bbb", "strokeWidth": 0.7}, "encoding": line},
            {"mark": {"type": "circle", "size": 22, "opacity": 0.6}, "encoding": point},
            {"mark": text | {"stroke": "white", "strokeWidth": 3}, "encoding": label},  # no line runs through a word
            {"mark": text, "encoding": label},
        ],
    }


def ranked_bars(lists: Mapping[str, Sequence[tuple[str, float | None]]], *, title: str, subtitle: str = "") -> Spec:
    """The best words of each list with their log-probabilities, side by side: bars are shares of a list's best word."""
    parts = []
    for name, ranked in lists.items():
        best = max((number for _, number in ranked if number is not None), default=0.0)
        rows = [
            {
                "rank": f"{place:02d}",
                "word": f"{place}  {word}",
                "share": 0.0 if number is None else round(2.718281828459045 ** (number - best), 5),
                "log-probability": "never" if number is None else f"{number:.3f}",
            }
            for place, (word, number) in enumerate(ranked, 1)
        ]
        order = {"field": "word", "type": "nominal", "title": None, "sort": {"field": "rank"}}
        room = min(
            MAX_LABEL, max([12 + 6 * len(str(row["word"])) for row in rows], default=0)
        )  # some 6 pixels a letter
        across = {
            "field": "share",
            "type": "quantitative",
            "title": "share of the best",
            "scale": {"domain": [0, 1.3]},
            "axis": {"values": [0, 0.5, 1], "grid": False},
        }
        parts.append(
            {
                "title": {"text": name, "fontSize": 12},
                "width": 200,
                "height": {"step": 18},
                "data": {"values": rows},
                "encoding": {
                    "y": {
                        **order,
                        "axis": {"labelAlign": "left", "labelPadding": room, "labelLimit": room, "ticks": False},
                    },
                    "x": across,
                },
                "layer": [
                    {"mark": {"type": "bar", "color": "#4c78a8"}},
                    {
                        "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10},
                        "encoding": {"text": {"field": "log-probability", "type": "nominal"}},
                    },
                ],
            }
        )
    heading: Spec = {"text": title, "anchor": "start"}
    return {
        "$schema": SCHEMA,
        "title": heading | ({"subtitle": subtitle} if subtitle else {}),
        "concat": parts,
        "columns": 3,
    }


def grouped_bars(
    rows: Sequence[Mapping[str, Any]], *, title: str, down: str, measures: Mapping[str, str], colour: str
) -> Spec:
    """A panel for each measure, with the format of its numbers; a bar for each name (`down`) and each value of `colour`."""
    names = list(dict.fromkeys(row[down] for row in rows))
    groups = list(dict.fromkeys(row[colour] for row in rows))
    panels = []
    for number, (measure, form) in enumerate(measures.items()):
        highest = max([row[measure] for row in rows if row[measure] is not None], default=0.0)
        scale = {"domain": [0, max(highest, 0.01)]}
        panels.append(
            {
                "width": 200,
                "height": {"step": 14 if len(groups) > 1 else 20},
                "mark": {"type": "bar"},
                "encoding": {
                    "y": {
                        **{"field": down, "type": "nominal", "sort": names, "title": None if number else down},
                        "axis": {"labels": not number, "ticks": not number},
                    },
                    "yOffset": {"field": colour, "type": "nominal", "sort": groups},
                    "x": {
                        **{"field": measure, "type": "quantitative", "scale": scale},
                        "axis": {"format": form, "tickCount": 3},
                    },
                    "color": {"field": colour, "type": "nominal", "title": None, "sort": groups},
                },
            }
        )
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "data": {"values": [dict(row) for row in rows]},
        "hconcat": panels,
    }


def count_tables(
    counts: Sequence[Sequence[int]],
    probabilities: Sequence[Sequence[float]],
    *,
    words: Sequence[str],
    unseen: Sequence[Mapping[str, Any]],
    title: str,
    model: str,
) -> Spec:
    """Two tables of words by words, raw counts and probabilities, zeros in orange; beside them unseen n-grams by order."""
    tables = [
        _table(counts, words, title="raw counts (orange: never)"),
        _table(probabilities, words, title=f"p(next | word) of {model}"),
    ]
    rows = [{"order": f"{row['order']}-grams", "share": row["share"]} for row in unseen if row["share"] is not None]
    bars = {
        "title": {"text": "n-grams of the other text that are never here", "fontSize": 12},
        "width": 220,
        "height": {"step": 26},
        "data": {"values": rows},
        "encoding": {
            "y": {"field": "order", "type": "nominal", "title": None},
            "x": {
                **{"field": "share", "type": "quantitative", "title": "share unseen"},
                **{"axis": {"format": "~%", "tickCount": 5}, "scale": {"domain": [0, 1.15]}},
            },
        },
        "layer": [
            {"mark": {"type": "bar", "color": "#4c78a8"}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {"text": {"field": "share", "type": "quantitative", "format": ".1%"}},
            },
        ],
    }
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "resolve": {"scale": {"color": "independent"}},
        "concat": [*tables, *([bars] if rows else [])],
        "columns": 2,
    }


def _table(numbers: Sequence[Sequence[float]], words: Sequence[str], *, title: str) -> Spec:
    """Numbers of rows (words) and columns (what follows): the larger, the bluer; nothing is orange."""
    highest = max((number for row in numbers for number in row), default=0.0) or 1.0
    cells = [
        {"row": row, "column": column, "number": short(number), "depth": (number / highest) ** 0.5}
        for row, line in enumerate(numbers)
        for column, number in enumerate(line)
    ]
    down, across = axis_labels(words, orient="left"), axis_labels(words, orient="top")
    ink = {"condition": {"test": "datum.depth > 0.6", "value": "white"}, "value": "black"}
    blue = {"field": "depth", "type": "quantitative", "scale": {"scheme": "blues", "domain": [0, 1]}, "legend": None}
    return {
        "title": {"text": title, "fontSize": 12},
        "width": {"step": 46},
        "height": {"step": 24},
        "data": {"values": cells},
        "encoding": {
            "x": {"field": "column", "type": "ordinal", "title": "next word", "axis": across},
            "y": {"field": "row", "type": "ordinal", "title": "word", "axis": down},
        },
        "layer": [
            {
                "mark": {"type": "rect", "stroke": "white"},
                "encoding": {"color": blue | {"condition": {"test": "datum.depth === 0", "value": "#fdd0a2"}}},
            },
            {
                "mark": {"type": "text", "fontSize": 10},
                "encoding": {"text": {"field": "number", "type": "nominal"}, "color": ink},
            },
        ],
    }


def short(number: float) -> str:
    """A count, or a probability in a few characters."""
    if number == 0 or isinstance(number, int):
        return f"{number:,.0f}"
    return f"{number:.4f}" if number >= 0.0001 else f"{number:.0e}"


def copied_text(
    pieces: Sequence[str],
    *,
    is_copied: Sequence[bool],
    shares: Sequence[Mapping[str, Any]],
    title: str,
    least: int,
) -> Spec:
    """A text in lines, what is copied on orange; below, the share of copied n-grams by order."""
    rows: list[Spec] = []
    line = column = 0
    copied = f"in a span of {least} tokens or more"
    for place, piece in enumerate(pieces[:MAX_PIECES]):
        text = piece.replace("\n", "")
        if is_copied[place] and piece.startswith("\n"):  # the end of a line is a token of a span too
            rows.append({"line": line, "from": column, "at": column, "to": column + 1, "text": "↵", "is": copied})
        if piece.startswith("\n") or column + len(text) > LINE_LETTERS:
            line, column = line + 1, 0
        text = text if column else text.lstrip(" ")
        kind = copied if is_copied[place] else "new"
        word = text.lstrip(" ")
        at = column + len(text) - len(word)  # Vega writes no spaces in front
        goes_on = is_copied[place] and place > 0 and is_copied[place - 1]
        begin, end = (column if goes_on else at), column + len(text)
        rows.append({"line": line, "from": begin, "at": at, "to": end, "text": word, "is": kind})
        column += len(text)
        if piece.endswith("\n") and not piece.startswith("\n"):
            line, column = line + 1, 0
    names = [copied, "new"]
    colour = {
        **{
            "field": "is",
            "type": "nominal",
            "title": None,
            "scale": {"domain": names, "range": ["#fdae6b", "#ffffff"]},
        },
        "legend": {"orient": "top", "symbolStrokeColor": "#999", "symbolType": "square"},
    }
    blank: Spec = {"axis": None, "scale": {"domain": [0, LINE_LETTERS]}}
    text_panel = {
        "width": 7 * LINE_LETTERS,
        "height": {"step": 20},
        "data": {"values": rows},
        "encoding": {
            "y": {"field": "line", "type": "ordinal", "axis": None},
        },
        "view": {"stroke": None},
        "layer": [
            {
                "mark": {"type": "rect"},
                "encoding": {
                    "x": {"field": "from", "type": "quantitative", **blank},
                    "x2": {"field": "to"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "text", "align": "left", "font": "monospace", "fontSize": 11.6},
                "encoding": {"x": {"field": "at", "type": "quantitative", **blank}, "text": {"field": "text"}},
            },
        ],
    }
    numbers = [{"tokens": row["order"], "share": row["share"]} for row in shares]
    curve = {
        "width": 420,
        "height": 160,
        "data": {"values": numbers},
        "mark": {"type": "bar", "color": "#4c78a8"},
        "encoding": {
            "x": {"field": "tokens", "type": "ordinal", "title": "n (tokens)", "axis": {"labelAngle": 0}},
            "y": {
                **{"field": "share", "type": "quantitative", "title": "n-grams copied"},
                **{"axis": {"format": "~%"}, "scale": {"domain": [0, 1]}},
            },
        },
    }
    return {"$schema": SCHEMA, "title": {"text": title, "anchor": "start"}, "vconcat": [text_panel, curve]}
