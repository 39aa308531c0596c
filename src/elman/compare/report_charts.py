"""The report's charts: Vega-Lite specifications, and as SVG for a page that may be light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elman import pictures
from elman.compare.report_words import escape

# Okabe and Ito's colours, told apart by the colour-blind and on light and dark pages, and a shape for each.
COLOURS = ("#2a7fc0", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#a08b00", "#8c8c8c")
SHAPES = {
    **{"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼", "cross": "✚"},
    **{"triangle-right": "▶", "triangle-left": "◀"},
}
MAX_LINES = len(COLOURS)  # models in one picture
SMALLEST_SHARE = 1e-5  # of a gradient that is drawn
LABEL_LETTERS = 36  # of labels below an axis, side by side
INK = "currentColor"  # axes and labels take the colour of the page's text
CONFIG = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **{"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK},
        **{"gridOpacity": 0.13, "domainOpacity": 0.5, "labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": 500},
        **{"titlePadding": 8, "labelFlush": False},
    },
}

Rows = Sequence[Mapping[str, Any]]


class Palette:
    """The models that are drawn, each with its colour and shape, the same in every picture."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)[:MAX_LINES]

    def colour(self, name: str) -> str:
        """The colour of a model; grey for those that are not drawn."""
        return COLOURS[self.names.index(name)] if name in self.names else "#8c8c8c"

    def legend(self, names: Sequence[str]) -> str:
        """The drawn ones of these models, as HTML that wraps where a page is narrow."""
        glyphs = list(SHAPES.values())
        drawn = [name for name in self.names if name in names]
        items = (
            f'<li><span style="color:{self.colour(name)}">{glyphs[self.names.index(name)]}</span> {escape(name)}</li>'
            for name in drawn
        )
        return f'<ul class="legend">{"".join(items)}</ul>'

    def encoding(self) -> pictures.Spec:
        """Colour and shape by model; the legend is the page's."""
        field = {"field": "model", "type": "nominal", "legend": None}
        shapes = list(SHAPES)[: len(self.names)]
        return {
            "color": {**field, "scale": {"domain": self.names, "range": list(COLOURS[: len(self.names)])}},
            "shape": {**field, "scale": {"domain": self.names, "range": shapes}},
        }


def lines(rows: Rows, palette: Palette, *, x: pictures.Spec, y: pictures.Spec, dots: bool = True) -> pictures.Spec:
    """A line for each model: rows are {x, y, model}, and part where a model has a second, paler line."""
    kept = [dict(row) for row in rows if row["model"] in palette.names]
    colours = palette.encoding()
    axes = {"x": {"field": "x", **x}, "y": {"field": "y", "type": "quantitative", **y}}
    pale = {"condition": {"test": "datum.part == 'training'", "value": 0.45}, "value": 1}
    dashed = {"condition": {"test": "datum.part == 'training'", "value": [3, 3]}, "value": [1, 0]}
    line = {**axes, "color": colours["color"], "detail": {"field": "part"}, "opacity": pale, "strokeDash": dashed}
    layers: list[pictures.Spec] = [{"mark": {"type": "line", "strokeWidth": 2}, "encoding": line}]
    if dots:
        point = {"type": "point", "filled": True, "size": 55, "opacity": 1}
        only = [{"filter": "datum.part != 'training'"}]
        layers.append({"transform": only, "mark": point, "encoding": {**axes, **colours}})
    return {"width": 430, "height": 270, "data": {"values": kept}, "layer": layers}


def curves(models: Rows, palette: Palette, *, counted: str, loss: str) -> pictures.Spec | None:
    """Perplexity by tokens trained on, of validation text and, paler, of training text; None where there is no curve.

    What is far above the lowest, in the first steps, is left out. counted, loss: what both are called.
    """
    rows = [
        {"x": point["tokens"], "y": point[key], "model": model["name"], "part": part}
        for model in models
        for key, part in (("perplexity", "training"), ("valid_perplexity", "validation"))
        for point in model.get("curve") or ()
        if point.get(key)
    ]
    if len({row["x"] for row in rows}) < 2:
        return None
    lowest = min(row["y"] for row in rows)
    rows = [row for row in rows if row["y"] <= 12 * lowest]
    x = {"type": "quantitative", "title": counted, "axis": {"format": "~s", "tickCount": 5}}
    y = {
        "title": loss,
        "scale": {"type": "log", "nice": False, "domain": [0.9 * lowest, max(row["y"] for row in rows)]},
        "axis": {"tickCount": 6, "format": "~r"},
    }
    return lines(rows, palette, x=x, y=y, dots=len(rows) < 400)


def by_group(groups: Rows, palette: Palette, *, title: str, over: str | None = None) -> pictures.Spec:
    """Perplexity of each model for groups of tokens, {from, to, nats: {model: nats per token}}; over: divided by that one's."""
    labels = [span(group) for group in groups]
    rows = [
        {"x": label, "y": perplexity(nats - (group["nats"][over] if over else 0.0)), "model": name}
        for label, group in zip(labels, groups, strict=True)
        for name, nats in group["nats"].items()
    ]
    slant = -25 if len("".join(labels)) > LABEL_LETTERS else 0  # side by side they would run into one another
    x = {"type": "ordinal", "sort": labels, "title": title, "axis": {"labelAngle": slant, "labelOverlap": False}}
    y = {
        "title": "perplexity, best model = 1" if over else "perplexity",
        "scale": {"type": "log", "nice": False, "padding": 8},
        "axis": {"tickCount": 5, "format": "~g" if over else "~s"},
    }
    return lines(rows, palette, x=x, y=y)


def gradient_reach(layers: Mapping[str, Mapping[str, Any]], palette: Palette) -> pictures.Spec:
    """The size of gradients by distance, as a share of that at distance 0; layers: one for each model."""
    rows = [
        {"x": distance, "y": size / layer["by_distance"][0], "model": name}
        for name, layer in layers.items()
        for distance, size in enumerate(layer["by_distance"])
        if size and layer["by_distance"][0] and size / layer["by_distance"][0] > SMALLEST_SHARE
    ]
    x = {"type": "quantitative", "title": "tokens back", "axis": {"tickCount": 6}}
    y = {
        "title": "gradient, as a share of the nearest",
        "scale": {"type": "log", "nice": False},
        "axis": {"values": [10.0**-power for power in range(6)], "format": "~g"},
    }
    return lines(rows, palette, x=x, y=y, dots=len(rows) < 120)


def sweep(points: Rows, *, setting: str) -> pictures.Spec:
    """Perplexity by a setting that was swept."""
    is_number = all(isinstance(point["value"], int | float) for point in points)
    rows = [{"x": point["value"], "y": point["perplexity"], "model": setting} for point in points]
    axis = {"values": [row["x"] for row in rows]} if is_number else {"labelAngle": 0}
    scale = {"zero": False, "nice": False, "padding": 12} if is_number else {}
    x = {"type": "quantitative" if is_number else "ordinal", "title": setting, "axis": axis, "sort": None}
    y = {"title": "perplexity", "scale": {"zero": False, "padding": 12}}
    return lines(rows, Palette([setting]), x={**x, "scale": scale}, y=y)


def span(group: Mapping[str, Any]) -> str:
    """What a group is called: 1–10, 7, or 1,000+ where it has no end."""
    first, last = group["from"], group.get("to")
    if last is None:
        return f"{first:,}+"
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def to_svg(spec: pictures.Spec, description: str) -> str:
    """The chart inside a page: no background, and described for those who do not see it."""
    whole = {"$schema": pictures.SCHEMA, "background": "transparent", "padding": 2, "config": CONFIG, **spec}
    drawn = pictures.render(whole, ".svg").decode()
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)


def perplexity(nats: float) -> float:
    """Of a mean number of nats per token; finite for every finite one."""
    return math.exp(min(nats, 700.0))
