"""Accuracy by distance on the sentences of a probe, for any language model: is the right word the likeliest of its choices?

Needs nothing of a model but `start` and `score`. B rows · T tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain import probes
from elman.explain.explanation import Explanation, Line, Span, bar
from elman.explain.kind import names_of
from elman.lm.protocol import refuse_nan, repeat
from elman.text.units.vocabulary import EOS_ID

BATCH = 64  # sentences that are read side by side
BAR = 30
GUESSING = "guessing"


def explain(
    models: Sequence[Any], name: str, made: Sequence[probes.Item], report: Callable[[float], None]
) -> Explanation:
    """A curve for each model, all on the same sentences."""
    names = names_of(models)
    known, notes = _known(models, names, made)
    found = []
    for number, model in enumerate(models):
        rows = []
        for first in range(0, len(known), BATCH):
            report((number + first / len(known)) / len(models))
            rows += _choices(model.language_model(), known[first : first + BATCH])
        found.append({"model": names[number], "by_distance": _accuracy(known, np.array(rows))})
    example = known[0]
    notes.append(f"for example: {example.before} [{'|'.join(example.choices)}]")
    chance = probes.probe_named(name).chance
    title = f"{name.capitalize()}: share of sentences in which the right word is the likeliest"
    data = {"probe": name, "chance": chance, "models": found}
    return Explanation("reach", title, data, _picture(found, chance, title), _draw(name, found, chance), notes)


def _known(
    models: Sequence[Any], names: Sequence[str], made: Sequence[probes.Item]
) -> tuple[list[probes.Item], list[str]]:
    """The sentences of which every model knows every word, so that all are measured alike; and what was left out."""
    unknown: dict[str, set[str]] = {}
    every = sorted({word for item in made for word in (*item.before.split(), *item.choices)})
    for name, model in zip(names, models, strict=True):
        language_model = model.language_model()
        is_unknown = language_model.is_unknown
        unknown[name] = {
            word for word in every if any(map(is_unknown, language_model.tokenizer.encode_text(word).tolist()))
        }
    missing = set().union(*unknown.values())
    known = [item for item in made if missing.isdisjoint((*item.before.split(), *item.choices))]
    notes = [f"{name} does not know {', '.join(sorted(words))}" for name, words in unknown.items() if words]
    if not known:
        raise UsageError(
            f"no sentence of the probe is known to every model: {'; '.join(notes)}",
            code="no-known-word",
            hint="train on such sentences: elman.explain.probes.lines writes them",
        )
    if len(known) < len(made):
        notes.append(f"{len(made) - len(known):,} of {len(made):,} sentences with such words were left out")
    return known, notes


def _choices(language_model: Any, some: Sequence[probes.Item]) -> list[list[float]]:
    """Whether the right word is the likeliest of the choices (half, where it is one of several), and its share of them."""
    lm = language_model.lm
    before, endings = [], []
    for item in some:
        whole = [language_model.tokenizer.encode_text(f"{item.before} {choice}") for choice in item.choices]
        common = _common_start(whole)
        before.append(whole[0][:common])
        endings += [ids[common:] for ids in whole]
    num_choices = len(some[0].choices)
    _, state = lm.score(*padded(before), lm.start(len(some)))
    scores, _ = lm.score(*padded(endings), repeat(state, num_choices))
    nats = refuse_nan(scores).astype(np.float64).sum(axis=1).reshape(len(some), num_choices)
    rows = []
    for item, log_probs in zip(some, nats, strict=True):
        right, best = log_probs[item.right], log_probs.max()
        is_best = float(right == best) / float((log_probs == best).sum())
        weights = np.exp(log_probs - best) if math.isfinite(best) else np.ones(num_choices)
        rows.append([is_best, float(weights[item.right] / weights.sum())])
    return rows


def _common_start(rows: Sequence[Array]) -> int:
    """How many tokens all begin with alike, leaving each at least one."""
    shortest = min(map(len, rows)) - 1
    same = np.all([row[:shortest] == rows[0][:shortest] for row in rows], axis=0)
    return int(shortest if same.all() else np.argmin(same))


def _accuracy(known: Sequence[probes.Item], rows_N2: Array) -> list[dict[str, Any]]:
    distances = np.array([item.distance for item in known])
    found = []
    for distance in np.unique(distances).tolist():
        accuracy, share = rows_N2[distances == distance].mean(axis=0)
        count = int((distances == distance).sum())
        found.append(
            {
                "distance": distance,
                "items": count,
                "accuracy": round(float(accuracy), 6),
                "share": round(float(share), 6),
            }
        )
    return found


def padded(rows: Sequence[Array]) -> tuple[Array, Array]:
    """Rows of ids as one array, (B, T), and their lengths, (B,)."""
    lengths = np.array([len(row) for row in rows])
    tokens_BT = np.full((len(rows), lengths.max(initial=0)), EOS_ID, dtype=np.int64)
    for place, row in enumerate(rows):
        tokens_BT[place, : len(row)] = row
    return tokens_BT, lengths


def _picture(found: Sequence[Mapping[str, Any]], chance: float, title: str) -> pictures.Spec:
    rows = [
        {"words back": row["distance"], "accuracy": row["accuracy"], "model": one["model"]}
        for one in found
        for row in one["by_distance"]
    ]
    ends = {row["words back"] for row in rows}
    rows += [{"words back": end, "accuracy": chance, "model": GUESSING} for end in sorted({min(ends), max(ends)})]
    return pictures.line_panels(rows, x="words back", y="accuracy", colour="model", title=title, y_domain=(0, 1))


def _draw(name: str, found: Sequence[Mapping[str, Any]], chance: float) -> list[Line]:
    """For each model a bar a distance."""
    lines: list[Line] = [[Span(f"{name}: right by guessing {chance:.0%}")]]
    for one in found:
        lines.append([Span(one["model"])])
        for row in one["by_distance"]:
            accuracy = row["accuracy"]
            drawn = f"{bar(accuracy, BAR):<{BAR}}"
            lines.append(
                [Span(f"{row['distance']:6d} back {accuracy:7.1%} "), Span(drawn), Span(f" of {row['items']}")]
            )
    return lines
