"""How a training went, as a chart: perplexity, learning rate and size of the gradient over tokens. Knows nothing of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elman.pictures import SCHEMA, Spec

MAX_POINTS = 300  # points of a curve; longer ones are averaged down
FEW_POINTS = 30  # curves with fewer points show each as a dot


def training_curves(
    journal: Sequence[Mapping[str, Any]], *, counted: str = "tokens", loss: str = "perplexity"
) -> Spec | None:
    """How a run went, by tokens trained on: perplexity of training and validation text, learning rate, size of the gradient.

    None for a journal without a perplexity. Of a run by a sampled criterion there is only that of validation. A long run is
    drawn in MOST_POINTS means. counted, loss: what tokens and perplexity are called, where they are something else.
    """
    lines = [line for line in journal if line.get("tokens")]
    training = _thinned([line for line in lines if line.get("perplexity") or "learning_rate" in line])
    validation = [line for line in lines if line.get("valid_perplexity")]
    curves = [
        {"tokens": line["tokens"], "perplexity": line[key], "text": text}
        for text, key, some in (("training", "perplexity", training), ("validation", "valid_perplexity", validation))
        for line in some
        if key in line
    ]
    if not curves:
        return None
    final = [line for line in lines if line.get("final_perplexity")][-1:]
    ends = [{"tokens": line["tokens"], "perplexity": line["final_perplexity"], "text": "validation"} for line in final]
    across: Spec = {
        "field": "tokens",
        "type": "quantitative",
        "title": f"{counted} trained on",
        "axis": {"format": "~s", "tickCount": 6},
        "scale": {"domainMin": 0, "nice": False},
    }
    below = [
        _small_chart([line for line in training if key in line], across, y=key, title=title)
        for key, title in (("learning_rate", "learning rate"), ("gradient_norm", "gradient norm"))
    ]
    return {
        "$schema": SCHEMA,
        "title": {"text": "Training", "anchor": "start"},
        "resolve": {"legend": {"color": "independent"}},
        "vconcat": [_perplexity_chart(curves, ends, across, title=loss), {"hconcat": below}],
    }


def _perplexity_chart(curves: Sequence[Spec], ends: Sequence[Spec], across: Spec, *, title: str) -> Spec:
    """Curves, and where it ended with its number. What is far above the lowest, in the first steps, is left out."""
    lowest = min(row["perplexity"] for row in (*curves, *ends))
    curves = [row for row in curves if row["perplexity"] <= 12 * lowest]
    highest = max(row["perplexity"] for row in (*curves, *ends))
    domain = [0.9 * lowest, max(1.2 * lowest, highest)]
    upright = {
        "field": "perplexity",
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": domain, "nice": False},
        "axis": {"tickCount": 6, "format": "~r"},
    }
    colour = {
        "field": "text",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["training", "validation"]},
        "legend": {"orient": "top-right"},
    }
    encoding = {"x": across, "y": upright, "color": colour}
    marks: list[tuple[Sequence[Spec], Spec]] = [
        (curves, {"type": "line", "point": len(curves) < 2 * FEW_POINTS}),
        (ends, {"type": "point", "filled": True, "size": 70}),
        (ends, {"type": "text", "align": "right", "dx": -8, "dy": 12, "fontWeight": "bold"}),
    ]
    layers = []
    for rows, mark in marks:
        number = {"text": {"field": "perplexity", "format": ".4~r"}} if mark["type"] == "text" else {}
        layers.append({"data": {"values": list(rows)}, "mark": mark, "encoding": {**encoding, **number}})
    return {"width": 560, "height": 300, "layer": layers}


def _small_chart(lines: Sequence[Mapping[str, Any]], across: Spec, *, y: str, title: str) -> Spec:
    upright = {"field": y, "type": "quantitative", "title": title, "axis": {"tickCount": 4, "format": "~g"}}
    return {
        "width": 244,
        "height": 110,
        "data": {"values": [{"tokens": line["tokens"], y: line[y]} for line in lines]},
        "mark": {"type": "line", "color": "#777", "point": {"color": "#777"} if len(lines) < FEW_POINTS else False},
        "encoding": {"x": across, "y": upright},
    }


def _thinned(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """At most MAX_POINTS lines, each the mean of neighbours; of perplexities the geometric mean."""
    group_size = -(-len(lines) // MAX_POINTS) or 1
    means = []
    for first in range(0, len(lines), group_size):
        group = lines[first : first + group_size]
        mean: dict[str, Any] = {"tokens": group[-1]["tokens"]}
        for key in ("perplexity", "learning_rate", "gradient_norm"):
            values = [line[key] for line in group if line.get(key) is not None]
            if values and key == "perplexity":
                mean[key] = math.exp(sum(map(math.log, values)) / len(values))
            elif values:
                mean[key] = sum(values) / len(values)
        means.append(mean)
    return means
