"""How much the language model counts, and each word: tuned for the fewest word errors over n-best lists.

score + weight * log p(text) + bonus * words. Along a line through (weight, bonus) the score of a hypothesis is a straight
line, so the best hypothesis of a list changes only where two lines cross: all crossings are found, and with them the
number of errors everywhere on the line, exactly (Och 2003, Minimum error rate training). Numpy only.
`L` lists, `N` hypotheses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from elman.core.arrays import Array

STARTS = (0.3, 0.1, 1.0, 0.0, 3.0)  # weights to begin from, in parts of how much the scores vary against the model's
MAX_ROUNDS = 20
HALVINGS = 5  # ways to cut the lists in halves, as with every tuned number here: one alone moves by chance
DIGITS = 6
NARROW = 1e-9  # an interval that numbers of so many digits do not hit
MAX_CROSSINGS = 10_000  # of one list; each goes on to a steeper line, so there are fewer than hypotheses


@dataclass(frozen=True)
class Weights:
    """What the model's log-probability and each word of a hypothesis count, against its score."""

    weight: float
    bonus: float


@dataclass(frozen=True)
class Judged:
    """Lists with the word errors of every hypothesis; a shorter list is filled up with copies of its first one."""

    scores: Array  # (L, N)
    log_probs: Array  # (L, N), finite
    words: Array  # (L, N)
    errors: Array  # (L, N)
    reference_words: Array  # (L,)

    def select(self, lists: Array) -> Judged:
        """Some of the lists."""
        parts = (self.scores, self.log_probs, self.words, self.errors, self.reference_words)
        return Judged(*(part[lists] for part in parts))

    def list_errors(self, weights: Weights) -> Array:
        """Word errors of the hypothesis that is then the first of each list. -> (L,)"""
        totals = self.scores + weights.weight * self.log_probs + weights.bonus * self.words
        return np.take_along_axis(self.errors, totals.argmax(axis=1)[:, None], axis=1)[:, 0]

    def rate(self, list_errors: Array) -> float:
        """Corpus word error rate."""
        return float(list_errors.sum() / max(1, self.reference_words.sum()))


def tune(judged: Judged, *, weight: float | None = None, bonus: float | None = None) -> Weights:
    """The weights of fewest errors, from several starts by turns along each; what is given stays as it is.

    Where nothing is better than to leave the order as it is, that is left.
    """
    neutral = Weights(weight or 0.0, bonus or 0.0)
    best, fewest = neutral, judged.list_errors(neutral).sum()
    nats_per_word = -judged.log_probs.sum() / max(1, judged.words.sum())
    directions = [(1.0, 0.0)] * (weight is None) + [(0.0, 1.0)] * (bonus is None)
    directions += [(1.0, float(nats_per_word))] * (weight is None and bonus is None)
    scale = _spread(judged.scores) / (_spread(judged.log_probs) or 1.0)
    for start in (share * scale for share in STARTS) if weight is None else (weight,):
        found = Weights(start, neutral.bonus)
        errors = judged.list_errors(found).sum()
        for _ in range(MAX_ROUNDS):
            before = errors
            for direction in directions:
                moved = _search_line(judged, found, direction)
                after = judged.list_errors(moved).sum()
                if after < errors:
                    found, errors = moved, after
            if errors == before:
                break
        if errors < fewest:
            best, fewest = found, errors
    return best


def crosswise(judged: Judged, *, weight: float | None, bonus: float | None) -> Iterator[Array]:
    """The errors of each list by weights tuned without it, on the other half; for several halvings. -> (L,)"""
    rng = np.random.default_rng(0)
    for _ in range(HALVINGS):
        found = np.zeros(len(judged.scores))
        halves = np.array_split(rng.permutation(len(found)), 2)
        for tuned, measured in (halves, halves[::-1]):
            weights = tune(judged.select(tuned), weight=weight, bonus=bonus)
            found[measured] = judged.select(measured).list_errors(weights)
        yield found


def _spread(values_LN: Array) -> float:
    return float(values_LN.std(axis=1).mean()) if len(values_LN) else 0.0


def _search_line(judged: Judged, begin: Weights, direction: tuple[float, float]) -> Weights:
    """The point of fewest errors on a line through `begin`, in the middle of its interval; no weight is negative."""
    base_LN = judged.scores + begin.weight * judged.log_probs + begin.bonus * judged.words
    slope_LN = direction[0] * judged.log_probs + direction[1] * judged.words
    low = -begin.weight / direction[0] if direction[0] else -np.inf
    errors, places, changes = _walk(base_LN, slope_LN, judged.errors, low)
    step = _best_step(low, errors, places, changes)
    moved = (begin.weight + step * direction[0], begin.bonus + step * direction[1])
    weight, bonus = (float(f"{value:.{DIGITS}g}") for value in moved)
    return replace(begin, weight=max(0.0, weight), bonus=bonus)


def _walk(base_LN: Array, slope_LN: Array, errors_LN: Array, low: float) -> tuple[float, Array, Array]:
    """All errors at `low`, and where to the right of it they change, by how much: unsorted. -> errors, (C,), (C,)"""
    values_LN = base_LN + low * slope_LN if np.isfinite(low) else -slope_LN
    is_top = values_LN == values_LN.max(axis=1, keepdims=True)
    # of equal lines the steeper one is above just right of `low`, and at minus infinity the higher one
    tie_LN = slope_LN if np.isfinite(low) else base_LN
    current = np.where(is_top, tie_LN, -np.inf).argmax(axis=1)
    lists = np.arange(len(base_LN))
    errors, at = float(errors_LN[lists, current].sum()), np.full(len(lists), low)
    places, changes = [np.zeros(0)], [np.zeros(0)]
    for _ in range(MAX_CROSSINGS):
        steeper_LN = slope_LN[lists] - slope_LN[lists, current][:, None]
        gap_LN = base_LN[lists, current][:, None] - base_LN[lists]
        with np.errstate(divide="ignore", invalid="ignore"):
            cross_LN = np.where(steeper_LN > 0, gap_LN / steeper_LN, np.inf)
        next_L = cross_LN.min(axis=1)
        goes_on = np.isfinite(next_L)
        if not goes_on.any():
            break
        lists, at = lists[goes_on], np.maximum(at[goes_on], next_L[goes_on])
        is_next = cross_LN[goes_on] == next_L[goes_on, None]
        steepest = np.where(is_next, slope_LN[lists], -np.inf).argmax(axis=1)
        places.append(at)
        changes.append(errors_LN[lists, steepest] - errors_LN[lists, current[goes_on]])
        current = steepest
    return errors, np.concatenate(places), np.concatenate(changes)


def _best_step(low: float, errors: float, places: Array, changes: Array) -> float:
    """The middle of the widest interval of fewest errors."""
    edges, which = np.unique(places, return_inverse=True)
    steps = np.bincount(which, weights=changes, minlength=len(edges))
    edges, steps = edges[steps != 0], steps[steps != 0]
    lows, highs = np.append(low, edges), np.append(edges, np.inf)
    counts = errors + np.append(0.0, np.cumsum(steps))
    widths = highs - lows
    counts[widths < NARROW * (1 + np.abs(np.where(np.isfinite(lows), lows, 0.0)))] = np.inf
    is_open = ~np.isfinite(widths)
    best = int(np.lexsort((np.where(is_open, 0.0, -widths), counts))[0])
    if not is_open[best]:
        return float(lows[best] + widths[best] / 2)
    if np.isfinite(lows[best]):
        return float(lows[best] + 0.1 * (1 + abs(lows[best])))
    return float(highs[best] - 0.1 * (1 + abs(highs[best]))) if np.isfinite(highs[best]) else 0.0
