"""Helpers of the laws: texts to read, and comparisons of models and states."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy.special import chdtrc

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel, LanguageModel, num_rows, repeat
from elman.lm.search import draw


class BrokenLawError(AssertionError):
    """A model violates a law of `elman.testing`."""


def some_texts(lm: FreeModel[Any], rng: np.random.Generator, *, rows: int, num_tokens: int) -> Array:
    """Texts to test with, every other one sampled from the model. -> (rows, num_tokens)"""
    texts = rng.integers(0, lm.vocab_size, size=(rows, num_tokens))
    drawn = texts[::2]
    state = lm.start(len(drawn))
    for t in range(num_tokens):
        drawn[:, t] = draw(lm.predict(state), rng)
        state = lm.advance(drawn[:, t], state)
    return texts


def state_after(lm: FreeModel[Any], texts: Array) -> Any:
    """The state after stepping through the texts."""
    state = lm.start(len(texts))
    for t in range(texts.shape[1]):
        state = lm.advance(texts[:, t], state)
    return state


def behaviour(lm: LanguageModel[Any], state: Any, probes: Array) -> Array:
    """All that is observable of a state: its predictions now, and after each probe token. -> (K + 1, B, V)"""
    predicted = [lm.predict(state)]
    for t in range(probes.shape[1]):
        state = lm.advance(probes[:, t], state)
        predicted.append(lm.predict(state))
    return np.stack(predicted)


def require_same_states(
    lm: LanguageModel[Any], rng: np.random.Generator, found: Any, expected: Any, tolerance: float, what: str
) -> None:
    """Require that states behave the same; their leaves may differ."""
    if num_rows(found) != num_rows(expected):
        raise BrokenLawError(f"{what} has {num_rows(found)} rows, not {num_rows(expected)}")
    probes = rng.integers(0, lm.vocab_size, size=(num_rows(expected), 3))
    require_same(behaviour(lm, found, probes), behaviour(lm, expected, probes), tolerance, what)


def require_same(found: Array, expected: Array, tolerance: float, what: str) -> None:
    """Require equality up to the tolerance, relative for large numbers; -inf only where expected, and no NaN."""
    if found.shape != expected.shape:
        raise BrokenLawError(f"{what} has shape {found.shape}, not {expected.shape}")
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(found == expected, 0.0, np.abs(found - expected) / np.maximum(1, np.abs(expected)))
    # An infinite number against a finite one gives inf / inf or inf: both fail the comparison.
    if not (difference <= tolerance).all():
        worst = np.unravel_index(np.nanargmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
        raise BrokenLawError(
            f"{what} differs: {found[worst]:.7g}, not {expected[worst]:.7g}, at {tuple(map(int, worst))}"
        )


def brute_force(
    lm: FreeModel[Any], state: Any, allowed: list[int], stop: int, max_tokens: int
) -> tuple[list[tuple[int, ...]], Array]:
    """Every string over the allowed tokens that ends at its first stop token or is max_tokens long, and its nats."""
    others = [token for token in allowed if token != stop]
    strings: list[tuple[int, ...]] = list(itertools.product(others, repeat=max_tokens))
    for length in range(max_tokens):
        strings += [(*prefix, stop) for prefix in itertools.product(others, repeat=length)]
    nats = [nats_of(lm, state, np.array([string]))[0] for string in strings]
    return strings, np.array(nats)


def nats_of(lm: FreeModel[Any], state: Any, strings: Array) -> Array:
    """-log p of each string, continuing one row. -> (number of strings,)"""
    parts = np.split(strings, range(1024, len(strings), 1024))
    scored = [lm.score(part, full_lengths(part), repeat(state, len(part)))[0] for part in parts]
    return np.asarray(-np.concatenate(scored).sum(axis=1, dtype=np.float64))


def chi_square(counts: Array, expected: Array) -> float:
    """The p-value of a chi-square test of counts; bins with an expected count below 5 are merged."""
    order = np.argsort(-expected)
    counts, expected = counts[order], expected[order]
    num_large = max(1, int((expected >= 5).sum()))
    counts = np.append(counts[:num_large], counts[num_large:].sum())
    expected = np.append(expected[:num_large], expected[num_large:].sum())
    if expected[-1] < 5:  # the merged bin is still too small
        counts = np.append(counts[:-2], counts[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    if len(counts) == 1:
        return 1.0
    return float(chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum()))


def full_lengths(texts: Array) -> Array:
    """The lengths of texts without padding. -> (B,)"""
    return np.full(len(texts), texts.shape[1])


def copied(leaf: Any) -> Array:
    """A leaf copied to a numpy array; tensors are recognised by duck typing, so torch is never imported."""
    return np.array(leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf, copy=True)
