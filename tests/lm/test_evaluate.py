"""Counting what was scored, and the numbers that come from it."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman import __version__
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm import evaluate as evaluation
from elman.lm.evaluate import Evaluation, Tally, bootstrap, evaluate, score_lines, signature
from elman.testing import TableLM

LN2 = math.log(2)
# <unk> 1/8, </s> 1/4, a 1/2, b 1/8: powers of two, so nats are whole multiples of ln 2.
MEMORYLESS = TableLM(np.array([1 / 8, 1 / 4, 1 / 2, 1 / 8]))


@dataclass(frozen=True)
class Block:
    ids: Array
    num_lines: int
    num_bytes: int
    unknown_tokens: int


def block_of(*ids: int) -> Block:
    array = np.array(ids, dtype=np.int32)
    return Block(array, int((array == 1).sum()), 2 * len(ids), int((array == 0).sum()))


def run(lm: TableLM, *blocks: Block, reset_lines: bool, chunk_tokens: int = 65_536) -> Tally:
    return evaluate(lm, blocks, reset_lines=reset_lines, signature="", chunk_tokens=chunk_tokens).tally


@pytest.mark.parametrize("reset_lines", [True, False])
def test_the_numbers_of_a_text_worked_by_hand(reset_lines: bool) -> None:
    # "a b </s> a <unk> </s>": 1 + 3 + 2 + 1 + 3 + 2 = 12 bits in 6 tokens; 8 bytes were in the file.
    block = Block(np.array([2, 3, 1, 2, 0, 1]), num_lines=2, num_bytes=8, unknown_tokens=1)
    found = evaluate(MEMORYLESS, [block], reset_lines=reset_lines, signature="the signature")
    assert found.tally.nats == pytest.approx(12 * LN2)
    assert found.tally.perplexity == pytest.approx(4.0)
    assert found.tally.bits_per_byte == pytest.approx(1.5)
    assert found.as_json() == {
        "perplexity": pytest.approx(4.0),
        "perplexity_low": None,
        "perplexity_high": None,
        "nats_per_token": pytest.approx(2 * LN2),
        "bits_per_byte": pytest.approx(1.5),
        "tokens": 6,
        "unknown_tokens": 1,
        "impossible_tokens": 0,
        "lines": 2,
        "signature": "the signature",
    }
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["tokens"] == 6


def test_a_stream_remembers_the_line_before_and_a_line_alone_does_not() -> None:
    # Order 1, rows: after <unk>, after </s>, after a, at the start.  p(a | </s>) = 1/4 but p(a | start) = 1/2.
    table = np.array([[1 / 4, 1 / 4, 1 / 2], [1 / 4, 1 / 2, 1 / 4], [1 / 4, 1 / 4, 1 / 2], [1 / 4, 1 / 4, 1 / 2]])
    # a </s> a </s>: as lines 1 + 2 + 1 + 2 bits, as a stream 1 + 2 + 2 + 2.
    block = block_of(2, 1, 2, 1)
    assert run(TableLM(table), block, reset_lines=True).nats == pytest.approx(6 * LN2)
    assert run(TableLM(table), block, reset_lines=False).nats == pytest.approx(7 * LN2)


def test_a_stream_remembers_across_the_blocks_that_are_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are put together up to 2 M tokens; beyond that the state has to be carried from one to the next."""
    table = np.array([[1 / 4, 1 / 4, 1 / 2], [1 / 4, 1 / 2, 1 / 4], [1 / 4, 1 / 4, 1 / 2], [1 / 4, 1 / 4, 1 / 2]])
    monkeypatch.setattr(evaluation, "JOINED_TOKENS", 2)
    blocks = [block_of(2, 1), block_of(2, 1), block_of(2, 1)]
    # a </s> | a </s> | a </s>: 1 + 2 bits, then twice 2 + 2; from the start each time it would be three times 1 + 2.
    assert run(TableLM(table), *blocks, reset_lines=False).nats == pytest.approx(11 * LN2)
    assert run(TableLM(table), *blocks, reset_lines=True).nats == pytest.approx(9 * LN2)


def texts(max_lines: int = 12) -> st.SearchStrategy[list[list[int]]]:
    """Lines of ids, each with its end-of-sequence."""
    line = st.lists(st.sampled_from([0, 2, 3]), max_size=9).map(lambda ids: [*ids, 1])
    return st.lists(line, min_size=1, max_size=max_lines)


@settings(max_examples=50, deadline=None)
@given(lines=texts())
def test_a_model_without_memory_scores_a_stream_as_it_scores_lines(lines: list[list[int]]) -> None:
    block = block_of(*itertools.chain(*lines))
    as_lines, as_stream = (run(MEMORYLESS, block, reset_lines=reset) for reset in (True, False))
    assert as_lines == as_stream


@settings(max_examples=80, deadline=None)
@given(lines=texts(), seed=st.integers(0, 1000), reset_lines=st.booleans(), chunk_tokens=st.integers(1, 30))
def test_neither_blocks_nor_chunks_change_a_number(
    lines: list[list[int]], seed: int, reset_lines: bool, chunk_tokens: int
) -> None:
    rng = np.random.default_rng(seed)
    lm = TableLM.random(rng, vocab_size=4, order=2, impossible=0.1)
    whole = run(lm, block_of(*itertools.chain(*lines)), reset_lines=reset_lines)
    cuts = [0, *sorted(rng.integers(0, len(lines) + 1, size=3).tolist()), len(lines)]
    blocks = [block_of(*itertools.chain(*lines[first:last])) for first, last in itertools.pairwise(cuts)]
    cut = run(lm, *blocks, reset_lines=reset_lines, chunk_tokens=chunk_tokens)
    assert cut.nats == pytest.approx(whole.nats, rel=1e-6)
    assert (cut.tokens, cut.bytes, cut.lines) == (whole.tokens, whole.bytes, whole.lines)
    assert (cut.unknown_tokens, cut.impossible_tokens) == (whole.unknown_tokens, whole.impossible_tokens)


@settings(max_examples=80, deadline=None)
@given(lines=texts(max_lines=40), seed=st.integers(0, 1000), chunk_tokens=st.integers(1, 60), cut_ends=st.booleans())
def test_lines_scored_together_score_as_each_alone_and_in_order(
    lines: list[list[int]], seed: int, chunk_tokens: int, cut_ends: bool
) -> None:
    lm = TableLM.random(np.random.default_rng(seed), vocab_size=4, order=2, impossible=0.1)
    arrays = [np.array(line[:-1] if cut_ends else line, dtype=np.int64) for line in lines]
    found = score_lines(lm, arrays, chunk_tokens=chunk_tokens)
    assert found.tokens.tolist() == [len(line) for line in arrays]
    for line, nats, per_token, perplexity in zip(
        arrays, found.nats, found.per_token(), found.perplexities, strict=True
    ):
        log_probs, _ = lm.score(line[None], np.array([len(line)]), lm.start(1))
        assert np.array_equal(per_token, -log_probs[0])
        assert nats == pytest.approx(-log_probs.sum(dtype=np.float64), rel=1e-9)
        assert perplexity == pytest.approx(math.exp(nats / max(1, len(line))))


def test_no_lines_at_all_have_no_scores() -> None:
    found = score_lines(MEMORYLESS, [])
    assert (found.nats.shape, found.tokens.shape, found.per_token()) == ((0,), (0,), [])


class WatchedLM(TableLM):
    """A table that keeps the shape of every batch it was asked to score."""

    shapes: list[tuple[int, int]]

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        self.shapes.append(tokens.shape)
        return super().score(tokens, lengths, state)


def test_lines_are_packed_with_little_padding_into_few_batches() -> None:
    rng = np.random.default_rng(0)
    lm = WatchedLM.random(rng, vocab_size=4, order=1)
    lm.shapes = []
    lengths = rng.integers(1, 60, size=4000)
    ids = rng.integers(2, 4, size=lengths.sum())
    ids[np.cumsum(lengths) - 1] = 1
    run(lm, block_of(*ids.tolist()), reset_lines=True, chunk_tokens=10_000)
    cells = sum(rows * width for rows, width in lm.shapes)
    assert cells < 1.2 * len(ids)
    assert max(rows * width for rows, width in lm.shapes) <= 10_000
    assert len(lm.shapes) < 40


def test_a_line_longer_than_a_chunk_is_scored_in_pieces() -> None:
    lm = WatchedLM.random(np.random.default_rng(0), vocab_size=4, order=2)
    lm.shapes = []
    line = [2, 3, 2, 2, 3, 3, 2, 3, 2, 2, 1]
    cut = run(lm, block_of(*line), reset_lines=True, chunk_tokens=4)
    assert lm.shapes == [(1, 4), (1, 4), (1, 3)]
    assert cut.nats == pytest.approx(run(lm, block_of(*line), reset_lines=True).nats)


def test_an_impossible_token_is_counted_and_leaves_no_perplexity() -> None:
    lm = TableLM(np.array([0.0, 0.25, 0.75]))
    found = evaluate(lm, [block_of(2, 0, 1, 0, 1)], reset_lines=False, signature="", rng=np.random.default_rng(0))
    assert found.tally.impossible_tokens == 2
    assert found.tally.nats == pytest.approx(-math.log(0.75) - 2 * math.log(0.25)), "the possible tokens' share"
    numbers = found.as_json()
    assert [numbers[key] for key in ("perplexity", "nats_per_token", "bits_per_byte", "perplexity_low")] == [None] * 4
    scores = score_lines(lm, [np.array([2, 1]), np.array([0, 1])])
    assert np.isinf(scores.nats).tolist() == [False, True]
    assert np.isinf(scores.perplexities).tolist() == [False, True]


def test_tallies_of_parts_add_up_to_the_whole() -> None:
    first, second = Tally(1.5, 2, 3, 4, 5, 6), Tally(10.0, 20, 30, 40, 50, 60)
    assert first + second == Tally(11.5, 22, 33, 44, 55, 66)


def test_a_tally_of_nothing_has_no_numbers() -> None:
    assert (Tally().perplexity, Tally().nats_per_token, Tally().bits_per_byte) == (None, None, None)


def test_a_perplexity_too_large_to_write_is_infinite_and_null_in_json() -> None:
    tally = Tally(nats=5000.0, tokens=5, bytes=10, lines=1)
    assert tally.perplexity == math.inf
    assert Evaluation(tally, None, "").as_json()["perplexity"] is None
    assert Evaluation(tally, None, "").as_json()["nats_per_token"] == 1000


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to score"):
        run(MEMORYLESS, reset_lines=False)
    with pytest.raises(DataError, match="nothing to score"):
        run(MEMORYLESS, block_of(), reset_lines=True)


class DamagedLM(TableLM):
    """A model whose weights became NaN."""

    def score(self, tokens: Array, lengths: Array, state: Array) -> tuple[Array, Array]:
        log_probs, state = super().score(tokens, lengths, state)
        return log_probs * np.float32("nan"), state


def test_scores_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(DataError, match="NaN"):
        run(DamagedLM(np.array([0.5, 0.5])), block_of(0, 1), reset_lines=False)


def test_the_signature_names_all_that_moves_the_number() -> None:
    given = {"units": "word", "vocab_size": 10_000, "tokenizer_fingerprint": "0123456789abcdef", "reset_lines": False}
    found = signature(**given)  # type: ignore[arg-type]
    assert found == f"units:word|vocab:10000|tok:0123456789ab|read:stream|eos:scored|unk:counted|version:{__version__}"
    for change in ({"units": "char"}, {"vocab_size": 9}, {"tokenizer_fingerprint": "f00"}, {"reset_lines": True}):
        assert signature(**{**given, **change}) != found  # type: ignore[arg-type]


def test_the_interval_covers_the_true_perplexity_as_often_as_it_says() -> None:
    """Lines of 1 to 40 tokens of gamma-distributed surprise with mean 2 nats: the true perplexity is e^2."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        tokens = rng.integers(1, 41, size=100)
        nats = rng.gamma(shape=tokens, scale=2.0)
        low, high = bootstrap(nats, tokens, rng=rng, resamples=200) or (0.0, 0.0)
        assert low < math.exp(nats.sum() / tokens.sum()) < high
        covered += low <= math.exp(2) <= high
    assert 0.89 <= covered / 200 <= 0.99


def test_the_interval_is_the_same_for_the_same_seed_and_narrower_for_more_text() -> None:
    rng = np.random.default_rng(0)
    tokens = np.full(10_000, 20)
    nats = rng.gamma(shape=tokens, scale=2.0)

    def width(count: int, seed: int = 1) -> float:
        low, high = bootstrap(nats[:count], tokens[:count], rng=np.random.default_rng(seed)) or (0.0, 0.0)
        return high - low

    assert width(100) == width(100) != width(100, seed=2)
    # A hundred times the text, a tenth of the width, also where neighbours were drawn together.
    assert width(10_000) == pytest.approx(width(100) / 10, rel=0.3)


def test_too_few_lines_have_no_interval() -> None:
    assert bootstrap(np.ones(4), np.ones(4), rng=np.random.default_rng(0)) is None
    assert bootstrap(np.ones(5), np.ones(5), rng=np.random.default_rng(0)) == pytest.approx((math.e, math.e))


@pytest.mark.parametrize("reset_lines", [True, False])
def test_evaluating_a_model_on_its_own_text_gives_an_interval_around_its_perplexity(reset_lines: bool) -> None:
    rng = np.random.default_rng(3)
    ids = rng.choice(4, size=20_000, p=[1 / 8, 1 / 4, 1 / 2, 1 / 8])
    block = block_of(*ids.tolist(), 1)
    found = evaluate(MEMORYLESS, [block], reset_lines=reset_lines, signature="", rng=np.random.default_rng(0))
    entropy = LN2 * (3 / 8 + 2 / 4 + 1 / 2 + 3 / 8)
    assert found.interval is not None
    low, high = found.interval
    assert low < math.exp(entropy) < high
    assert high - low < 0.1
    assert found.as_json()["perplexity_low"] == low


def test_a_model_that_fails_ends_the_reading_thread() -> None:
    closed = threading.Event()

    def blocks() -> Iterator[Block]:
        try:
            for _ in range(1000):
                yield block_of(0, 9, 1)  # 9 is no token of the model
        finally:
            closed.set()

    with pytest.raises(IndexError):
        evaluate(MEMORYLESS, blocks(), reset_lines=False, signature="")
    assert closed.is_set()
    assert "prefetch" not in [thread.name for thread in threading.enumerate()]


def test_a_scorer_that_reports_gives_the_same_nats_and_ends_with_all_of_the_text() -> None:
    ids = np.arange(2 * evaluation.REPORT_TOKENS + 7)
    shares: list[float] = []
    score = evaluation.reporting(lambda piece: piece / 2, 2 * len(ids), shares.append)
    assert np.array_equal(score(ids), ids / 2) and shares == sorted(shares) and len(shares) == 3
    assert shares[-1] == 0.5
    assert len(score(ids[:0])) == 0 and shares[-1] == 0.5
    score(ids)
    assert shares[-1] == 1.0
