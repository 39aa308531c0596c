"""The thread that steps all streams of a model as one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from elman.core.errors import ElmanError
from elman.lm.search import sample
from elman.lm.shaping import Shaping
from elman.serve.batching import PIECE_TOKENS, Reading, Row, Top, Worker
from elman.testing.table import TableLM

END = 1
Make = Callable[..., Worker]


class Collected(Row):
    """A row that keeps its tokens."""

    def __init__(self, max_tokens: int, *, after: Callable[[], None] = lambda: None, **options: Any) -> None:
        super().__init__(**options)
        self.max_tokens = max_tokens
        self.after = after
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.tops: list[Top] = []
        self.error: Exception | None = None
        self.is_over = threading.Event()

    def push(self, token: int, log_prob: float, top: Top) -> bool:
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.tops.append(top)
        self.after()
        if len(self.tokens) >= self.max_tokens:
            self.is_over.set()
            return False
        return True

    def fail(self, error: Exception) -> None:
        self.error = error
        self.is_over.set()

    def wait(self) -> list[int]:
        assert self.is_over.wait(30)
        return self.tokens


@pytest.fixture
def make() -> Iterator[Make]:
    workers = []

    def call(lm: Any, *, restarts: bool = False, max_rows: int = 8) -> Worker:
        workers.append(Worker(lm, end_id=END, restarts=restarts, max_rows=max_rows))
        return workers[-1]

    yield call
    for worker in workers:
        worker.close()


@pytest.fixture
def lm() -> TableLM:
    return TableLM.random(np.random.default_rng(3), vocab_size=6, order=2)


def test_a_row_draws_what_it_would_draw_alone(make: Make, lm: TableLM) -> None:
    worker = make(lm)
    shapings = [Shaping(), Shaping(0.5), Shaping(1.0, 3), Shaping(1.0, None, 0.7, frozenset({2}))]
    rows = [Collected(5 + 7 * seed, shaping=shapings[seed % 4], rng=np.random.default_rng(seed)) for seed in range(20)]
    for row in rows:  # more than there are places: they join as others leave
        worker.join([row], None)
    for seed, row in enumerate(rows):
        alone = sample(
            lm, lm.start(1), shaping=shapings[seed % 4], rng=np.random.default_rng(seed), max_tokens=row.max_tokens
        )
        assert row.wait() == list(alone)


def test_forced_tokens_have_the_model_s_probabilities(make: Make, lm: TableLM) -> None:
    ids = np.array([3, 1, 4, 2, 2, 5])
    row = Collected(8, forced=ids.tolist(), rng=np.random.default_rng(0), top=2)
    make(lm).join([row], None)
    assert row.wait()[:6] == ids.tolist()
    expected, _ = lm.score(ids[None], np.array([6]), lm.start(1))
    np.testing.assert_array_equal(np.array(row.log_probs[:6], dtype=np.float32), expected[0])
    assert all(top[0][1] >= top[1][1] for top in row.tops)


def test_a_model_of_lines_begins_anew_after_each(make: Make, lm: TableLM) -> None:
    ids = [3, 4, END, 2, 5, END, 3, 4]
    row = Collected(8, forced=ids)
    make(lm, restarts=True).join([row], None)
    row.wait()
    lines = [np.array(line) for line in ([3, 4, END], [2, 5, END], [3, 4])]
    expected = np.concatenate([lm.score(line[None], np.array([len(line)]), lm.start(1))[0][0] for line in lines])
    np.testing.assert_array_equal(np.array(row.log_probs, dtype=np.float32), expected)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_long_prompt_read_in_pieces_is_the_prompt(make: Make, lm: TableLM, restarts: bool) -> None:
    ids = np.random.default_rng(0).integers(0, 6, 3 * PIECE_TOKENS + 17)
    done = threading.Event()
    found: list[Any] = []

    def then(state: Any, log_probs: Any) -> None:
        found.extend([state, log_probs])
        done.set()

    make(lm, restarts=restarts).read(Reading(ids, then=then, fail=lambda error: done.set(), restarts=restarts))
    assert done.wait(30)
    lines = np.split(ids, np.flatnonzero(ids == END) + 1) if restarts else [ids]
    scored = [lm.score(line[None], np.array([len(line)]), lm.start(1)) for line in lines]
    np.testing.assert_allclose(found[1], np.concatenate([one[0][0] for one in scored]), atol=1e-6)
    np.testing.assert_array_equal(found[0], scored[-1][1])


def test_a_long_prompt_holds_up_nobody(make: Make, lm: TableLM) -> None:
    """Between two pieces of a prompt every stream takes a step."""
    worker = make(lm)
    is_read = threading.Event()
    begin = threading.Event()
    row = Collected(10**9, after=begin.set)
    worker.join([row], None)
    assert begin.wait(30)
    before = len(row.tokens)
    worker.read(
        Reading(np.zeros(40 * PIECE_TOKENS, dtype=np.int64), then=lambda s, p: is_read.set(), fail=lambda e: None)
    )
    assert is_read.wait(30)
    assert len(row.tokens) - before >= 40
    row.is_cancelled = True


def test_a_cancelled_row_is_gone_within_one_token(make: Make, lm: TableLM) -> None:
    worker = make(lm)
    row: Collected = Collected(10**9)
    row.after = lambda: setattr(row, "is_cancelled", len(row.tokens) >= 5)
    other = Collected(50)
    worker.join([row, other], None)
    other.wait()
    assert len(row.tokens) == 5
    assert worker.num_active == 0


class Stalling(Collected):
    """A row whose reader sleeps after some tokens."""

    is_asleep = False

    @property
    def is_stalled(self) -> bool:
        return self.is_asleep and len(self.tokens) >= 5


def test_a_row_that_nobody_reads_gives_its_place_away_and_goes_on_where_it_was(make: Make, lm: TableLM) -> None:
    worker = make(lm, max_rows=1)
    row = Stalling(30, rng=np.random.default_rng(7))
    row.is_asleep = True
    worker.join([row], None)
    other = Collected(20)
    worker.join([other], None)
    assert len(other.wait()) == 20
    assert len(row.tokens) == 5 and worker.num_active == 0 and worker.num_waiting == 1
    row.is_asleep = False
    assert row.wait() == list(sample(lm, lm.start(1), rng=np.random.default_rng(7), max_tokens=30))


def test_a_row_that_nobody_reads_and_nobody_wants_is_forgotten(make: Make, lm: TableLM) -> None:
    worker = make(lm, max_rows=1)
    row = Stalling(30)
    row.is_asleep = True
    worker.join([row], None)
    other = Collected(20)
    worker.join([other], None)
    other.wait()
    row.is_cancelled = True
    after = Collected(5)
    worker.join([after], None)
    after.wait()
    assert worker.num_waiting == 0


def test_places_are_shared_between_requests(make: Make, lm: TableLM) -> None:
    """A request of very many rows does not keep another from its turn: it never has all places."""
    worker = make(lm, max_rows=4)
    begin = threading.Event()
    owner = object()
    many = [Collected(10**9, owner=owner, after=begin.set) for _ in range(20)]
    worker.join(many, None)
    assert begin.wait(30)
    one = Collected(20)
    worker.join([one], None)
    one.wait()
    assert sum(bool(row.tokens) for row in many) == 3
    for row in many:
        row.is_cancelled = True


class Evil(TableLM):
    """A model that breaks after some steps."""

    fails_in = "predict"
    num_left = 10

    def predict(self, state: Any) -> Any:
        self._count("predict")
        return super().predict(state)

    def advance(self, tokens: Any, state: Any) -> Any:
        self._count("advance")
        return super().advance(tokens, state)

    def join(self, states: Any) -> Any:
        if self.fails_in == "join" and self.num_left:
            self.num_left = 0
            raise RuntimeError("out of order")
        return super().join(states)

    def _count(self, place: str) -> None:
        if place == self.fails_in:
            self.num_left -= 1
            if self.num_left == 0:
                raise RuntimeError("out of order")


@pytest.mark.parametrize("place", ["predict", "advance", "join"])
def test_a_model_that_fails_ends_its_streams_and_serves_the_next(make: Make, place: str) -> None:
    lm = Evil(np.full((5, 4), 0.25))
    lm.fails_in = place
    worker = make(lm)
    rows = [Collected(100) for _ in range(3)]
    worker.join(rows, None)
    for row in rows:
        row.wait()
        assert isinstance(row.error, RuntimeError)
    after = Collected(4)
    worker.join([after], None)
    assert len(after.wait()) == 4
    assert after.error is None


def test_a_row_without_a_possible_token_fails_alone(make: Make, lm: TableLM) -> None:
    worker = make(lm)
    none, some = Collected(5, shaping=Shaping(forbid=frozenset(range(6)))), Collected(5)
    worker.join([none, some], None)
    assert len(some.wait()) == 5
    none.wait()
    assert isinstance(none.error, ElmanError)


def test_whoever_waits_is_told_when_the_thread_ends(lm: TableLM) -> None:
    worker = Worker(lm, end_id=END, restarts=False, max_rows=1)
    begin = threading.Event()
    rows = [Collected(10**9, after=begin.set), Collected(10**9)]
    worker.join(rows, None)
    assert begin.wait(30)
    worker.close()
    assert all(isinstance(row.error, ElmanError) for row in rows)
