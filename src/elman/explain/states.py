"""What the units of a net's layers do over a text, which of them track something, and how open gates are.

T tokens · U units of all layers · K features
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from elman import charts, pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.explanation import Explanation, Line, Span, bar, column
from elman.explain.features import built_in, chance, correlations, read_features
from elman.explain.kind import Kind, KindOptions, name_of
from elman.explain.reading import Reading
from elman.explain.recorded import WIDTH, RecordedText, coloured_text, liveliest_part, read_recorded

PICTURE_TOKENS = 100  # tokens that stand side by side in a picture
PICTURE_ROWS = 6  # rows of so many tokens in the picture of one unit
DRAWN_UNITS = 4  # units whose text is drawn in the terminal, where none is asked for
DRAWN_LINES = 3  # lines of text that are drawn for each of them
LISTED = 3  # units that are listed for each feature
OPEN, CLOSED = 0.9, 0.1  # gates above and below count as open and closed
ALWAYS = 0.99  # share of the tokens


class StatesOptions(KindOptions):
    """Settings of `states`."""

    unit: str | None = Field(
        None, description="one unit over the whole text: 2.17 is number 17 of layer 2, 2.c.17 its cell"
    )
    features: str | None = Field(
        None, description="file with features of your own: names first, then a row a token or a row a line; CSV or TSV"
    )
    units: int = Field(
        20, ge=1, le=500, description="units in the picture: the best for each feature, then the liveliest"
    )
    tokens: int = Field(2000, ge=2, le=100_000, description="of a longer text only the first so many tokens are read")


class GatesOptions(KindOptions):
    """Settings of `gates`."""

    tokens: int = Field(2000, ge=2, le=100_000, description="of a longer text only the first so many tokens are read")


@dataclass(frozen=True)
class _Units:
    """Every unit of every layer: names, (T, U) activations."""

    names: Sequence[str]
    values: Array
    groups: Sequence[tuple[str, int]]  # names of layers and their states, and how many units each has

    def place(self, name: str) -> int:
        """The unit of this name."""
        if name not in self.names:
            ranges = ", ".join(f"{group}.1 to {group}.{size}" for group, size in self.groups)
            raise UsageError(f"there is no unit {name}", code="bad-value", hint=f"units are {ranges}")
        return list(self.names).index(name)


class States(Kind[StatesOptions]):
    """Activations over a text; units that track something."""

    options = StatesOptions

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: StatesOptions) -> Explanation:
        """The units that follow features of the text most closely, and what they do."""
        model, text = models[0], "\n".join(texts)
        reading: Reading = model.reading(text)
        read = read_recorded(reading, options.tokens)
        units = _units(read)
        features = _features(model, reading, options, len(read.tokens))
        tracked = _track(units, features, options.seed)
        chosen = [units.place(options.unit)] if options.unit else _telling(units, tracked, options.units)
        best = {row["unit"]: row for row in reversed(tracked)}  # the feature that it follows most closely
        shown_units = []
        for place in chosen:
            name = units.names[place]
            row = best.get(name) or _closest(units.values[:, place], features)
            shown_units.append(
                {
                    "unit": name,
                    "feature": row["feature"],
                    "correlation": row["correlation"],
                    "activations": [float(f"{value:.4g}") for value in units.values[:, place].tolist()],
                }
            )
        name = name_of(model)
        title = f"Unit {options.unit} of {name}" if options.unit else f"Units of {name} that track something"
        data: dict[str, Any] = {
            "model": name,
            "tokens": list(read.tokens),
            "layers": [{"name": group, "units": size} for group, size in units.groups],
            "tracking": tracked,
            "units": shown_units,
        }
        in_picture = PICTURE_TOKENS * (_num_rows(read) if options.unit else 1)
        notes = [*read.notes, *_picture_notes(read, in_picture)]
        constant = [feature for feature, values in features.items() if not np.ptp(values)]
        if constant:
            notes.append(f"the same all over this text: {', '.join(constant)}")
        return Explanation(
            kind="states",
            title=title,
            data=data,
            picture=_picture(read, shown_units, tracked, title, alone=options.unit is not None),
            drawing=_draw(read, shown_units, tracked, data["layers"], alone=options.unit is not None),
            notes=notes,
        )


# --------------------------------------------------------------------------------------------------------- what was read


def _units(read: RecordedText) -> _Units:
    """The states of every layer, or its outputs where it has none."""
    names: list[str] = []
    arrays, groups = [], []
    for number, layer in enumerate(read.traced.layers, 1):
        for state, steps in (layer.states or {"h": layer.outputs}).items():
            group = ".".join([str(number), *(part for part in state.split(".") if part != "h")])
            arrays.append(read.steps(steps))
            groups.append((group, arrays[-1].shape[1]))
            names += [f"{group}.{unit}" for unit in range(1, groups[-1][1] + 1)]
    return _Units(names, np.concatenate(arrays, axis=1), groups)


def _features(model: Any, reading: Reading, options: StatesOptions, num_tokens: int) -> dict[str, Array]:
    """Features of the tokens that were looked at, by name; a user's own come first."""
    tokens = reading.tokens[int(reading.is_causal) :]
    own = read_features(Path(options.features), tokens) if options.features else {}
    ranks: dict[str, int] = {}
    for rank, word in enumerate(model.word_vectors()[0], 1):
        ranks.setdefault(word, rank)
    found = {name: values[:num_tokens] for name, values in (own | built_in(tokens, ranks)).items()}
    if np.array_equal(found["place in line"], found["place in text"]):
        del found["place in text"]
    return found


def _track(units: _Units, features: dict[str, Array], seed: int) -> list[dict[str, Any]]:
    """For each feature the units that follow it most closely; the closest first."""
    names = [name for name, values in features.items() if np.ptp(values)]
    if not names:
        return []
    columns = np.stack([features[name] for name in names], axis=1)
    found_UK = correlations(units.values, columns)
    chance_K = chance(units.values, columns, np.random.default_rng(seed))
    rows = [
        {
            "feature": name,
            "unit": units.names[unit],
            "correlation": round(float(found_UK[unit, place]), 4),
            "by_chance": round(float(chance_K[place]), 4),
        }
        for place, name in enumerate(names)
        for rank, unit in enumerate(np.argsort(-np.abs(found_UK[:, place]), kind="stable")[:LISTED].tolist())
        if rank == 0 or abs(found_UK[unit, place]) > chance_K[place]
    ]
    return sorted(rows, key=lambda row: -abs(row["correlation"]))


def _closest(values: Array, features: dict[str, Array]) -> dict[str, Any]:
    """The feature that one unit follows most closely."""
    found = correlations(values[:, None], np.stack(list(features.values()), axis=1))[0]
    best = int(np.abs(found).argmax())
    return {"feature": list(features)[best], "correlation": round(float(found[best]), 4)}


def _telling(units: _Units, tracked: Sequence[dict[str, Any]], count: int) -> list[int]:
    """The best unit for each feature, where it is above chance; then those that move most."""
    firsts: dict[str, str] = {}
    for row in tracked:
        if abs(row["correlation"]) > row["by_chance"]:
            firsts.setdefault(row["feature"], row["unit"])
    spread = np.tanh(units.values).std(axis=0)  # cells may be far larger than what is given out of them
    liveliest = [units.names[place] for place in np.argsort(-spread, kind="stable").tolist()]
    return [units.place(name) for name in list(dict.fromkeys([*firsts.values(), *liveliest]))[:count]]


# ------------------------------------------------------------------------------------------------------------ drawn units


def _draw(
    read: RecordedText,
    units: Sequence[dict[str, Any]],
    tracked: Sequence[dict[str, Any]],
    layers: Sequence[dict[str, Any]],
    *,
    alone: bool,
) -> list[Line]:
    """What is tracked and by whom, then the text in the colours of a few units."""
    sizes = ", ".join(f"{layer['name']}.1-{layer['units']}" for layer in layers)
    lines: list[Line] = []
    if not alone:
        lines += [[Span(line)] for line in textwrap.wrap(f"{len(read.tokens):,} tokens; units {sizes}", WIDTH)]
        lines.append([Span(f"{'feature':<20} {'unit':<16} correlation  by chance")])
        for row in tracked:
            size = abs(row["correlation"])
            mark = "" if size > row["by_chance"] else "  no more than chance"
            shade = row["correlation"] if size > row["by_chance"] else 0.0
            lines.append(
                [
                    Span(f"{row['feature'][:20]:<20} {row['unit']:<16} "),
                    Span(f"{row['correlation']:+.3f}", shade),
                    Span(f"        {row['by_chance']:.3f}  {bar(size, 20)}{mark}"),
                ]
            )
    for unit in units if alone else units[:DRAWN_UNITS]:
        values = np.array(unit["activations"])
        begin = 0 if alone else liveliest_part(read.texts, values, lines=DRAWN_LINES)
        where = f"; from token {begin + 1:,} on" if begin else ""
        lines += [[], [Span(f"{_label(unit)}, between {values.min():.2f} and {values.max():.2f}{where}")]]
        lines += coloured_text(read.texts[begin:], values[begin:], most=None if alone else DRAWN_LINES)
    return lines


def _label(unit: dict[str, Any]) -> str:
    return f"{unit['unit']}  {unit['feature']} {unit['correlation']:+.2f}"


def _picture(
    read: RecordedText,
    units: Sequence[dict[str, Any]],
    tracked: Sequence[dict[str, Any]],
    title: str,
    *,
    alone: bool,
) -> pictures.Spec:
    """Units over the beginning of the text, and how closely they follow features; of one unit a line."""
    if alone:
        heading = f"{title}: {units[0]['feature']} {units[0]['correlation']:+.2f}"
        return charts.stacked([_line(read, units[0], row) for row in range(_num_rows(read))], title=heading)
    names = read.names[:PICTURE_TOKENS]
    over_text = pictures.signed_map(
        [unit["activations"][:PICTURE_TOKENS] for unit in units],
        rows=[_label(unit) for unit in units],
        columns=names,
        title="Activations",
        across="token that was read",
        down="unit, and what it follows most closely",
    )
    over_text |= {"width": {"step": 14}, "height": {"step": 16}}
    rows = [
        {
            "unit": f"{row['feature']}: {row['unit']}",
            "correlation": row["correlation"],
            "chance": row["by_chance"] * np.sign(row["correlation"] or 1),
        }
        for row in tracked
    ]
    if not rows:
        return over_text | {"title": title}
    bars = charts.score_bars(
        rows,
        name="unit",
        score="correlation",
        mark="chance",
        title="Correlation with features of the text (tick: by chance)",
    )
    return charts.stacked([bars, over_text], title=title)


def _picture_notes(read: RecordedText, most: int) -> list[str]:
    return [f"a picture has the first {most:,} of {len(read.tokens):,} tokens"] if len(read.tokens) > most else []


def _num_rows(read: RecordedText) -> int:
    """How many rows of text a picture of one unit has."""
    return min(PICTURE_ROWS, -(-len(read.tokens) // PICTURE_TOKENS))


def _line(read: RecordedText, unit: dict[str, Any], row: int) -> pictures.Spec:
    """One unit over one row of text."""
    part = slice(row * PICTURE_TOKENS, (row + 1) * PICTURE_TOKENS)
    values = unit["activations"]
    points = [{"place": place, "activation": value, "unit": _label(unit)} for place, value in enumerate(values[part])]
    chart = charts.token_lines(
        points, tokens=read.names[part], title=f"from token {part.start + 1:,} on", y="activation", colour="unit"
    )
    chart["encoding"]["color"]["legend"] = None
    chart["encoding"]["y"]["scale"] = {"domain": [min(values), max(values)]}
    return chart | {"height": 120}


# ------------------------------------------------------------------------------------------------------------------ gates


class Gates(Kind[GatesOptions]):
    """How open gates are: over the text, and how often each unit's is open or closed."""

    options = GatesOptions

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: GatesOptions) -> Explanation:
        """For each gate of each layer its mean over the text, and the distribution of its values."""
        read = read_recorded(models[0].reading("\n".join(texts)), options.tokens)
        found = [
            _openness(f"{number}.{gate}", read.steps(steps))
            for number, layer in enumerate(read.traced.layers, 1)
            for gate, steps in layer.gates.items()
            if not gate.endswith("candidate")  # what is let in, from -1 to 1
        ]
        name = name_of(models[0])
        title = f"Gates of {name}"
        means = [
            {"place": place, "mean": mean, "gate": gate["gate"]}
            for gate in found
            for place, mean in enumerate(gate["by_token"][:PICTURE_TOKENS])
        ]
        shares = [
            {"open": (place + 0.5) / len(gate["histogram"]), "share of values": share, "gate": gate["gate"]}
            for gate in found
            for place, share in enumerate(gate["histogram"])
        ]
        names = read.names[:PICTURE_TOKENS]
        picture = charts.stacked(
            [
                pictures.line_chart(shares, x="open", y="share of values", colour="gate", title="How open they are"),
                charts.token_lines(means, tokens=names, title="Mean of each layer's gates", y="mean", colour="gate"),
            ],
            title=title,
        )
        data = {"model": name, "tokens": list(read.tokens), "gates": found}
        notes = [*read.notes, *_picture_notes(read, PICTURE_TOKENS)]
        return Explanation("gates", title, data, picture, _draw_gates(read, found), notes)


def _openness(name: str, values_TH: Array) -> dict[str, Any]:
    """The numbers of one gate."""
    is_open, is_closed = values_TH > OPEN, values_TH < CLOSED
    counts, _ = np.histogram(values_TH, bins=20, range=(0, 1))
    return {
        "gate": name,
        "units": values_TH.shape[1],
        "mean": round(float(values_TH.mean()), 4),
        "open": round(float(is_open.mean()), 4),
        "closed": round(float(is_closed.mean()), 4),
        "always_open": [unit + 1 for unit in np.flatnonzero(is_open.mean(axis=0) >= ALWAYS).tolist()],
        "always_closed": [unit + 1 for unit in np.flatnonzero(is_closed.mean(axis=0) >= ALWAYS).tolist()],
        "histogram": [round(float(share), 4) for share in counts / values_TH.size],
        "by_token": [round(float(mean), 4) for mean in values_TH.mean(axis=1)],
    }


def _draw_gates(read: RecordedText, gates: Sequence[dict[str, Any]]) -> list[Line]:
    """A line a gate, its distribution among it; then the text in the colours of each gate's mean."""
    width = max(len(gate["gate"]) for gate in gates)
    head = f"{'gate':<{width}}  mean  {'':<20}  closed   open  always closed, open   0 ...... values ...... 1"
    lines: list[Line] = [[Span(head)]]
    for gate in gates:
        highest = max(gate["histogram"])
        spread = "".join(column(share / highest) for share in gate["histogram"])
        always = f"{len(gate['always_closed'])}, {len(gate['always_open'])} of {gate['units']}"
        lines.append(
            [
                Span(f"{gate['gate']:<{width}}  {gate['mean']:.2f}  {bar(gate['mean'], 20):<20}"),
                Span(f"  {gate['closed']:>6.1%} {gate['open']:>6.1%}  {always:<19}   {spread}"),
            ]
        )
    for gate in gates:
        values = np.array(gate["by_token"])
        lines += [[], [Span(f"{gate['gate']}, mean over its units, from {values.min():.2f} to {values.max():.2f}")]]
        lines += coloured_text(read.texts, values - values.mean(), most=2)
    return lines
