"""The laws that every language model keeps, as a suite to run over yours, and a model small enough to check by hand.

    check_language_model(lm, rng=np.random.default_rng(0))        # all laws; a broken one is named by its function
    @pytest.mark.parametrize("law", LAWS)                         # or each law as a test of its own
    def test_my_model_keeps_the_law(law): law(lm, np.random.default_rng(0), 1e-5)
    check_conditional_model(lm, sources, rng=rng)                 # a model of targets: the same laws, given each source

Laws see a model only as `elman.lm.FreeModel` declares it. Texts are half drawn from the model (so it knows them), half
uniform (others); tokens of probability zero are welcome. `B` rows, `T` tokens, `V` vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc

from elman.errors import UsageError
from elman.lm import Array, ConditionalModel, FreeModel, LanguageModel, leaves, num_rows, repeat, select
from elman.search import beam_search, draw, length_norm, sample_rows

Law = Callable[[FreeModel[Any], np.random.Generator, float], None]
SourceLaw = Callable[[ConditionalModel[Any], Sequence[Array], np.random.Generator, float], None]


class BrokenLawError(AssertionError):
    """A model does not keep a law of `elman.lm`."""


class TableLM:
    """The next token by an explicit table over the last few tokens: the model that brute force can check.

    table: probabilities, shape (V + 1, ..., V + 1, V) with an axis for each token of history, the index V meaning
    "nothing there yet". A table of shape (V,) has no memory.
    """

    def __init__(self, table: Array) -> None:
        self.vocab_size: int = table.shape[-1]
        self.order: int = table.ndim - 1
        if table.shape[:-1] != (self.vocab_size + 1,) * self.order:
            raise ValueError(f"a table of shape {table.shape} is not (V + 1, ..., V + 1, V)")
        with np.errstate(divide="ignore"):
            self._log_probs_CV = np.log(table.reshape(-1, self.vocab_size)).astype(np.float32)
        self._place_values = (self.vocab_size + 1) ** np.arange(self.order - 1, -1, -1)

    @classmethod
    def random(
        cls, rng: np.random.Generator, *, vocab_size: int = 4, order: int = 2, impossible: float = 0.0
    ) -> TableLM:
        """A table drawn by chance; `impossible` is the part of its entries that are zero (never a whole row)."""
        table = rng.dirichlet(np.ones(vocab_size), size=(vocab_size + 1,) * order)
        table = table * ((rng.random(table.shape) >= impossible) | (table == table.max(-1, keepdims=True)))
        return cls(table / table.sum(-1, keepdims=True))

    def start(self, rows: int) -> Array:
        """Nothing read yet. -> (B, order)"""
        return np.full((rows, self.order), self.vocab_size)

    def predict(self, state: Array) -> Array:
        """The row of the table that the history names. -> (B, V)"""
        return np.asarray(self._log_probs_CV[state @ self._place_values])

    def advance(self, tokens: Array, state: Array) -> Array:
        """The history moves on by one token. -> (B, order)"""
        return np.column_stack([state, tokens])[:, 1:]

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        """Every token looked up at once. -> (B, T) and the state after each row's last token"""
        num_tokens = tokens.shape[1]
        read_BX = np.concatenate([state, tokens], axis=1)
        contexts_BT = np.zeros(tokens.shape, dtype=np.int64)
        for back, value in enumerate(self._place_values):
            contexts_BT += read_BX[:, back : back + num_tokens] * value
        log_probs = self._log_probs_CV[contexts_BT, tokens]
        log_probs[np.arange(num_tokens) >= lengths[:, None]] = 0
        return log_probs, np.take_along_axis(read_BX, lengths[:, None] + np.arange(self.order), axis=1)

    def join(self, states: Sequence[Array]) -> Array:
        """The rows of all states."""
        return np.concatenate(states)


def predictions_are_normalised(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Whatever was read, the next token's probabilities are float32 (B, V), at most one each, and sum to one."""
    texts = _texts(lm, rng, rows=6, num_tokens=6)
    state = lm.start(len(texts))
    for t in range(texts.shape[1] + 1):
        log_probs = lm.predict(state)
        if log_probs.shape != (len(texts), lm.vocab_size) or log_probs.dtype != np.float32:
            raise BrokenLawError(f"predict gave {log_probs.dtype} {log_probs.shape}, not float32 (B, V)")
        _same(np.exp(log_probs, dtype=np.float64).sum(axis=1), np.ones(len(texts)), tolerance, "the sum over V")
        if t < texts.shape[1]:
            state = lm.advance(texts[:, t], state)


def scoring_equals_stepping(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """`score` gives what `predict` gives one token at a time, and leaves the state `advance` leaves."""
    texts = _texts(lm, rng, rows=6, num_tokens=7)
    scored, state = lm.score(texts, _full(texts), lm.start(len(texts)))
    if scored.shape != texts.shape or scored.dtype != np.float32:
        raise BrokenLawError(f"score gave {scored.dtype} {scored.shape}, not float32 {texts.shape}")
    stepping = lm.start(len(texts))
    for t in range(texts.shape[1]):
        stepped = lm.predict(stepping)[np.arange(len(texts)), texts[:, t]]
        _same(scored[:, t], stepped, tolerance, f"the score of token {t}")
        stepping = lm.advance(texts[:, t], stepping)
    _same_states(lm, rng, state, stepping, tolerance, "the state after score")


def a_state_is_never_changed(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Nothing done with a state changes it, nor what it predicts; nor are the tokens handed in touched."""
    state = _after(lm, _texts(lm, rng, rows=5, num_tokens=4))
    texts = rng.integers(0, lm.vocab_size, size=(5, 3))
    given = texts.copy()
    before = [_copied(leaf) for leaf in leaves(state)]
    predicted = lm.predict(state).copy()
    uses: tuple[Callable[[], object], ...] = (
        lambda: lm.advance(np.zeros(5, dtype=np.int64), state),
        lambda: lm.advance(np.full(5, lm.vocab_size - 1), state),
        lambda: lm.score(texts, np.array([3, 2, 1, 3, 0]), state),
        lambda: lm.advance(texts[:, 1], lm.advance(texts[:, 0], state)),
        lambda: lm.advance(np.tile(texts[:, 2], 2), lm.join([state, select(state, np.arange(5))])),
    )
    for use in uses:
        use()
        for leaf, copy in zip(leaves(state), before, strict=True):
            if not np.array_equal(_copied(leaf), copy):
                raise BrokenLawError("a leaf of the old state was changed")
        _same(lm.predict(state), predicted, 0, "what the old state predicts")
        if not np.array_equal(texts, given):
            raise BrokenLawError("the tokens handed in were changed")


def selecting_commutes_with_reading(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Choosing, reordering and repeating rows before or after reading a token comes to the same."""
    state = _after(lm, _texts(lm, rng, rows=5, num_tokens=4))
    tokens = rng.integers(0, lm.vocab_size, size=5)
    rows = np.array([3, 0, 0, 4, 2, 3])
    _same(lm.predict(select(state, rows)), lm.predict(state)[rows], tolerance, "predictions of selected rows")
    chosen = lm.advance(tokens[rows], select(state, rows))
    _same_states(lm, rng, chosen, select(lm.advance(tokens, state), rows), tolerance, "states of selected rows")
    copies = lm.advance(np.repeat(tokens, 3), repeat(state, 3))
    _same_states(lm, rng, copies, repeat(lm.advance(tokens, state), 3), tolerance, "states of repeated rows")


def joining_commutes_with_reading(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """States of any age joined are their rows in order, whether joined before or after reading on."""
    ages = {0: 2, 1: 1, 6: 3, 2: 2}  # tokens read: rows
    parts = [_after(lm, _texts(lm, rng, rows=rows, num_tokens=age)) for age, rows in ages.items()]
    joined = lm.join(parts)
    if num_rows(joined) != sum(ages.values()):
        raise BrokenLawError(f"join made {num_rows(joined)} rows of {sum(ages.values())}")
    probes = rng.integers(0, lm.vocab_size, size=(num_rows(joined), 3))
    apart = np.split(probes, np.cumsum(list(ages.values()))[:-1])
    expected = np.concatenate([_behaviour(lm, part, probe) for part, probe in zip(parts, apart, strict=True)], axis=1)
    _same(_behaviour(lm, joined, probes), expected, tolerance, "what joined states predict")
    scored, _ = lm.score(probes, _full(probes), joined)
    alone = [lm.score(probe, _full(probe), part)[0] for part, probe in zip(parts, apart, strict=True)]
    _same(scored, np.concatenate(alone), tolerance, "scores from joined states")


def a_row_alone_equals_the_row_in_a_batch(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Rows do not see each other, and a shorter row does not notice how long the others are."""
    texts = _texts(lm, rng, rows=5, num_tokens=7)
    lengths = np.array([7, 3, 0, 5, 1])
    scored, state = lm.score(texts, lengths, lm.start(5))
    for row, length in enumerate(lengths):
        if length == 0:
            continue
        alone, after = lm.score(texts[row : row + 1, :length], lengths[row : row + 1], lm.start(1))
        _same(scored[row, :length], alone[0], tolerance, f"the score of row {row} alone")
        _same_states(lm, rng, select(state, np.array([row])), after, tolerance, f"the state of row {row} alone")


def padding_is_neutral(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """What stands behind a row's last token changes nothing and scores 0; a row of length 0 keeps its state."""
    texts = _texts(lm, rng, rows=6, num_tokens=6)
    lengths = np.array([6, 0, 2, 5, 1, 0])
    padding = np.arange(6) >= lengths[:, None]
    begin = _after(lm, _texts(lm, rng, rows=6, num_tokens=2))
    scored, state = lm.score(texts, lengths, begin)
    if scored[padding].any():
        raise BrokenLawError("score is not 0 at padding")
    for filler in (0, lm.vocab_size - 1):
        again, other = lm.score(np.where(padding, filler, texts), lengths, begin)
        _same(again, scored, tolerance, f"the score with {filler} as padding")
        _same_states(lm, rng, other, state, tolerance, f"the state with {filler} as padding")
    empty = np.flatnonzero(lengths == 0)
    _same_states(lm, rng, select(state, empty), select(begin, empty), tolerance, "the state of rows of length 0")


def cutting_a_text_changes_nothing(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Scored in two pieces, the state carried from one to the other, a text scores as in one."""
    texts = _texts(lm, rng, rows=5, num_tokens=8)
    lengths = np.array([8, 8, 5, 3, 1])
    whole, whole_state = lm.score(texts, lengths, lm.start(5))
    for cut in range(1, 8):
        first, state = lm.score(texts[:, :cut], np.minimum(lengths, cut), lm.start(5))
        second, state = lm.score(texts[:, cut:], np.maximum(lengths - cut, 0), state)
        _same(np.concatenate([first, second], axis=1), whole, tolerance, f"the score cut after {cut} tokens")
        _same_states(lm, rng, state, whole_state, tolerance, f"the state cut after {cut} tokens")


def the_future_cannot_change_the_past(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A token's score depends on the tokens before it alone."""
    texts = _texts(lm, rng, rows=4, num_tokens=8)
    scored, _ = lm.score(texts, _full(texts), lm.start(4))
    for known in range(1, 8):
        others = np.concatenate([texts[:, :known], rng.integers(0, lm.vocab_size, size=(4, 8 - known))], axis=1)
        again, _ = lm.score(others, _full(others), lm.start(4))
        _same(again[:, :known], scored[:, :known], tolerance, f"the score of {known} tokens with another future")


def all_strings_sum_to_one(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """The scores of all strings of one length are a distribution: length 3 where that is few, else 1 after a text."""
    length = 3 if lm.vocab_size <= 16 else 1
    strings = np.array(list(itertools.product(range(lm.vocab_size), repeat=length)))
    for age in (0, 5):
        begin = _after(lm, _texts(lm, rng, rows=1, num_tokens=age))
        total = 0.0
        for part in np.split(strings, range(1024, len(strings), 1024)):
            scored, _ = lm.score(part, _full(part), repeat(begin, len(part)))
            total += float(np.exp(scored.sum(axis=1, dtype=np.float64)).sum())
        _same(np.array(total), np.array(1.0), tolerance, f"the sum over all strings of length {length}")


def the_widest_beam_finds_the_best(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A beam as wide as the space of strings (over four tokens, up to length 3) finds what brute force finds."""
    context = _texts(lm, rng, rows=1, num_tokens=4)
    state = _after(lm, context)
    known = dict.fromkeys([*context[0].tolist(), *rng.permutation(min(lm.vocab_size, 1000)).tolist()])
    allowed = list(known)[:4]
    forbid = frozenset(range(lm.vocab_size)) - frozenset(allowed)
    stop, max_tokens, n_best = allowed[-1], 3, 4
    strings, nats = _brute_force(lm, state, allowed, stop, max_tokens)
    for length_penalty in (0.0, 0.9):
        ranks = nats / length_norm(np.array([len(string) for string in strings]), length_penalty)
        is_finished = np.array([string[-1] == stop for string in strings])
        best = np.sort(ranks[is_finished & np.isfinite(ranks)])[:n_best]
        if len(best) == 0:
            continue
        try:
            found = beam_search(
                lm,
                state,
                width=4**max_tokens,
                stop=stop,
                max_tokens=max_tokens,
                length_penalty=length_penalty,
                n_best=n_best,
                forbid=forbid,
            )[0]
        except UsageError as error:
            raise BrokenLawError(f"the beam found nothing: {error}") from error
        finished = [h.nats / float(length_norm(len(h.tokens), length_penalty)) for h in found if h.is_finished]
        _same(np.array(finished), best, tolerance, "the best hypotheses of a beam")


def samples_follow_the_prediction(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Sampled strings (of two tokens where that is few, else one) occur as often as `score` says: chi-square test."""
    begin = _after(lm, _texts(lm, rng, rows=1, num_tokens=3))
    length = 2 if lm.vocab_size <= 32 else 1
    strings = np.array(list(itertools.product(range(lm.vocab_size), repeat=length)))
    probabilities = np.exp(_nats(lm, begin, strings) * -1)
    counts = np.zeros(len(strings))
    place_values = lm.vocab_size ** np.arange(length - 1, -1, -1)
    num_draws, together = 4000, max(1, min(4000, 4_000_000 // lm.vocab_size))
    for first in range(0, num_draws, together):
        state = repeat(begin, min(together, num_draws - first))
        drawn = sample_rows(lm, state, rng=rng, max_tokens=length)
        np.add.at(counts, np.array([h.tokens for h in drawn]) @ place_values, 1)
    if counts[probabilities == 0].any():
        raise BrokenLawError("a string of probability zero was sampled")
    chance = _chi_square(counts, num_draws * probabilities)
    if chance < 1e-6:
        raise BrokenLawError(
            f"sampled frequencies differ from the prediction; by chance once in {1 / max(chance, 1e-300):.0e}"
        )


def saving_and_loading_is_exact(
    lm: FreeModel[Any], rng: np.random.Generator, *, roundtrip: Callable[[FreeModel[Any]], FreeModel[Any]]
) -> None:
    """A model saved and loaded again gives the same numbers to the bit."""
    loaded = roundtrip(lm)
    if loaded.vocab_size != lm.vocab_size:
        raise BrokenLawError(f"a vocabulary of {lm.vocab_size} came back as {loaded.vocab_size}")
    texts = _texts(lm, rng, rows=6, num_tokens=7)
    before, state = lm.score(texts, _full(texts), lm.start(6))
    after, loaded_state = loaded.score(texts, _full(texts), loaded.start(6))
    _same(after, before, 0, "the score of the loaded model")
    _same(loaded.predict(loaded_state), lm.predict(state), 0, "the prediction of the loaded model")


LAWS: tuple[Law, ...] = (
    predictions_are_normalised,
    scoring_equals_stepping,
    a_state_is_never_changed,
    selecting_commutes_with_reading,
    joining_commutes_with_reading,
    a_row_alone_equals_the_row_in_a_batch,
    padding_is_neutral,
    cutting_a_text_changes_nothing,
    the_future_cannot_change_the_past,
    all_strings_sum_to_one,
    the_widest_beam_finds_the_best,
    samples_follow_the_prediction,
)


def check_language_model(
    lm: FreeModel[Any],
    *,
    rng: np.random.Generator,
    tolerance: float = 1e-5,
    roundtrip: Callable[[FreeModel[Any]], FreeModel[Any]] | None = None,
) -> None:
    """Run every law; the first one broken is raised as `BrokenLawError`, and its name is in the message."""
    laws = list(LAWS)
    if roundtrip is not None:

        def saving_and_loading(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
            saving_and_loading_is_exact(lm, rng, roundtrip=roundtrip)

        laws.append(saving_and_loading)
    for law, own_rng in zip(laws, rng.spawn(len(laws)), strict=True):
        try:
            law(lm, own_rng, tolerance)
        except BrokenLawError as broken:
            raise BrokenLawError(f"{law.__name__}: {broken}") from broken


class Given:
    """A model of targets given one source, as a model that begins from nothing: so it can keep the same laws.

    The source is padded by other tokens, and by more of them at every start: states of one source are ragged.
    """

    def __init__(self, lm: ConditionalModel[Any], source: Array) -> None:
        self._lm = lm
        self._source = source
        self._num_starts = 0
        self.vocab_size = lm.vocab_size

    def start(self, rows: int) -> Any:
        """The source in every row."""
        padding = np.full(self._num_starts % 3, self._source[0])
        self._num_starts += 1
        source = np.tile(np.concatenate([self._source, padding]), (rows, 1))
        return self._lm.encode(source, np.full(rows, len(self._source)))

    def predict(self, state: Any) -> Array:
        """As the model does."""
        return self._lm.predict(state)

    def advance(self, tokens: Array, state: Any) -> Any:
        """As the model does."""
        return self._lm.advance(tokens, state)

    def score(self, tokens: Array, lengths: Array, state: Any) -> tuple[Array, Any]:
        """As the model does."""
        return self._lm.score(tokens, lengths, state)

    def join(self, states: Sequence[Any]) -> Any:
        """As the model does."""
        return self._lm.join(states)


def a_source_alone_equals_the_source_in_a_batch(
    lm: ConditionalModel[Any], sources: Sequence[Array], rng: np.random.Generator, tolerance: float
) -> None:
    """Sources do not see each other, nor what stands behind their last tokens; nor are they changed."""
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
            raise BrokenLawError("the sources handed in were changed")
        _same_states(lm, rng, state, joined, tolerance, f"the state of sources padded with {filler}")


def joined_sources_score_as_before(
    lm: ConditionalModel[Any], sources: Sequence[Array], rng: np.random.Generator, tolerance: float
) -> None:
    """States of different sources, joined after different targets were read, go on as each would have."""
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
        own, _ = lm.score(texts[row : row + 1], lengths[row : row + 1], state)
        _same(scored[row], own[0], tolerance, f"the score of source {row}")


SOURCE_LAWS: tuple[SourceLaw, ...] = (a_source_alone_equals_the_source_in_a_batch, joined_sources_score_as_before)


def check_conditional_model(
    lm: ConditionalModel[Any], sources: Sequence[Array], *, rng: np.random.Generator, tolerance: float = 1e-5
) -> None:
    """Every law of language models for each source, and those about sources. The sources should differ in length."""
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


def _texts(lm: FreeModel[Any], rng: np.random.Generator, *, rows: int, num_tokens: int) -> Array:
    """Texts to test with, every other one drawn from the model. -> (rows, num_tokens)"""
    texts = rng.integers(0, lm.vocab_size, size=(rows, num_tokens))
    drawn = texts[::2]
    state = lm.start(len(drawn))
    for t in range(num_tokens):
        drawn[:, t] = draw(lm.predict(state), rng)
        state = lm.advance(drawn[:, t], state)
    return texts


def _after(lm: FreeModel[Any], texts: Array) -> Any:
    """The state after stepping through the texts."""
    state = lm.start(len(texts))
    for t in range(texts.shape[1]):
        state = lm.advance(texts[:, t], state)
    return state


def _behaviour(lm: LanguageModel[Any], state: Any, probes: Array) -> Array:
    """All that can be seen of a state: what it predicts now, and while reading on. -> (K + 1, B, V)"""
    predicted = [lm.predict(state)]
    for t in range(probes.shape[1]):
        state = lm.advance(probes[:, t], state)
        predicted.append(lm.predict(state))
    return np.stack(predicted)


def _same_states(
    lm: LanguageModel[Any], rng: np.random.Generator, found: Any, expected: Any, tolerance: float, what: str
) -> None:
    """States are the same if no reader can tell them apart: their leaves may differ."""
    if num_rows(found) != num_rows(expected):
        raise BrokenLawError(f"{what} has {num_rows(found)} rows, not {num_rows(expected)}")
    probes = rng.integers(0, lm.vocab_size, size=(num_rows(expected), 3))
    _same(_behaviour(lm, found, probes), _behaviour(lm, expected, probes), tolerance, what)


def _same(found: Array, expected: Array, tolerance: float, what: str) -> None:
    """Equal up to the tolerance, relative where numbers are large; -inf only where -inf is expected, and no NaN."""
    if found.shape != expected.shape:
        raise BrokenLawError(f"{what} has shape {found.shape}, not {expected.shape}")
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(found == expected, 0.0, np.abs(found - expected) / np.maximum(1, np.abs(expected)))
    # An infinite number beside a finite one gives inf / inf or inf: both fail the comparison.
    if not (difference <= tolerance).all():
        worst = np.unravel_index(np.nanargmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
        raise BrokenLawError(
            f"{what} differs: {found[worst]:.7g}, not {expected[worst]:.7g}, at {tuple(map(int, worst))}"
        )


def _brute_force(
    lm: FreeModel[Any], state: Any, allowed: list[int], stop: int, max_tokens: int
) -> tuple[list[tuple[int, ...]], Array]:
    """Every string over the allowed tokens that ends at its first stop token or is max_tokens long, and its nats."""
    going = [token for token in allowed if token != stop]
    strings: list[tuple[int, ...]] = list(itertools.product(going, repeat=max_tokens))
    for length in range(max_tokens):
        strings += [(*prefix, stop) for prefix in itertools.product(going, repeat=length)]
    nats = [_nats(lm, state, np.array([string]))[0] for string in strings]
    return strings, np.array(nats)


def _nats(lm: FreeModel[Any], state: Any, strings: Array) -> Array:
    """-log p of each string, continuing one row. -> (number of strings,)"""
    parts = np.split(strings, range(1024, len(strings), 1024))
    scored = [lm.score(part, _full(part), repeat(state, len(part)))[0] for part in parts]
    return np.asarray(-np.concatenate(scored).sum(axis=1, dtype=np.float64))


def _chi_square(counts: Array, expected: Array) -> float:
    """How likely counts at least so far from the expected ones are; bins that expect fewer than 5 go together."""
    order = np.argsort(-expected)
    counts, expected = counts[order], expected[order]
    num_large = max(1, int((expected >= 5).sum()))
    counts = np.append(counts[:num_large], counts[num_large:].sum())
    expected = np.append(expected[:num_large], expected[num_large:].sum())
    if expected[-1] < 5:  # the rest alone is too small a bin
        counts = np.append(counts[:-2], counts[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    if len(counts) == 1:
        return 1.0
    return float(chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum()))


def _full(texts: Array) -> Array:
    return np.full(len(texts), texts.shape[1])


def _copied(leaf: Any) -> Array:
    """A leaf as a numpy array of its own; tensors are recognised by what they can do, so torch is never imported."""
    return np.array(leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else leaf, copy=True)
