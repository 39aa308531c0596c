"""How far back a language model uses its context.

Of a text: what stands more than k tokens back is deleted or shuffled, or the token k back replaced by another one; how much
worse is the next token predicted, and how much does the prediction change? (Khandelwal et al. 2018)
Of a probe (`elman.explain.probes`): sentences in which a word depends on one far before it; how often is it right?
Needs nothing of a model but `start`, `score` and `predict`. B rows · T tokens · V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import Integers
from elman.explain import probes, probing
from elman.explain.explanation import Explanation, Line, Span, bar
from elman.explain.kind import Kind, KindOptions, names_of
from elman.explain.probing import padded
from elman.lm.protocol import refuse_nan

BATCH = 64  # places or sentences that are read side by side
CLOSE = 0.01  # a loss that is so much larger, as a share, counts as that of the whole context
CONTEXT = 4  # times the largest distance is read before a place, unless it is said
WAYS = {
    "delete": "all further back deleted",
    "replace": "the one so far back replaced",
    "shuffle": "all further back shuffled",
}
BAR = 10


class ReachOptions(KindOptions):
    """Settings of `reach`."""

    probe: Literal["agreement", "recall", "copy"] | None = Field(
        None, description="no text but sentences of a grammar: how often is a word right that depends on one far back"
    )
    distances: Integers = Field(
        (1, 2, 3, 5, 8, 12, 20, 30, 50), description="how far back; of a probe the nearest ones that its grammar has"
    )
    positions: int = Field(100, ge=1, le=100_000, description="places of the text that are looked at, drawn by chance")
    context: int | None = Field(
        None, ge=2, description="tokens before a place that are read at most; 4 times the largest distance if not given"
    )
    items: int = Field(100, ge=1, le=100_000, description="probe: sentences for each distance")

    @field_validator("distances")
    @classmethod
    def _sort(cls, distances: tuple[int, ...]) -> tuple[int, ...]:
        if not distances or min(distances) < 1:
            raise ValueError("distances are whole numbers from 1, with commas between")
        return tuple(sorted(set(distances)))

    @property
    def context_size(self) -> int:
        """Tokens that are read before a place."""
        return self.context or CONTEXT * self.distances[-1]


class Reach(Kind[ReachOptions]):
    """What is lost, by distance, when the context is cut or changed; or how often a probe's word is right, by distance."""

    options = ReachOptions
    compares = True
    needs_text = False  # a probe has sentences of its own

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: ReachOptions) -> Explanation:
        """A curve for each model."""
        if options.probe is not None:
            if texts:
                raise UsageError(
                    "a probe has sentences of its own", code="options-conflict", hint="leave out the text, or probe=…"
                )
            rng = np.random.default_rng(options.seed)
            made = list(probes.items(options.probe, distances=options.distances, count=options.items, rng=rng))
            return probing.explain(models, options.probe, made, self.report)
        if not texts:
            raise UsageError(
                "reach needs a text", code="missing-option", hint="give one behind the model, or --set probe=recall"
            )
        if options.context_size <= options.distances[-1]:
            raise UsageError(
                f"context={options.context} does not reach beyond the largest distance, {options.distances[-1]}",
                code="bad-value",
                hint=f"give at least context={options.distances[-1] + 1}",
            )
        return self._of_text(models, "\n".join(texts), options)

    def _of_text(self, models: Sequence[Any], text: str, options: ReachOptions) -> Explanation:
        found, notes = [], {}
        names = names_of(models)
        for number, (name, model) in enumerate(zip(names, models, strict=True)):
            language_model = model.language_model()
            places = _Places.drawn(language_model.as_read(language_model.ids_of(text)), options)
            measured = _Measured()
            for done, batch in places.batches():
                self.report((number + done) / len(models))
                _measure(language_model.lm, places, batch, options, measured)
            found.append({"model": name, **_summary(measured, places)})
            notes[name] = _notes(measured, places, options)
        title = "What is lost when the context is cut or changed so far back"
        same = all(some == notes[name] for some in notes.values())
        said = notes[name] if same else [f"{one}: {note}" for one, some in notes.items() for note in some]
        return Explanation("reach", title, {"models": found}, _picture(found, title), _draw(found), said)


@dataclass(frozen=True)
class _Places:
    """Places of a text, each with the distances that it is looked at for."""

    contexts: Sequence[Array]  # ids that are read one after the other: the whole text, or each of its lines
    places: Sequence[tuple[int, int]]  # which of the contexts, and where in it
    counted: Mapping[int, frozenset[int]]  # by distance: which of the places have more than so many tokens before them
    context_size: int

    @classmethod
    def drawn(cls, contexts: Sequence[Array], options: ReachOptions) -> _Places:
        """By chance, so many for each distance; a place that serves one distance serves the others too."""
        rng = np.random.default_rng(options.seed)
        every = [(which, place) for which, ids in enumerate(contexts) for place in range(1, len(ids))]
        order = [every[i] for i in rng.permutation(len(every)).tolist()]
        wanted = {
            distance: [one for one in order if one[1] > distance][: options.positions] for distance in options.distances
        }
        places = sorted({one for some in wanted.values() for one in some})
        if not places:
            raise UsageError(
                f"the text is too short: no token has more than {options.distances[0]} before it",
                code="unsuitable-text",
                hint="give a longer text, or smaller distances",
            )
        number = {one: i for i, one in enumerate(places)}
        counted = {distance: frozenset(number[one] for one in some) for distance, some in wanted.items() if some}
        return cls(contexts, places, counted, options.context_size)

    def batches(self) -> Iterator[tuple[float, range]]:
        """Some of the places at a time, and how many were before them, as a share."""
        for first in range(0, len(self.places), BATCH):
            yield first / len(self.places), range(first, min(first + BATCH, len(self.places)))

    def context(self, number: int) -> Array:
        """What is read before a place."""
        which, place = self.places[number]
        return self.contexts[which][max(0, place - self.context_size) : place]

    def target(self, number: int) -> int:
        """The token that comes there."""
        which, place = self.places[number]
        return int(self.contexts[which][place])

    @property
    def read_tokens(self) -> Array:
        """All tokens that stand before some other one."""
        return np.concatenate([ids[:-1] for ids in self.contexts])


@dataclass
class _Measured:
    """What was measured so far, by distance and way."""

    nats: dict[tuple[int, str], list[float]] = field(default_factory=dict)  # lost at each place
    divergences: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)  # nats of each place's token with all its context


def _deleted(context: Array, distance: int, rng: np.random.Generator, others: Array) -> Array:
    return context[-distance:]


def _replaced(context: Array, distance: int, rng: np.random.Generator, others: Array) -> Array:
    changed = context.copy()
    others = others[others != context[-distance]]
    if len(others):
        changed[-distance] = rng.choice(others)
    return changed


def _shuffled(context: Array, distance: int, rng: np.random.Generator, others: Array) -> Array:
    return np.concatenate([rng.permutation(context[:-distance]), context[-distance:]])


CHANGES: dict[str, Callable[[Array, int, np.random.Generator, Array], Array]] = {
    "delete": _deleted,
    "replace": _replaced,
    "shuffle": _shuffled,
}


def _measure(lm: Any, places: _Places, batch: range, options: ReachOptions, measured: _Measured) -> None:
    """Every distance and way for some places; what is drawn for a batch does not depend on the others."""
    rng = np.random.default_rng([options.seed, batch.start])
    others = places.read_tokens
    contexts = {number: places.context(number) for number in batch}
    targets = np.array([places.target(number) for number in batch])
    whole_BV = predictions(lm, list(contexts.values()))
    measured.losses += (-whole_BV[np.arange(len(batch)), targets]).tolist()
    for distance, counted in places.counted.items():
        rows = np.array([number - batch.start for number in batch if number in counted], dtype=np.int64)
        if not len(rows):
            continue
        for way, change in CHANGES.items():
            changed = [change(contexts[batch.start + row], distance, rng, others) for row in rows.tolist()]
            changed_BV = predictions(lm, changed)
            with np.errstate(invalid="ignore"):
                lost = (whole_BV[rows] - changed_BV)[np.arange(len(rows)), targets[rows]]
            measured.nats.setdefault((distance, way), []).extend(lost.tolist())
            measured.divergences.setdefault((distance, way), []).extend(divergence(whole_BV[rows], changed_BV).tolist())


def predictions(lm: Any, contexts: Sequence[Array]) -> Array:
    """Log-probabilities of what comes after each context, read from the start. -> (B, V)"""
    _, state = lm.score(*padded(contexts), lm.start(len(contexts)))
    return refuse_nan(lm.predict(state)).astype(np.float64)


def divergence(log_p: Array, log_q: Array) -> Array:
    """Kullback and Leibler's divergence of q from p, in nats: sum p (log p - log q). (B, V) -> (B,)"""
    with np.errstate(invalid="ignore"):
        parts = np.exp(log_p) * (log_p - log_q)
    return np.asarray(np.where(np.isneginf(log_p), 0.0, parts).sum(axis=1))


def _summary(measured: _Measured, places: _Places) -> dict[str, Any]:
    """Means by distance, and from where on the rest of the context hardly matters."""
    rows = []
    for distance, counted in places.counted.items():
        row: dict[str, Any] = {"distance": distance, "positions": len(counted)}
        for way in WAYS:
            row[way] = {
                "nats": _mean(measured.nats[distance, way]),
                "kl": _mean(measured.divergences[distance, way]),
            }
        rows.append(row)
    loss = _mean(measured.losses)
    lost = [row["delete"]["nats"] for row in rows]
    reach = None
    if loss is not None and None not in lost:
        large = [i for i, nats in enumerate(lost) if nats > CLOSE * loss]
        after = large[-1] + 1 if large else 0
        reach = rows[after]["distance"] if after < len(rows) else None
    return {"positions": len(places.places), "nats_per_token": loss, "reach": reach, "by_distance": rows}


def _mean(values: Sequence[float]) -> float | None:
    """Of those that are finite."""
    finite = [value for value in values if math.isfinite(value)]
    return float(f"{sum(finite) / len(finite):.6g}") if finite else None


def _notes(measured: _Measured, places: _Places, options: ReachOptions) -> list[str]:
    """What was left out."""
    notes = []
    num_tokens = sum(map(len, places.contexts))
    if len(places.places) < num_tokens - len(places.contexts):
        notes.append(f"{len(places.places):,} of {num_tokens:,} places were looked at, drawn by chance")
    if max(place for _, place in places.places) > options.context_size:
        notes.append(f"at most {options.context_size:,} tokens before a place were read")
    missing = [distance for distance in options.distances if distance not in places.counted]
    if missing:
        notes.append(f"no place has more than {missing[0]} tokens before it: {_listed(missing)} left out")
    scarce = [k for k, counted in places.counted.items() if len(counted) < min(options.positions, 10)]
    if scarce:
        notes.append(
            f"fewer than 10 places have more than {scarce[0]} tokens before them: mind the means from there on"
        )
    infinite = sum(not math.isfinite(value) for some in measured.nats.values() for value in some)
    if infinite:
        notes.append(f"{infinite:,} changes made a token impossible or possible, and are left out of the means")
    return notes


def _listed(distances: Sequence[int]) -> str:
    return ", ".join(map(str, distances))


def _picture(found: Sequence[Mapping[str, Any]], title: str) -> pictures.Spec:
    rows = [
        {"tokens back": row["distance"], "lost": row[way][key], "way": said, "model": one["model"], "number": number}
        for one in found
        for row in one["by_distance"]
        for way, said in WAYS.items()
        for key, number in (("nats", "nats lost"), ("kl", "KL divergence"))
        if row[way][key] is not None
    ]
    return pictures.line_panels(
        rows, x="tokens back", y="lost", colour="model", column="way", row="number", title=title, log_x=True
    )


def _draw(found: Sequence[Mapping[str, Any]]) -> list[Line]:
    """For each model a table: the nats that are lost with a bar, and the divergence, by distance and way."""
    highest = max((row[way]["nats"] or 0.0 for one in found for row in one["by_distance"] for way in WAYS), default=0.0)
    lines: list[Line] = []
    for one in found:
        loss, reach = one["nats_per_token"], one["reach"]
        end = "" if reach is None else f"; {reach} tokens of it are enough to lose less than {CLOSE:.0%}"
        nats = "infinite" if loss is None else f"{loss:.4g}"
        lines.append([Span(f"{one['model']}: {nats} nats a token with its whole context{end}")])
        lines.append([Span(f"{'':>8}" + "".join(f"{said:<30}" for said in WAYS.values()))])
        lines.append([Span(f"{'back':>6}  " + f"{'nats lost':<21}{'KL':<9}" * len(WAYS))])
        for row in one["by_distance"]:
            spans = [Span(f"{row['distance']:6d}  ")]
            for way in WAYS:
                lost, divergence = row[way]["nats"], row[way]["kl"]
                share = (lost or 0.0) / highest if highest > 0 else 0.0
                spans += [
                    Span(f"{_cell(lost)} "),
                    Span(f"{bar(share, BAR):<{BAR + 1}}"),
                    Span(f"{_cell(divergence)}  "),
                ]
            lines.append(spans)
    return lines


def _cell(value: float | None) -> str:
    return "    inf " if value is None else f"{value:8.4f}"
