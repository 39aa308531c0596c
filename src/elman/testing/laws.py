"""The laws that every language model must satisfy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from elman.core.errors import UsageError
from elman.lm.protocol import FreeModel, LineModel, leaves, num_rows, repeat, select
from elman.lm.search import beam_search, length_norm, sample_rows
from elman.lm.trace import explain
from elman.testing.comparing import (
    BrokenLawError,
    behaviour,
    brute_force,
    chi_square,
    copied,
    full_lengths,
    nats_of,
    require_same,
    require_same_states,
    some_texts,
    state_after,
)

Law = Callable[[FreeModel[Any], np.random.Generator, float], None]


def predictions_are_normalised(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """After any text, `predict` gives float32 (B, V) log-probabilities that sum to one."""
    texts = some_texts(lm, rng, rows=6, num_tokens=6)
    state = lm.start(len(texts))
    for t in range(texts.shape[1] + 1):
        log_probs = lm.predict(state)
        if log_probs.shape != (len(texts), lm.vocab_size) or log_probs.dtype != np.float32:
            raise BrokenLawError(f"predict gave {log_probs.dtype} {log_probs.shape}, not float32 (B, V)")
        require_same(np.exp(log_probs, dtype=np.float64).sum(axis=1), np.ones(len(texts)), tolerance, "the sum over V")
        if t < texts.shape[1]:
            state = lm.advance(texts[:, t], state)


def scoring_equals_stepping(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """`score` equals `predict` one token at a time, and its state equals that of `advance`."""
    texts = some_texts(lm, rng, rows=6, num_tokens=7)
    scored, state = lm.score(texts, full_lengths(texts), lm.start(len(texts)))
    if scored.shape != texts.shape or scored.dtype != np.float32:
        raise BrokenLawError(f"score gave {scored.dtype} {scored.shape}, not float32 {texts.shape}")
    stepping = lm.start(len(texts))
    for t in range(texts.shape[1]):
        stepped = lm.predict(stepping)[np.arange(len(texts)), texts[:, t]]
        require_same(scored[:, t], stepped, tolerance, f"the score of token {t}")
        stepping = lm.advance(texts[:, t], stepping)
    require_same_states(lm, rng, state, stepping, tolerance, "the state after score")


def recording_changes_nothing(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """`explain` gives the log-probabilities of `score`, from any state, and something for each token of a text."""
    texts = some_texts(lm, rng, rows=4, num_tokens=9)
    start = lm.start(1)
    for text in texts:
        scored, middle = lm.score(text[None, :4], np.array([4]), start)
        for tokens, state, expected in ((text[:4], start, scored[0]), (text[4:], middle, None)):
            if expected is None:
                expected = lm.score(tokens[None], np.array([len(tokens)]), state)[0][0]
            trace = explain(lm, tokens, state)
            require_same(trace.log_probs, expected, tolerance, "a recorded log-probability")
            for name, array in trace.arrays.items():
                if len(array) != len(tokens) or not np.isfinite(array).all():
                    raise BrokenLawError(f"{name} has shape {array.shape} for {len(tokens)} tokens, or is not finite")


def a_state_is_never_changed(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """No operation changes a state or its predictions, nor the tokens passed in."""
    state = state_after(lm, some_texts(lm, rng, rows=5, num_tokens=4))
    texts = rng.integers(0, lm.vocab_size, size=(5, 3))
    given = texts.copy()
    before = [copied(leaf) for leaf in leaves(state)]
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
            if not np.array_equal(copied(leaf), copy):
                raise BrokenLawError("a leaf of the old state was changed")
        require_same(lm.predict(state), predicted, 0, "what the old state predicts")
        if not np.array_equal(texts, given):
            raise BrokenLawError("the tokens passed in were changed")


def selecting_commutes_with_reading(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Selecting, reordering and repeating rows gives the same before and after reading a token."""
    state = state_after(lm, some_texts(lm, rng, rows=5, num_tokens=4))
    tokens = rng.integers(0, lm.vocab_size, size=5)
    rows = np.array([3, 0, 0, 4, 2, 3])
    require_same(lm.predict(select(state, rows)), lm.predict(state)[rows], tolerance, "predictions of selected rows")
    chosen = lm.advance(tokens[rows], select(state, rows))
    require_same_states(lm, rng, chosen, select(lm.advance(tokens, state), rows), tolerance, "states of selected rows")
    copies = lm.advance(np.repeat(tokens, 3), repeat(state, 3))
    require_same_states(lm, rng, copies, repeat(lm.advance(tokens, state), 3), tolerance, "states of repeated rows")


def joining_commutes_with_reading(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Joining states of any age keeps their rows in order, and gives the same before and after reading on."""
    ages = {0: 2, 1: 1, 6: 3, 2: 2}  # number of rows by tokens read
    parts = [state_after(lm, some_texts(lm, rng, rows=rows, num_tokens=age)) for age, rows in ages.items()]
    joined = lm.join(parts)
    if num_rows(joined) != sum(ages.values()):
        raise BrokenLawError(f"join made {num_rows(joined)} rows of {sum(ages.values())}")
    probes = rng.integers(0, lm.vocab_size, size=(num_rows(joined), 3))
    apart = np.split(probes, np.cumsum(list(ages.values()))[:-1])
    expected = np.concatenate([behaviour(lm, part, probe) for part, probe in zip(parts, apart, strict=True)], axis=1)
    require_same(behaviour(lm, joined, probes), expected, tolerance, "what joined states predict")
    scored, _ = lm.score(probes, full_lengths(probes), joined)
    alone = [lm.score(probe, full_lengths(probe), part)[0] for part, probe in zip(parts, apart, strict=True)]
    require_same(scored, np.concatenate(alone), tolerance, "scores from joined states")


def a_row_alone_equals_the_row_in_a_batch(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Rows are independent of each other and of each other's lengths."""
    texts = some_texts(lm, rng, rows=5, num_tokens=7)
    lengths = np.array([7, 3, 0, 5, 1])
    scored, state = lm.score(texts, lengths, lm.start(5))
    for row, length in enumerate(lengths):
        if length == 0:
            continue
        alone, after = lm.score(texts[row : row + 1, :length], lengths[row : row + 1], lm.start(1))
        require_same(scored[row, :length], alone[0], tolerance, f"the score of row {row} alone")
        require_same_states(lm, rng, select(state, np.array([row])), after, tolerance, f"the state of row {row} alone")


def padding_is_neutral(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Padding changes nothing and scores 0; a row of length 0 keeps its state."""
    texts = some_texts(lm, rng, rows=6, num_tokens=6)
    lengths = np.array([6, 0, 2, 5, 1, 0])
    padding = np.arange(6) >= lengths[:, None]
    begin = state_after(lm, some_texts(lm, rng, rows=6, num_tokens=2))
    scored, state = lm.score(texts, lengths, begin)
    if scored[padding].any():
        raise BrokenLawError("score is not 0 at padding")
    for filler in (0, lm.vocab_size - 1):
        again, other = lm.score(np.where(padding, filler, texts), lengths, begin)
        require_same(again, scored, tolerance, f"the score with {filler} as padding")
        require_same_states(lm, rng, other, state, tolerance, f"the state with {filler} as padding")
    empty = np.flatnonzero(lengths == 0)
    require_same_states(lm, rng, select(state, empty), select(begin, empty), tolerance, "the state of rows of length 0")


def cutting_a_text_changes_nothing(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A text scored in two pieces, with the state carried over, scores as in one."""
    texts = some_texts(lm, rng, rows=5, num_tokens=8)
    lengths = np.array([8, 8, 5, 3, 1])
    whole, whole_state = lm.score(texts, lengths, lm.start(5))
    for cut in range(1, 8):
        first, state = lm.score(texts[:, :cut], np.minimum(lengths, cut), lm.start(5))
        second, state = lm.score(texts[:, cut:], np.maximum(lengths - cut, 0), state)
        require_same(np.concatenate([first, second], axis=1), whole, tolerance, f"the score cut after {cut} tokens")
        require_same_states(lm, rng, state, whole_state, tolerance, f"the state cut after {cut} tokens")


def lines_score_as_they_lie(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A model that scores lines one after another as they lie in a text gives exactly what `score` gives each alone."""
    if not isinstance(lm, LineModel):
        return
    texts = some_texts(lm, rng, rows=7, num_tokens=9)
    lines = [text[:length] for text, length in zip(texts, (3, 1, 9, 1, 5, 2, 8), strict=True)]
    starts = np.cumsum([0, *map(len, lines[:-1])])
    alone = [lm.score(line[None], np.array([len(line)]), lm.start(1))[0][0] for line in lines]
    require_same(lm.score_lines(np.concatenate(lines), starts), np.concatenate(alone), 0, "a score in its place")


def the_future_cannot_change_the_past(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A token's score depends only on the tokens before it."""
    texts = some_texts(lm, rng, rows=4, num_tokens=8)
    scored, _ = lm.score(texts, full_lengths(texts), lm.start(4))
    for known in range(1, 8):
        others = np.concatenate([texts[:, :known], rng.integers(0, lm.vocab_size, size=(4, 8 - known))], axis=1)
        again, _ = lm.score(others, full_lengths(others), lm.start(4))
        require_same(again[:, :known], scored[:, :known], tolerance, f"the score of {known} tokens with another future")


def all_strings_sum_to_one(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """The probabilities of all strings of one length (3 for a small vocabulary, else 1) sum to one."""
    length = 3 if lm.vocab_size <= 16 else 1
    strings = np.array(list(itertools.product(range(lm.vocab_size), repeat=length)))
    for age in (0, 5):
        begin = state_after(lm, some_texts(lm, rng, rows=1, num_tokens=age))
        total = 0.0
        for part in np.split(strings, range(1024, len(strings), 1024)):
            scored, _ = lm.score(part, full_lengths(part), repeat(begin, len(part)))
            total += float(np.exp(scored.sum(axis=1, dtype=np.float64)).sum())
        require_same(np.array(total), np.array(1.0), tolerance, f"the sum over all strings of length {length}")


def the_widest_beam_finds_the_best(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """A beam as wide as the number of strings (over four tokens, up to length 3) finds the same as brute force."""
    context = some_texts(lm, rng, rows=1, num_tokens=4)
    state = state_after(lm, context)
    known = dict.fromkeys([*context[0].tolist(), *rng.permutation(min(lm.vocab_size, 1000)).tolist()])
    allowed = list(known)[:4]
    forbid = frozenset(range(lm.vocab_size)) - frozenset(allowed)
    stop, max_tokens, n_best = allowed[-1], 3, 4
    strings, nats = brute_force(lm, state, allowed, stop, max_tokens)
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
            raise BrokenLawError(f"beam search found nothing: {error}") from error
        finished = [h.nats / float(length_norm(len(h.tokens), length_penalty)) for h in found if h.is_finished]
        require_same(np.array(finished), best, tolerance, "the best hypotheses of a beam")


def samples_follow_the_prediction(lm: FreeModel[Any], rng: np.random.Generator, tolerance: float) -> None:
    """Sampled strings (of two tokens for a small vocabulary, else one) follow `score`, by a chi-square test."""
    begin = state_after(lm, some_texts(lm, rng, rows=1, num_tokens=3))
    length = 2 if lm.vocab_size <= 32 else 1
    strings = np.array(list(itertools.product(range(lm.vocab_size), repeat=length)))
    probabilities = np.exp(nats_of(lm, begin, strings) * -1)
    counts = np.zeros(len(strings))
    place_values = lm.vocab_size ** np.arange(length - 1, -1, -1)
    num_draws, batch_rows = 4000, max(1, min(4000, 4_000_000 // lm.vocab_size))
    for first in range(0, num_draws, batch_rows):
        state = repeat(begin, min(batch_rows, num_draws - first))
        drawn = sample_rows(lm, state, rng=rng, max_tokens=length)
        np.add.at(counts, np.array([h.tokens for h in drawn]) @ place_values, 1)
    if counts[probabilities == 0].any():
        raise BrokenLawError("a string of probability zero was sampled")
    p_value = chi_square(counts, num_draws * probabilities)
    if p_value < 1e-6:
        raise BrokenLawError(f"sampled frequencies differ from the prediction (chi-square, p = {p_value:.0e})")


def saving_and_loading_is_exact(
    lm: FreeModel[Any], rng: np.random.Generator, *, roundtrip: Callable[[FreeModel[Any]], FreeModel[Any]]
) -> None:
    """A model that was saved and loaded gives bit-identical numbers."""
    loaded = roundtrip(lm)
    if loaded.vocab_size != lm.vocab_size:
        raise BrokenLawError(f"a vocabulary of {lm.vocab_size} came back as {loaded.vocab_size}")
    texts = some_texts(lm, rng, rows=6, num_tokens=7)
    before, state = lm.score(texts, full_lengths(texts), lm.start(6))
    after, loaded_state = loaded.score(texts, full_lengths(texts), loaded.start(6))
    require_same(after, before, 0, "the score of the loaded model")
    require_same(loaded.predict(loaded_state), lm.predict(state), 0, "the prediction of the loaded model")


LAWS: tuple[Law, ...] = (
    predictions_are_normalised,
    scoring_equals_stepping,
    recording_changes_nothing,
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
    lines_score_as_they_lie,
)


def check_language_model(
    lm: FreeModel[Any],
    *,
    rng: np.random.Generator,
    tolerance: float = 1e-5,
    roundtrip: Callable[[FreeModel[Any]], FreeModel[Any]] | None = None,
) -> None:
    """Check every law; the first violation raises a `BrokenLawError` that names the law."""
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
