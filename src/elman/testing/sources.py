"""The laws of conditional (seq2seq) models: those of language models, given each source, and two about sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import ConditionalModel
from elman.testing.comparing import (
    BrokenLawError,
    require_same,
    require_same_states,
)
from elman.testing.laws import check_language_model

SourceLaw = Callable[[ConditionalModel[Any], Sequence[Array], np.random.Generator, float], None]


class Given:
    """A conditional model with a fixed source, as a model with a start state: so the same laws apply.

    The amount of padding of the source changes with every start, so that states differ in source length.
    """

    def __init__(self, lm: ConditionalModel[Any], source: Array) -> None:
        self._lm = lm
        self._source = source
        self._num_starts = 0
        self.vocab_size = lm.vocab_size

    def start(self, rows: int) -> Any:
        """The state after encoding the source in every row."""
        padding = np.full(self._num_starts % 3, self._source[0])
        self._num_starts += 1
        source = np.tile(np.concatenate([self._source, padding]), (rows, 1))
        return self._lm.encode(source, np.full(rows, len(self._source)))

    def predict(self, state: Any) -> Array:
        """As in the model."""
        return self._lm.predict(state)

    def advance(self, tokens: Array, state: Any) -> Any:
        """As in the model."""
        return self._lm.advance(tokens, state)

    def score(self, tokens: Array, lengths: Array, state: Any) -> tuple[Array, Any]:
        """As in the model."""
        return self._lm.score(tokens, lengths, state)

    def join(self, states: Sequence[Any]) -> Any:
        """As in the model."""
        return self._lm.join(states)


def a_source_alone_equals_the_source_in_a_batch(
    lm: ConditionalModel[Any], sources: Sequence[Array], rng: np.random.Generator, tolerance: float
) -> None:
    """Sources are independent of each other and of padding; and they are not changed."""
    lengths = np.array([len(source) for source in sources])
    alone = [lm.encode(source[None], lengths[row : row + 1]) for row, source in enumerate(sources)]
    joined = lm.join(alone)
    for filler in (0, int(sources[0][0])):
        batch = np.full((len(sources), lengths.max() + 2), filler)
        for row, source in enumerate(sources):
            batch[row, : len(source)] = source
        given = batch.copy()
        state = lm.encode(batch, lengths)
        if not np.array_equal(batch, given):
            raise BrokenLawError("the sources passed in were changed")
        require_same_states(lm, rng, state, joined, tolerance, f"the state of sources padded with {filler}")


def joined_sources_score_as_before(
    lm: ConditionalModel[Any], sources: Sequence[Array], rng: np.random.Generator, tolerance: float
) -> None:
    """States of different sources and target lengths, once joined, score as each does alone."""
    alone = []
    for age, source in enumerate(sources):
        state = lm.encode(source[None], np.array([len(source)]))
        for token in rng.integers(0, lm.vocab_size, size=age):
            state = lm.advance(np.array([token]), state)
        alone.append(state)
    texts = rng.integers(0, lm.vocab_size, size=(len(sources), 4))
    lengths = np.arange(len(sources)) % 5
    scored, _ = lm.score(texts, lengths, lm.join(alone))
    for row, state in enumerate(alone):
        expected, _ = lm.score(texts[row : row + 1], lengths[row : row + 1], state)
        require_same(scored[row], expected[0], tolerance, f"the score of source {row}")


SOURCE_LAWS: tuple[SourceLaw, ...] = (a_source_alone_equals_the_source_in_a_batch, joined_sources_score_as_before)


def check_conditional_model(
    lm: ConditionalModel[Any], sources: Sequence[Array], *, rng: np.random.Generator, tolerance: float = 1e-5
) -> None:
    """Check every law of language models for each source, and the laws of sources. Sources should differ in length."""
    for number, source in enumerate(sources):
        try:
            check_language_model(Given(lm, source), rng=rng, tolerance=tolerance)
        except BrokenLawError as broken:
            raise BrokenLawError(f"given source {number}: {broken}") from broken
    for law in SOURCE_LAWS:
        try:
            law(lm, sources, rng, tolerance)
        except BrokenLawError as broken:
            raise BrokenLawError(f"{law.__name__}: {broken}") from broken
