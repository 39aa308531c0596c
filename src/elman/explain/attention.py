"""Where a model looked: source and target of a translator, the heads of a Transformer, the words that counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from elman import pictures
from elman.core.errors import UsageError
from elman.explain.explanation import Explanation, Line, Span, column, shown
from elman.explain.kind import Kind, KindOptions, name_of
from elman.explain.reading import AttentionMap

SHOWN_MAPS = 9  # in a picture: the most telling one and the first heads
LONGEST = 80  # tokens of either side that are drawn


class AttentionOptions(KindOptions):
    """Settings of `attention`."""

    target: str | None = Field(None, description="of a pair: read this target instead of the best one")
    map: int | None = Field(None, ge=1, description="only this map, counted from 1: one head, say")


class Attention(Kind[AttentionOptions]):
    """Weights by who looked (rows) and at what (columns)."""

    options = AttentionOptions

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: AttentionOptions) -> Explanation:
        """The most telling map, and every head where there are several."""
        found: list[AttentionMap] = models[0].attention_maps("\n".join(texts), options.target)
        if options.map is not None:
            if options.map > len(found):
                raise UsageError(
                    f"there is no map {options.map}", code="bad-value", hint=f"they are counted from 1 to {len(found)}"
                )
            found = found[options.map - 1 : options.map]
        cut = [_cut(one) for one in found]
        notes = [f"only {LONGEST} tokens of each side are drawn"] if cut[0] is not found[0] else []
        if len(cut) > SHOWN_MAPS:
            notes.append(f"{SHOWN_MAPS} of {len(cut)} maps are drawn; --set map=N shows another one")
        title = f"Where {name_of(models[0])} looked"
        return Explanation(
            kind="attention",
            title=title,
            data={
                "maps": [
                    {
                        "name": one.name,
                        "rows": list(one.rows),
                        "columns": list(one.columns),
                        "weights": [[round(float(weight), 4) for weight in row] for row in one.weights],
                    }
                    for one in found
                ]
            },
            picture=_picture(cut[:SHOWN_MAPS], title),
            drawing=_draw(cut[0]),
            notes=notes,
        )


def _cut(one: AttentionMap) -> AttentionMap:
    if len(one.rows) <= LONGEST and len(one.columns) <= LONGEST:
        return one
    return AttentionMap(one.name, one.rows[:LONGEST], one.columns[:LONGEST], one.weights[:LONGEST, :LONGEST])


def _picture(maps: Sequence[AttentionMap], title: str) -> pictures.Spec:
    drawn = [
        pictures.attention_map(
            one.weights.tolist(),
            sources=[shown(token) for token in one.columns],
            targets=[shown(token) for token in one.rows],
            title=one.name,
        )
        for one in maps
    ]
    if len(drawn) == 1:
        return drawn[0] | {"title": f"{title}: {maps[0].name}"}
    parts = [{key: value for key, value in one.items() if key != "$schema"} for one in drawn]
    return {"$schema": pictures.SCHEMA, "title": title, "columns": 3, "concat": parts}


def _draw(one: AttentionMap) -> list[Line]:
    """A row for each that looked, a block for each that was looked at, and where it looked most."""
    width = max((len(shown(token)) for token in one.rows), default=0)
    lines: list[Line] = [[Span(one.name)]]
    for token, weights in zip(one.rows, one.weights.tolist(), strict=True):
        best = max(range(len(weights)), key=weights.__getitem__)
        spans = [Span(f"{shown(token):>{width}} ")]
        spans += [Span(column(weight), weight) for weight in weights]
        lines.append([*spans, Span(f"  {shown(one.columns[best])} {weights[best]:.2f}")])
    lines.append([Span(f"{'':>{width}} columns: {' '.join(shown(token) for token in one.columns)}")])
    return lines
