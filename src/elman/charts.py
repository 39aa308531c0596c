"""More charts, for looking inside models: lines over a text, scores beside what chance gives, maps of words.

Vega-Lite specifications like those of `pictures`, which renders them. Knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from elman.pictures import SCHEMA, Spec

BLUE, ORANGE, GREY = "#4c78a8", "#f58518", "#777"


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


def word_map(rows: Sequence[Mapping[str, Any]], *, x: str, y: str, title: str) -> Spec:
    """Words at their places; rows are {word, x: number, y: number}."""
    text = {"type": "text", "align": "left", "dx": 5, "fontSize": 11}
    ticks = {"tickCount": 6}
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": 760,
        "height": 560,
        "data": {"values": [dict(row) for row in rows]},
        "encoding": {
            "x": {"field": x, "type": "quantitative", "scale": {"zero": False, "padding": 30}, "axis": ticks},
            "y": {"field": y, "type": "quantitative", "scale": {"zero": False, "padding": 15}, "axis": ticks},
        },
        "layer": [
            {"mark": {"type": "circle", "size": 22, "opacity": 0.6}},
            {"mark": text, "encoding": {"text": {"field": "word"}}},
        ],
    }
