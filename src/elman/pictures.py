"""The one picture grammar: Vega-Lite specifications, and the files made of them. Knows nothing of models.

Pictures are drawn by vl-convert, offline and without a browser. A specification is a plain dictionary with its data inside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elman import files
from elman.errors import UsageError

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
FORMATS = (".svg", ".png", ".html", ".json")


def line_chart(
    rows: Sequence[Mapping[str, Any]], *, x: str, y: str, colour: str, title: str, log_y: bool = False
) -> Spec:
    """A line for each value of `colour`; rows are {x: number, y: number, colour: name}."""
    scale: Spec = {"type": "log"} if log_y else {"zero": False}
    return {
        "$schema": SCHEMA,
        "title": title,
        "width": 520,
        "height": 300,
        "data": {"values": [dict(row) for row in rows]},
        "mark": {"type": "line", "point": len(rows) < 60},
        "encoding": {
            "x": {"field": x, "type": "quantitative"},
            "y": {"field": y, "type": "quantitative", "scale": scale},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }


def training_curves(journal: Sequence[Mapping[str, Any]]) -> Spec:
    """Perplexity by tokens trained on: of the training text as it went by, and of the validation text."""
    rows = []
    for line in journal:
        for key, name in (("perplexity", "training (with dropout)"), ("valid_perplexity", "validation")):
            if line.get(key) is not None and line.get("tokens"):
                rows.append({"tokens": line["tokens"], "perplexity": line[key], "text": name})
    return line_chart(rows, x="tokens", y="perplexity", colour="text", title="Training", log_y=True)


def by_length(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], *, number: str = "bleu", title: str = "By the source's length"
) -> Spec:
    """A number by the length of the source, a line for each table of `evaluate`."""
    names = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", "edit_distance": "edits a token"}
    rows = [
        {"source tokens": (row["from"] + row["to"]) / 2, names[number]: row[number], "model": name}
        for name, table in tables.items()
        for row in table
    ]
    return line_chart(rows, x="source tokens", y=names[number], colour="model", title=title)


def attention_map(
    weights: Sequence[Sequence[float]], *, sources: Sequence[str], targets: Sequence[str], title: str = "Attention"
) -> Spec:
    """How much each target token (downwards) looked at each source token (to the right): the darker, the more."""
    cells = [
        {"source": column, "target": row, "weight": round(float(weight), 4)}
        for row, shares in enumerate(weights)
        for column, weight in enumerate(shares)
    ]
    return {
        "$schema": SCHEMA,
        "title": title,
        "width": {"step": 22},
        "height": {"step": 22},
        "data": {"values": cells},
        "mark": "rect",
        "encoding": {
            "x": {"field": "source", "type": "ordinal", "title": "source", "axis": _labels(sources, orient="top")},
            "y": {"field": "target", "type": "ordinal", "title": "target", "axis": _labels(targets, orient="left")},
            "color": {
                "field": "weight",
                "type": "quantitative",
                "scale": {"scheme": "greys", "domain": [0, 1]},
                "legend": {"title": "weight"},
            },
        },
    }


def _labels(tokens: Sequence[str], *, orient: str) -> Spec:
    """An axis on which places are written as tokens, which may occur several times."""
    return {"orient": orient, "labelExpr": f"{json.dumps(list(tokens))}[datum.value]", "labelAngle": 0}


def render(spec: Spec, kind: str) -> bytes:
    """The picture in one of FORMATS."""
    import vl_convert

    match kind:
        case ".json":
            return json.dumps(spec, indent=1).encode()
        case ".svg":
            return vl_convert.vegalite_to_svg(spec).encode()
        case ".png":
            return bytes(vl_convert.vegalite_to_png(spec, scale=2))
        case ".html":
            return vl_convert.vegalite_to_html(spec, bundle=True).encode()
        case _:
            raise UsageError(f"cannot draw a {kind or 'nameless'} file", hint=f"pictures end in {', '.join(FORMATS)}")


def write(spec: Spec, path: Path) -> None:
    """Draw into a file; its name says how."""
    files.write_bytes(path, render(spec, path.suffix))
