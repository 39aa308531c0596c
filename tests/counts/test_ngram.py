"""Rows of tokens scored as they lie one after another, in pieces that threads work on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.counts.ngram import NgramModel, TrieModel
from elman.counts.scratch import Scratch
from elman.lm.evaluate import line_starts, stream_scorer
from elman.lm.protocol import score_by_steps
from elman.text.units.vocabulary import EOS_ID
from tests.counts.fitting import kneser_ney, smoothed

VOCAB_SIZE = 7
rng = np.random.default_rng(5)
TEXT = np.append(rng.choice(VOCAB_SIZE, 400, p=[0.05, 0.2, 0.3, 0.2, 0.1, 0.1, 0.05]), EOS_ID)


def fit(name: str, *, order: int, reset_lines: bool) -> TrieModel:
    """A model of a few hundred tokens: by back-off, or by counts of the longest history."""
    options = {"order": order, "vocab_size": VOCAB_SIZE, "reset_lines": reset_lines}
    with Scratch(threads=1) as scratch:
        if name == "kneser_ney":
            return kneser_ney(TEXT, **options, scratch=scratch)
        return smoothed(TEXT, smoothing="add", alpha=0.5, **options, scratch=scratch)


MODELS = {
    (name, order, reset_lines): fit(name, order=order, reset_lines=reset_lines)
    for name in ("kneser_ney", "add")
    for order in (1, 2, 4)
    for reset_lines in (False, True)
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elman.counts.ngram.CHUNK_TOKENS", 5)
    monkeypatch.setattr("elman.counts.ngram.THREADED_TOKENS", 3)


@pytest.mark.parametrize("key", MODELS)
@settings(max_examples=25, deadline=None)
@given(tokens=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=40))
def test_pieces_cut_anywhere_score_like_single_steps(key: tuple[str, int, bool], tokens: list[int]) -> None:
    lm, ids = MODELS[key], np.array(tokens)
    stepped, after = score_by_steps(lm, ids[None], np.array([len(ids)]), lm.start(1))
    scored, state = lm.score(ids[None], np.array([len(ids)]), lm.start(1))
    np.testing.assert_allclose(scored, stepped, atol=1e-5)
    np.testing.assert_array_equal(state, after)
    np.testing.assert_array_equal(-scored[0], stream_scorer(lm, chunk_tokens=3)(ids))


@pytest.mark.parametrize("key", MODELS)
@settings(max_examples=25, deadline=None)
@given(tokens=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=40))
def test_a_line_costs_the_same_alone_in_a_batch_and_in_its_place(key: tuple[str, int, bool], tokens: list[int]) -> None:
    lm, ids = MODELS[key], np.array([*tokens, EOS_ID])
    lines = np.split(ids, line_starts(ids)[1:])
    lengths = np.array(list(map(len, lines)))
    batch: Array = np.zeros((len(lines), lengths.max()), np.int64)
    batch[np.arange(batch.shape[1]) < lengths[:, None]] = ids
    padded, states = lm.score(batch, lengths, lm.start(len(lines)))
    in_place = lm.score_lines(ids, line_starts(ids))
    np.testing.assert_array_equal(in_place, padded[np.arange(batch.shape[1]) < lengths[:, None]])
    for line, state, part in zip(lines, states, np.split(in_place, line_starts(ids)[1:]), strict=True):
        alone, after = lm.score(line[None], np.array([len(line)]), lm.start(1))
        np.testing.assert_array_equal(part, alone[0])
        np.testing.assert_array_equal(state, after[0])


@pytest.mark.parametrize("key", MODELS)
def test_rows_without_tokens_keep_their_state(key: tuple[str, int, bool]) -> None:
    lm = MODELS[key]
    _, begin = lm.score(TEXT[None, :6].repeat(3, axis=0), np.array([6, 2, 4]), lm.start(3))
    for width in (0, 7):
        scored, after = lm.score(np.zeros((3, width), np.int64), np.array([0, 0, 0]), begin)
        assert scored.shape == (3, width) and not scored.any()
        np.testing.assert_array_equal(after, begin)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("words.2", lambda words: words + np.uint16(60_000), "words that are not in its vocabulary"),
        ("starts.1", lambda starts: np.concatenate([starts[:1], starts[-2:0:-1], starts[-1:]]), "are inconsistent"),
    ],
)
def test_tables_that_point_out_of_one_another_are_refused(
    table: str, change: Callable[[Array], Array], message: str
) -> None:
    tensors = fit("kneser_ney", order=4, reset_lines=True).tensors()
    shape = {"order": 4, "vocab_size": VOCAB_SIZE, "reset_lines": True}
    NgramModel.from_tensors(tensors, **shape)
    with pytest.raises(DataError, match=message):
        NgramModel.from_tensors(tensors | {table: change(tensors[table].astype(np.uint16))}, **shape)
