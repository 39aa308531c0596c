"""All charts as Vega-Lite specifications, and their rendering to files. Knows nothing of models.

Charts are rendered by vl-convert, offline and without a browser. A specification is a plain dictionary with its data inside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.core.errors import ElmanError, UsageError
from elman.core.outputs import check_output, open_output
from elman.core.screen import escape

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


def line_panels(
    rows: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    colour: str,
    title: str,
    column: str | None = None,
    row: str | None = None,
    log_x: bool = False,
    y_domain: tuple[float, float] | None = None,
) -> Spec:
    """Lines with a dot at each point, in a panel for each value of `column` and `row`, in the order of the rows."""
    width, height = (230, 170) if column or row else (520, 300)
    scale: Spec = {"zero": True} if y_domain is None else {"domain": list(y_domain)}
    across: Spec = {"field": x, "type": "quantitative"}
    if log_x:
        axis = {"values": sorted({one[x] for one in rows}), "labelOverlap": "greedy", "format": "d"}
        across |= {"scale": {"type": "log", "nice": False}, "axis": axis}
    facets = {}
    for name, key in (("column", column), ("row", row)):
        if key:
            order = list(dict.fromkeys(one[key] for one in rows))
            facets[name] = {"field": key, "type": "nominal", "title": None, "sort": order}
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": width,
        "height": height,
        "data": {"values": [dict(one) for one in rows]},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": across,
            "y": {"field": y, "type": "quantitative", "scale": scale, "title": None if row else y},
            "color": {"field": colour, "type": "nominal", "title": None, "sort": None},
            **facets,
        },
        "resolve": {"scale": {"y": "independent" if row else "shared"}},
    }


def by_length(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], *, number: str = "bleu", title: str = "By source length"
) -> Spec:
    """A metric by source length, one line for each table of `evaluate`."""
    names = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", "edit_distance": "edits per token"}
    rows = [
        {"source tokens": (row["from"] + row["to"]) / 2, names[number]: row[number], "model": name}
        for name, table in tables.items()
        for row in table
    ]
    return line_chart(rows, x="source tokens", y=names[number], colour="model", title=title)


def token_bars(
    rows: Sequence[Mapping[str, Any]], *, tokens: Sequence[str], title: str, y: str = "nats", colour: str = "model"
) -> Spec:
    """A bar for each token, side by side for each value of `colour`; rows are {place, y: number, colour: name}."""
    slanted = {**axis_labels(tokens, orient="bottom"), "labelAngle": -50, "labelAlign": "right"}
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": {"step": 22},
        "height": 220,
        "data": {"values": [dict(row) for row in rows]},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "place",
                "type": "ordinal",
                "title": None,
                "axis": slanted,
            },
            "xOffset": {"field": colour, "type": "nominal"},
            "y": {"field": y, "type": "quantitative"},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }


def attention_map(
    weights: Sequence[Sequence[float]], *, sources: Sequence[str], targets: Sequence[str], title: str = "Attention"
) -> Spec:
    """Attention weights of each target token (rows) on each source token (columns): darker is higher."""
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
            "x": {"field": "source", "type": "ordinal", "title": "source", "axis": axis_labels(sources, orient="top")},
            "y": {"field": "target", "type": "ordinal", "title": "target", "axis": axis_labels(targets, orient="left")},
            "color": {
                "field": "weight",
                "type": "quantitative",
                "scale": {"scheme": "greys", "domain": [0, 1]},
                "legend": {"title": "weight"},
            },
        },
    }


def signed_map(
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    across: str,
    down: str,
) -> Spec:
    """Numbers of either sign in rows and columns: orange above zero, blue below, each row by its own largest."""
    cells = []
    for row, numbers in enumerate(values):
        largest = max((abs(number) for number in numbers), default=0.0) or 1.0
        cells += [
            {"column": column, "row": row, "value": float(f"{number:.4g}"), "share": round(number / largest, 4)}
            for column, number in enumerate(numbers)
        ]
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "anchor": "start"},
        "width": {"step": 22},
        "height": {"step": 22},
        "data": {"values": cells},
        "mark": "rect",
        "encoding": {
            "x": {"field": "column", "type": "ordinal", "title": across, "axis": axis_labels(columns, orient="top")},
            "y": {"field": "row", "type": "ordinal", "title": down, "axis": axis_labels(rows, orient="left")},
            "color": {
                "field": "share",
                "type": "quantitative",
                "scale": {"scheme": "blueorange", "domain": [-1, 1]},
                "legend": {"title": "share of a row's largest"},
            },
        },
    }


def confusion_map(labels: Sequence[str], counts: Sequence[Sequence[int]], *, title: str = "Confusion matrix") -> Spec:
    """A confusion matrix: how often each true label (rows) was predicted as each label (columns), with shares of rows."""
    cells = [
        {"right": truth, "given": given, "times": int(count), "share": round(count / max(1, sum(row)), 4)}
        for truth, row in zip(labels, counts, strict=True)
        for given, count in zip(labels, row, strict=True)
    ]
    axes = {
        "x": {"field": "given", "type": "ordinal", "sort": list(labels), "axis": {"orient": "top", "labelAngle": -60}},
        "y": {"field": "right", "type": "ordinal", "sort": list(labels)},
    }
    scale = {"scheme": "greys", "domain": [0, 1]}
    dark = {"condition": {"test": "datum.share > 0.5", "value": "white"}, "value": "black"}
    return {
        "$schema": SCHEMA,
        "title": title,
        "width": {"step": 36},
        "height": {"step": 22},
        "data": {"values": cells},
        "encoding": axes,
        "layer": [
            {"mark": "rect", "encoding": {"color": {"field": "share", "type": "quantitative", "scale": scale}}},
            {
                "transform": [{"filter": "datum.times > 0"}],
                "mark": {"type": "text", "fontSize": 9},
                "encoding": {"text": {"field": "times", "type": "quantitative"}, "color": dark},
            },
        ],
    }


def axis_labels(tokens: Sequence[str], *, orient: str) -> Spec:
    """An axis labelled with tokens, which may repeat; words at the top are slanted."""
    angle = -50 if orient == "top" and max(map(len, tokens), default=0) > 2 else 0
    return {
        "orient": orient,
        "labelExpr": f"{json.dumps([escape(token) for token in tokens])}[datum.value]",
        "labelAngle": angle,
        "labelAlign": "left" if angle else ("center" if orient == "top" else "right"),
    }


def render(spec: Spec, kind: str) -> bytes:
    """The chart rendered to one of FORMATS."""
    import vl_convert

    spec = _printable(spec)
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
            raise _unknown_format(kind)


def _printable(value: Any) -> Any:
    """The specification with control characters made visible: vl-convert ends the whole process at one."""
    match value:
        case str():
            return escape(value, keep="\n\t")
        case Mapping():
            return {key: _printable(one) for key, one in value.items()}
        case list() | tuple():
            return [_printable(one) for one in value]
        case _:
            return value


def render_within(spec: Spec, seconds: float) -> bytes | None:
    """The picture as SVG, or None if that took too long. Drawing cannot be interrupted, so a process of its own does it.

    It looks for modules where this process has them, but never in the current directory, where anything may lie.
    """
    program = (
        "import sys; sys.path += sys.argv[1:]; "
        "import vl_convert; sys.stdout.write(vl_convert.vegalite_to_svg(sys.stdin.read()))"
    )
    places = [path for path in sys.path if path and Path(path).resolve() != Path.cwd()]
    command = [sys.executable, "-I", "-X", "utf8", "-c", program, *places]
    if seconds <= 0:
        return None
    try:
        done = subprocess.run(
            command, input=json.dumps(_printable(spec)).encode(), capture_output=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        raise ElmanError(f"cannot render the chart: {error}", code="drawing-failed") from None
    return done.stdout


def check_file(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that no picture can be drawn into, before there is one."""
    if path.suffix not in FORMATS:
        raise _unknown_format(path.suffix)
    check_output(path, overwrite=overwrite)


def write(spec: Spec, path: Path, *, overwrite: bool = False) -> None:
    """Draw into a file; its name says how."""
    check_file(path, overwrite=overwrite)
    drawn = render(spec, path.suffix)
    with open_output(path, overwrite=overwrite) as file:
        file.write(drawn)


def _unknown_format(kind: str) -> UsageError:
    return UsageError(
        f"cannot draw a {kind or 'nameless'} file", code="bad-value", hint=f"pictures end in {', '.join(FORMATS)}"
    )
