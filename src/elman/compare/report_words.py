"""What a comparison found, in sentences; and numbers as a reader wants them. Everything given back is HTML, escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from elman.core import screen

Comparison = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """A number of a model: how it is called and whether more of it is better."""

    key: str
    heading: str
    form: str = "{:,.1f}"
    more_is_better: bool = False


# What a comparison is decided by: the first that the models have. Then what else says how good they are, and the costs.
DECIDING = (
    Measure("bleu", "BLEU", more_is_better=True),
    Measure("f1", "F1", "{:.3f}", more_is_better=True),
    Measure("accuracy", "accuracy", "{:.3f}", more_is_better=True),
    Measure("exact_match", "exact match", "{:.3f}", more_is_better=True),
    Measure("mae", "mean absolute error", "{:.4g}"),
    Measure("perplexity", "perplexity"),
)
FURTHER = (Measure("chrf", "chrF", more_is_better=True), Measure("bits_per_byte", "bits/byte", "{:.3f}"))
COSTS = (
    Measure("parameters", "parameters", "count"),
    Measure("bytes", "size on disk", "size"),
    Measure("state_bytes", "state", "size"),
    Measure("seconds", "training", "time"),
    Measure("tokens_per_second", "tokens/s", "count", more_is_better=True),
    Measure("ms_per_token_10", "ms/token at 10", "{:.3g}"),
    Measure("ms_per_token_1000", "ms/token at 1,000", "{:.3g}"),
)


def escape(text: str) -> str:
    """Text of anybody's inside HTML: it can neither end an element nor an attribute, and control characters are seen."""
    return html.escape(screen.escape(text))


def deciding(comparison: Comparison) -> Measure:
    """The measure that ranks the models."""
    models = measured(comparison)
    for measure in DECIDING:
        if models and any(model.get(measure.key) is not None for model in models):
            return measure
    return DECIDING[-1]


def columns(comparison: Comparison) -> list[Measure]:
    """What the table has: the measure that ranks the models, then all others that any of them has."""
    models, first = measured(comparison), deciding(comparison)
    others = [measure for measure in (*DECIDING, *FURTHER, *COSTS) if measure != first]
    return [first, *(measure for measure in others if any(model.get(measure.key) is not None for model in models))]


def best(models: Sequence[Mapping[str, Any]], measure: Measure) -> float | None:
    """The best value of a column; None where all are the same."""
    values = [model[measure.key] for model in models if model.get(measure.key) is not None]
    if len(set(values)) < 2:
        return None
    return float(max(values) if measure.more_is_better else min(values))


def measured(comparison: Comparison) -> list[dict[str, Any]]:
    """The models that came to an end, in the order they were asked for."""
    return [model for model in comparison["models"] if not model.get("error")]


def ranked(comparison: Comparison) -> list[dict[str, Any]]:
    """The models that have a number, the best first."""
    measure = deciding(comparison)
    models = [model for model in measured(comparison) if model.get(measure.key) is not None]
    return sorted(models, key=lambda model: model[measure.key], reverse=measure.more_is_better)


def findings(comparison: Comparison) -> list[str]:
    """What was found, in two or three sentences that are true whatever it was."""
    models, measure = ranked(comparison), deciding(comparison)
    if not models:
        return ["No model came to an end: what went wrong stands below."]
    found = [_first(comparison, models, measure)]
    best, last = models[0][measure.key], models[-1][measure.key]
    if len(models) > 1 and models[1][measure.key] != best:
        found.append(_second(comparison, models, measure))
    if len(models) > 2 and last != models[1][measure.key]:
        found.append(_last(models, measure))
    if comparison.get("failed"):
        failed = len(comparison["failed"])
        found.append(f"{failed} {'model' if failed == 1 else 'models'} failed: see the end of this page.")
    return found


def plain_findings(comparison: Comparison) -> list[str]:
    """The same for a terminal, without marks."""
    return [html.unescape(re.sub("<[^>]+>", "", sentence)) for sentence in findings(comparison)]


def _first(comparison: Comparison, models: Sequence[Mapping[str, Any]], measure: Measure) -> str:
    data, best = comparison["data"], models[0]
    trained = f"{data['train_tokens']:,} tokens" if data.get("train_tokens") else "the same text"
    tested = f"{data['test_tokens']:,} tokens of " if data.get("test_tokens") else ""
    where = {"test": "test text", "valid": "validation text"}.get(comparison["measured_on"], "held-out text")
    number = f"{measure.heading} {value(best, measure)}"
    if best.get("perplexity_low") and measure.key == "perplexity":
        number += f" (95 % interval {interval(best)})"
    if len(models) == 1:
        return f"{_name(best)}, trained on {trained} and measured on {tested}{where}, has {number}."
    leaders = [_name(model) for model in models if model[measure.key] == best[measure.key]]
    all_of_them = f"{', '.join(leaders[:-1])} and {leaders[-1]}"
    who = f"{leaders[0]} predicts best" if len(leaders) == 1 else f"{all_of_them} predict best, equally"
    return f"Of {len(models)} models trained on {trained} and measured on {tested}{where}, {who}: {number}."


def _second(comparison: Comparison, models: Sequence[Mapping[str, Any]], measure: Measure) -> str:
    best, second = models[0], models[1]
    pair = {best["name"], second["name"]}
    said = [one for one in comparison.get("differences") or () if {one["a"], one["b"]} == pair]
    next_best = f"{_name(second)} ({value(second, measure)})"
    if not said:
        return f"The next best is {next_best}."
    if said[0]["significant"]:
        return (
            f"It is better than the next best, {next_best}, by more than chance explains (paired bootstrap over lines)."
        )
    return f"The next best, {next_best}, is too close to tell apart on this text (paired bootstrap over lines)."


def _last(models: Sequence[Mapping[str, Any]], measure: Measure) -> str:
    best, last = models[0], models[-1]
    end = f"The weakest is {_name(last)} at {value(last, measure)}"
    if measure.key != "perplexity":
        return f"{end}."
    share = 1 - best["perplexity"] / last["perplexity"]
    return f"{end}: the best one's perplexity is {share:.0%} lower."


def tuned(comparison: Comparison) -> str:
    """What the star beside a model says: whether its numbers are of text that it was tuned on."""
    if comparison["measured_on"] == "valid":
        return "Tuned on validation text, which is also the text of these numbers: they are better than on new text."
    return "Tuned on validation text; the numbers are of text that nothing was tuned on."


def value(model: Mapping[str, Any], measure: Measure) -> str:
    """A number of a model as it is shown; a dash where it has none."""
    number = model.get(measure.key)
    if number is None:
        return "–"
    match measure.form:
        case "count":
            return count(number)
        case "size":
            return size(number)
        case "time":
            return duration(number)
        case form:
            return form.format(number)


def perplexity(number: float) -> str:
    """Four digits or so: 19.77, 134.9, 2,008."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}" if number >= 100 else f"{number:.2f}"


def interval(model: Mapping[str, Any]) -> str:
    """The confidence interval of a perplexity: 95.1–101.3."""
    return f"{model['perplexity_low']:,.1f}–{model['perplexity_high']:,.1f}"


def count(number: float) -> str:
    """1,234 or 56 k or 7.8 M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= unit:
            scaled = number / (1e3 if name == "k" else unit)
            return f"{scaled:.3g} {name}" if scaled < 999.5 else f"{scaled:,.0f} {name}"
    return f"{number:,.0f}"


def size(num_bytes: float) -> str:
    """Bytes as kB, MB or GB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.3g} {name}" if num_bytes / unit < 999.5 else f"{num_bytes / unit:,.0f} {name}"
    return f"{num_bytes:,.0f} B"


def duration(seconds: float) -> str:
    """Seconds, minutes and seconds (2:20 min), or hours."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 120 else f"{seconds / 3600:.1f} h"


def title(comparison: Comparison) -> str:
    """What the page is called."""
    names = [PurePath(path).name for path in comparison["data"]["train"]]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"Models compared on {escape(names[0]) if names else 'one corpus'}{more}"


def _name(model: Mapping[str, Any]) -> str:
    return f"<strong>{escape(model['name'])}</strong>"
