"""Comparisons that were given at the start, as the studio shows them: the table, and pictures as Vega-Lite specifications."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from elman.compare import report_charts as charts
from elman.compare import report_words as words
from elman.compare.report import facts, palette_of
from elman.compare.state import read_state
from elman.core.stored import holds_model
from elman.serve.errors import ApiError


@dataclass(frozen=True)
class Comparison:
    """A directory that `elman compare` wrote."""

    id: str
    directory: Path
    data: Mapping[str, Any]

    def model_directories(self) -> list[Path]:
        """Those of its models that are there."""
        names = [row["directory"] for row in words.measured(self.data) if row.get("directory")]
        found = [self.directory / name for name in names if Path(name).name == name]
        return [place for place in found if holds_model(place)]

    @property
    def title(self) -> str:
        """What it is called."""
        return html.unescape(words.title(self.data))


def find_comparisons(directories: Iterable[Path]) -> tuple[list[Comparison], list[Path]]:
    """The comparisons among some directories, and all model directories: a comparison's stands for its models."""
    comparisons: list[Comparison] = []
    models: list[Path] = []
    for directory in directories:
        data = None if holds_model(directory) else read_state(directory)
        if data is None:
            models.append(directory)
            continue
        name = directory.resolve().name
        same = sum(one.directory.resolve().name == name for one in comparisons)
        comparisons.append(Comparison(f"{name}-{same + 1}" if same else name, directory, data))
        models += comparisons[-1].model_directories()
    return comparisons, models


def add_routes(app: FastAPI, comparisons: Iterable[Comparison], ids: Mapping[Path, str]) -> None:
    """The routes. ids: of the models that are served, by their directories."""
    by_id = {one.id: one for one in comparisons}

    @app.get("/v1/comparisons")
    async def list_comparisons() -> dict[str, Any]:
        """The comparisons that were given at the start."""
        return {"object": "list", "data": [{"id": one.id, "title": one.title} for one in by_id.values()]}

    @app.get("/v1/comparisons/{name}")
    async def show_comparison(name: str) -> dict[str, Any]:
        """The table, the pictures, and all that comparison.json has."""
        if name not in by_id:
            raise ApiError(404, "there is no such comparison; GET /v1/comparisons lists them")
        return as_json(by_id[name], ids)


def as_json(comparison: Comparison, ids: Mapping[Path, str]) -> dict[str, Any]:
    """A comparison as the studio shows it."""
    data = comparison.data
    models = words.measured(data)
    columns = words.columns(data)
    best = {measure.key: words.best(models, measure) for measure in columns}
    return {
        "id": comparison.id,
        "title": comparison.title,
        "facts": html.unescape(facts(data)),
        "findings": words.plain_findings(data),
        "columns": [
            {"key": one.key, "heading": html.unescape(one.heading), "more_is_better": one.more_is_better}
            for one in columns
        ],
        "rows": [
            {
                "name": model["name"],
                "what": model.get("what"),
                "model": ids.get((comparison.directory / str(model.get("directory"))).resolve()),
                "cells": [
                    {
                        "value": model.get(measure.key),
                        "text": html.unescape(words.value(model, measure)),
                        "is_best": model.get(measure.key) is not None and model[measure.key] == best[measure.key],
                    }
                    for measure in columns
                ],
            }
            for model in models
        ],
        "failed": list(data.get("failed") or ()),
        "pictures": list(_pictures(data)),
        "data": data,
    }


def _pictures(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Training curves, and perplexity by the frequency and the place of words."""
    palette = palette_of(data)
    is_text = words.deciding(data).key == "perplexity"
    counted, loss = ("tokens trained on", "perplexity") if is_text else ("trained on", "exp(loss)")
    learning = [model for model in words.measured(data) if model.get("curve")]
    curves = charts.curves(learning, palette, counted=counted, loss=loss)
    if curves is not None:
        note = f"{loss.capitalize()} while the nets learned: of validation text, and dashed of training text."
        yield {"name": "curves", "heading": "Learning", "note": note, "spec": _with_legend(curves)}
    for key, heading, axis in (
        ("by_frequency", "By word frequency", "how often a word was seen in training"),
        ("by_position", "By position in the line", "place in the line"),
    ):
        groups = data.get(key) or ()
        if groups:
            spec = charts.by_group(groups, palette, title=axis)
            yield {"name": key, "heading": heading, "note": f"Perplexity by {axis}.", "spec": _with_legend(spec)}


def _with_legend(spec: Any) -> Any:
    """The specification with legends: those of the report's pictures are in its page."""
    match spec:
        case dict():
            return {key: _with_legend(value) for key, value in spec.items() if not (key == "legend" and value is None)}
        case list():
            return [_with_legend(one) for one in spec]
        case _:
            return spec
