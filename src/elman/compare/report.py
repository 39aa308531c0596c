"""report.html: a comparison as one page that opens offline, in light and dark, on a phone and on paper.

It is made of comparison.json alone. Text out of corpora is escaped wherever it stands; a policy inside the page lets nothing be
loaded and no script run but the one that sorts the tables.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from elman.compare import report_charts as charts
from elman.compare import report_words as words
from elman.compare.report_words import Comparison, Measure, escape
from elman.core.files import write_bytes

NAME = "report.html"
LINES_SHOWN = 3  # of those that a model wins
CHIPS_SHOWN = 4  # models that are named with such a line
# A click on a heading sorts by it, another one the other way round.
SORT = """
for (const button of document.querySelectorAll("th button")) button.onclick = () => {
  const head = button.parentNode, table = head.closest("table"), place = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending", rows = [...table.tBodies[0].rows];
  const key = row => row.cells[place].dataset.v ?? "";
  const order = (a, b) => a === "" || b === "" ? (a === "") - (b === "") : (up ? 1 : -1) *
    (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  rows.sort((a, b) => order(key(a), key(b)));
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
};
"""


@dataclass(frozen=True)
class Card:
    """A part of the page; narrow ones stand side by side where there is room."""

    anchor: str
    heading: str
    content: str
    is_narrow: bool = False


def write_report(directory: Path, comparison: Comparison) -> Path:
    """Write report.html into the directory of a comparison, in place of an earlier one."""
    path = directory / NAME
    write_bytes(path, page(comparison).encode("utf-8", "replace"))
    return path


def page(comparison: Comparison) -> str:
    """The whole page."""
    title, found = words.title(comparison), " ".join(words.findings(comparison))
    note = f'<p class="note">Note: {escape(comparison["note"])}.</p>' if comparison.get("note") else ""
    cards = list(_cards(comparison))
    links = "".join(f'<a href="#{card.anchor}">{card.heading}</a>' for card in cards)
    style = files("elman.compare").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{style}</style></head>\n<body><main>'
        f'<header><h1>{title}</h1><p class="facts">{facts(comparison)}</p>'
        f'<div class="card findings"><p>{found}</p></div>{note}</header><nav>{links}</nav>\n'
        f"{_laid_out(cards)}</main><script>{SORT}</script></body></html>\n"
    )


def _cards(comparison: Comparison) -> Iterator[Card]:
    """What there is to show; what a comparison has nothing of is left out."""
    palette = palette_of(comparison)
    yield from _table(comparison)
    yield from _sweep(comparison)
    yield from _curves(comparison, palette)
    yield from _gradients(comparison, palette)
    yield from _groups(comparison, palette)
    yield from _differences(comparison)
    yield from _wins(comparison)
    yield from _mixtures(comparison, palette)
    yield from _samples(comparison)
    yield from _failed(comparison)
    yield _again(comparison)


def palette_of(comparison: Comparison) -> charts.Palette:
    """The models in pictures, the best first. Of too many, the best one and those that learn are kept before others."""
    names = [model["name"] for model in words.ranked(comparison)]
    learning = {model["name"] for model in comparison["models"] if model.get("curve")}
    learning |= {one["model"] for one in comparison.get("gradients") or ()}
    drawn = sorted(names, key=lambda name: name not in {*names[:1], *learning})[: charts.MAX_LINES]
    return charts.Palette([name for name in names if name in drawn])


def _laid_out(cards: Iterable[Card]) -> str:
    """The cards one below the other, narrow neighbours side by side."""
    parts: list[str] = []
    for is_narrow, some in itertools.groupby(cards, key=lambda card: card.is_narrow):
        made = "\n".join(
            f'<section class="card" id="{card.anchor}"><h2>{card.heading}</h2>{card.content}</section>' for card in some
        )
        parts.append(f'<div class="pair">{made}</div>' if is_narrow else made)
    return "\n".join(parts)


def facts(comparison: Comparison) -> str:
    """One line on what was done."""
    found = [f"task {escape(str(comparison['task']))}"]
    if comparison.get("units"):
        found.append(f"units {escape(str(comparison['units']))}")
    if comparison.get("vocab_size"):
        found.append(f"vocabulary {comparison['vocab_size']:,}")
    if comparison.get("budget_seconds"):
        found.append(f"budget {words.duration(comparison['budget_seconds'])}")
    found += [f"took {words.duration(comparison['seconds'])}", f"seed {comparison['seed']}"]
    return " · ".join(found)


# ------------------------------------------------------------------------------------------------------------ the table


def _table(comparison: Comparison) -> Iterator[Card]:
    """Every model that came to an end, with every number; the best of each column marked."""
    models = words.measured(comparison)
    columns = words.columns(comparison)
    first = columns[0]
    with_interval = first.key == "perplexity" and any(model.get("perplexity_low") for model in models)
    heads = ["model", first.heading, *(["95 % interval"] if with_interval else []), *(m.heading for m in columns[1:])]
    head = "".join(f'<th scope="col" aria-sort="none"><button>{heading}</button></th>' for heading in heads)
    rows = "".join(_row(model, columns, models, with_interval=with_interval) for model in models)
    notes = "A click on a heading sorts by it. The best value of each column is marked."
    if with_interval:
        notes += " Bars are intervals by bootstrap, on one logarithmic scale."
    if any(model.get("tuned") for model in models):
        notes += f" * {words.tuned(comparison)}"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    if models:
        yield Card("table", "The table", f'<p class="note">{notes}</p><div class="scroll">{table}</div>')


def _row(
    model: Mapping[str, Any], columns: Sequence[Measure], models: Sequence[Mapping[str, Any]], *, with_interval: bool
) -> str:
    star = "*" if model.get("tuned") else ""
    what = f"<small>{escape(str(model['what']))}</small>" if model.get("what") else ""
    cells = [f'<th scope="row" data-v="{escape(model["name"])}">{escape(model["name"])}{star}{what}</th>']
    for number, measure in enumerate(columns):
        value = model.get(measure.key)
        mark = ' class="best"' if value is not None and value == words.best(models, measure) else ""
        cells.append(f'<td{mark} data-v="{"" if value is None else value}">{words.value(model, measure)}</td>')
        if number == 0 and with_interval:
            cells.append(_interval(model, models))
    return f"<tr>{''.join(cells)}</tr>"


def _interval(model: Mapping[str, Any], models: Sequence[Mapping[str, Any]]) -> str:
    """The interval of a perplexity as a bar on the scale of all models, and as numbers."""
    if not model.get("perplexity_low"):
        return '<td data-v="">–</td>'
    known = [one for one in models if one.get("perplexity_low")]
    low = math.log(min(one["perplexity_low"] for one in known))
    width = math.log(max(one["perplexity_high"] for one in known)) - low or 1.0
    left, right = ((math.log(model[key]) - low) / width * 100 for key in ("perplexity_low", "perplexity_high"))
    bar = f'<span class="interval"><i style="left:{left:.1f}%;width:{right - left:.1f}%"></i></span>'
    return f'<td data-v="{model["perplexity_low"]}">{bar}<small>{words.interval(model)}</small></td>'


def _plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already, the first of each row its heading; `<td …>` stays as it is."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# ------------------------------------------------------------------------------------------------------------- pictures


def _figure(spec: Mapping[str, Any], description: str, legend: str = "") -> str:
    return f"<figure>{charts.to_svg(dict(spec), description)}{legend}</figure>"


def _curves(comparison: Comparison, palette: charts.Palette) -> Iterator[Card]:
    models = [model for model in words.measured(comparison) if model.get("curve")]
    is_text = words.deciding(comparison).key == "perplexity"
    counted, loss = ("tokens trained on", "perplexity") if is_text else ("trained on", "exp(loss)")
    spec = charts.curves(models, palette, counted=counted, loss=loss)
    if spec is None:
        return
    note = (
        f"{loss.capitalize()} while the nets learned: of validation text, and dashed of the text they were trained on."
    )
    figure = _figure(spec, "Perplexity by tokens trained on", palette.legend([model["name"] for model in models]))
    yield Card("curves", "Learning", f'<p class="note">{note}</p>{figure}', is_narrow=True)


def _gradients(comparison: Comparison, palette: charts.Palette) -> Iterator[Card]:
    """How far back gradients reach; in the picture by the words, which all models read."""
    found = [one for one in comparison.get("gradients") or () if one["layers"]]
    if not found:
        return
    drawn = {one["model"]: ([x for x in one["layers"] if x["name"] == "words"] or one["layers"])[0] for one in found}
    rows = [[escape(one["model"]), escape(layer["name"]), _faded(layer)] for one in found for layer in one["layers"]]
    note = "How much a loss would change with what was read so many tokens before it: the reach of learning."
    figure = _figure(
        charts.gradient_reach(drawn, palette), "Size of gradients by distance", palette.legend(list(drawn))
    )
    table = _plain_table(["model", "gradient by", "below 1 % from"], rows)
    yield Card("gradients", "Gradient reach", f'<p class="note">{note}</p>{figure}{table}', is_narrow=True)


def _faded(layer: Mapping[str, Any]) -> str:
    if layer["faded"] is None:
        return f"not within {len(layer['by_distance']):,}"
    return f"{layer['faded']:,} tokens back"


def _groups(comparison: Comparison, palette: charts.Palette) -> Iterator[Card]:
    """Perplexity by how often a word was seen, and by its place in the line."""
    wanted = (
        ("by_frequency", "frequency", "By word frequency", "how often a word was seen in training"),
        ("by_position", "position", "By position in the line", "place in the line"),
    )
    for key, anchor, heading, axis in wanted:
        groups = comparison.get(key) or ()
        names = [one["name"] for one in words.ranked(comparison) if groups and one["name"] in groups[0]["nats"]]
        if not names:
            continue
        # rare words are a thousand times harder for all: only beside the best one can models be told apart
        over = names[0] if key == "by_frequency" and all(names[0] in group["nats"] for group in groups) else None
        figure = _figure(
            charts.by_group(groups, palette, title=axis, over=over), f"Perplexity by {axis}", palette.legend(names)
        )
        about = f" In the picture it is divided by that of {escape(over)}, the best one overall." if over else ""
        about += "" if len(names) <= charts.MAX_LINES else f" {charts.MAX_LINES} models are drawn, the table has all."
        note = f'<p class="note">Perplexity by {axis}.{about}</p>'
        heads = ["perplexity", *(charts.span(group) for group in groups)]
        rows = [[escape(name), *(_group_cell(name, group) for group in groups)] for name in names]
        rows.append(["tokens", *(f'<td class="unsure">{group["tokens"]:,}</td>' for group in groups)])
        yield Card(anchor, heading, f"{note}{figure}{_plain_table(heads, rows)}", is_narrow=True)


def _group_cell(name: str, group: Mapping[str, Any]) -> str:
    nats = group["nats"].get(name)
    if nats is None:
        return "–"
    mark = ' class="best"' if nats == min(group["nats"].values()) else ""
    return f"<td{mark}>{words.perplexity(charts.perplexity(nats))}</td>"


def _sweep(comparison: Comparison) -> Iterator[Card]:
    sweep = comparison.get("sweep")
    if not sweep or not sweep["points"]:
        return
    setting, points = escape(sweep["setting"]), sweep["points"]
    equal = f", with equal {escape(sweep['equal'])}" if sweep.get("equal") else ""
    rows = [[escape(str(one["value"])), words.count(one["parameters"]), f"{one['perplexity']:,.1f}"] for one in points]
    figure = _figure(charts.sweep(points, setting=sweep["setting"]), f"Perplexity by {sweep['setting']}")
    table = _plain_table([setting, "parameters", "perplexity"], rows)
    note = f'<p class="note">The same model with other values of <code>{setting}</code>{equal}.</p>'
    yield Card("sweep", f"By {setting}", f'{note}<div class="pair">{figure}{table}</div>')


# --------------------------------------------------------------------------------------------------------- in more depth


def _differences(comparison: Comparison) -> Iterator[Card]:
    """Every pair of models: the ratio of their perplexities, pale where chance may have made it."""
    pairs = {(one["a"], one["b"]): one for one in comparison.get("differences") or ()}
    names = [model["name"] for model in words.ranked(comparison)]
    names = [name for name in names if any(name in pair for pair in pairs)]
    if len(names) < 2:
        return
    rows = [[escape(row), *(_pair_cell(row, column, pairs) for column in names)] for row in names]
    note = (
        "Perplexity of the row's model as a multiple of the column's. Pale: within what chance gives on this text "
        "(paired bootstrap over the same lines)."
    )
    table = _plain_table(["", *(escape(name) for name in names)], rows)
    yield Card("differences", "Which differences are significant", f'<p class="note">{note}</p>{table}')


def _pair_cell(row: str, column: str, pairs: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    one, is_turned = pairs.get((row, column)), False
    if one is None:
        one, is_turned = pairs.get((column, row)), True
    if one is None:
        return ""
    ratio = 1 / one["ratio"] if is_turned else one["ratio"]
    return f"<td>{ratio:.3f}</td>" if one["significant"] else f'<td class="unsure">({ratio:.3f})</td>'


def _wins(comparison: Comparison) -> Iterator[Card]:
    """Lines with the largest differences, by the model that wins them."""
    lines = comparison.get("lines") or ()
    parts = []
    for name in dict.fromkeys(line["best"] for line in lines):
        parts.append(f"<h3>{escape(name)}</h3>")
        parts += [_line(line) for line in lines if line["best"] == name][:LINES_SHOWN]
    if parts:
        note = "Lines on which a model is furthest ahead; numbers are nats per token, the less the better."
        yield Card("wins", "Where each model wins", f'<p class="note">{note}</p>{"".join(parts)}')


def _line(line: Mapping[str, Any]) -> str:
    tokens = " ".join(f"<span>{escape(token)}</span>" for token in line["text"].split())
    order = sorted(line["nats"].items(), key=lambda one: one[1])
    shown = order if len(order) <= CHIPS_SHOWN else [*order[: CHIPS_SHOWN - 1], order[-1]]
    chips = [
        f"<span>{'<b>' if name == line['best'] else ''}{escape(name)} {nats:.2f}{'</b>' if name == line['best'] else ''}</span>"
        for name, nats in shown
    ]
    if len(shown) < len(order):
        chips.insert(-1, "<span>…</span>")
    return f'<div class="line"><p class="words">{tokens}</p><div class="chips">{"".join(chips)}</div></div>'


def _mixtures(comparison: Comparison, palette: charts.Palette) -> Iterator[Card]:
    parts = []
    for mixture in comparison.get("mixtures") or ():
        weights = sorted(mixture["weights"].items(), key=lambda one: -one[1])
        bars = "".join(
            f'<i style="width:{100 * weight:.2f}%;background:{palette.colour(name)}"></i>' for name, weight in weights
        )
        said = "".join(
            f'<li><span style="color:{palette.colour(name)}">■</span> {escape(name)} {weight:.1%}</li>'
            for name, weight in weights
        )
        parts.append(
            f'<h3>{escape(mixture["name"])}</h3><div class="shares">{bars}</div><ul class="legend">{said}</ul>'
        )
    if parts:
        yield Card("mixtures", "Mixture weights", "".join(parts))


def _samples(comparison: Comparison) -> Iterator[Card]:
    models = [model for model in words.measured(comparison) if model.get("sample")]
    parts = [f"<h3>{escape(model['name'])}</h3><blockquote>{escape(model['sample'])}</blockquote>" for model in models]
    if parts:
        yield Card("samples", "What each model writes", "".join(parts))


def _failed(comparison: Comparison) -> Iterator[Card]:
    failed = [
        f"<dt>{escape(one['name'])}</dt><dd>{escape(one['error'])}</dd>" for one in comparison.get("failed") or ()
    ]
    if failed:
        yield Card("failed", "Models that failed", f'<dl class="failed">{"".join(failed)}</dl>')


def _again(comparison: Comparison) -> Card:
    """Commands, seed, versions and fingerprints: all that it takes to get the numbers again."""
    data = comparison["data"]
    facts = {
        "seed": comparison["seed"],
        "measured on": comparison["measured_on"],
        "signature": comparison.get("signature") or "–",
        **{f"version of {name}": number for name, number in comparison["versions"].items()},
        **{f"SHA-256 of {name}": f"{digest}…" for name, digest in data.get("fingerprints", {}).items()},
    }
    listed = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items())
    whole = comparison.get("command") or ""
    whole = f"<p>Everything at once:</p><pre><code>{escape(whole)}</code></pre>" if whole else ""
    commands = "\n".join(str(model["command"]) for model in comparison["models"] if model.get("command"))
    return Card(
        "again",
        "How to get every number again",
        f"{whole}<p>One by one:</p><pre><code>{escape(commands)}</code></pre><dl>{listed}</dl>"
        '<p class="note">All numbers of this page, and more, stand in <code>comparison.json</code> beside it.</p>',
    )
