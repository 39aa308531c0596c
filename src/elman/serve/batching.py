"""Continuous batching: one thread for a language model steps all its streams as one batch, and reads prompts in between.

Rows join and leave between tokens. In every round the thread reads at most PIECE_TOKENS of the prompts that wait, in turn,
and takes one step of the batch: so a long prompt holds up nobody, and a row that is cancelled is gone within one token.
What a row draws depends on its own random numbers alone. Knows nothing of text or HTTP. B rows · V vocabulary
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import ElmanError
from elman.lm.protocol import FreeModel, refuse_nan, select
from elman.lm.search import invert
from elman.lm.shaping import AS_IS, Shaping, likeliest, shape

PIECE_TOKENS = 512  # of prompts that are read between two steps
ROW_TOKENS = 256  # of one prompt among them
LOOK_SECONDS = 0.05  # between two looks at rows that are stalled, where there is nothing else to do
OWNER_SHARE = 0.75  # of the places, that rows of one request may have

Top = list[tuple[int, float]]


class Row(ABC):
    """One stream of the batch: tokens it has to read, each with its log-probability, then tokens it draws."""

    def __init__(
        self,
        *,
        owner: object = None,
        forced: Sequence[int] = (),
        shaping: Shaping = AS_IS,
        rng: np.random.Generator | None = None,
        top: int = 0,
    ) -> None:
        self.owner = self if owner is None else owner  # whose it is: places are shared between owners, not rows
        self.forced = deque(forced)
        self.shaping = shaping
        self.rng = rng
        self.top = top  # so many of the likeliest tokens are told with each
        self.is_cancelled = False

    @property
    def is_stalled(self) -> bool:
        """Whether nobody takes its tokens: then it gives its place to others until somebody does."""
        return False

    @abstractmethod
    def push(self, token: int, log_prob: float, top: Top) -> bool:
        """Take a token. -> whether the row goes on. Called by the model's thread."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Be told why there is no more."""


@dataclass(eq=False)
class Reading:
    """Tokens to be read from a state. `then` gets the state after them and the log-probability of each."""

    ids: Array
    then: Callable[[Any, Array], None]  # called by the model's thread
    fail: Callable[[Exception], None]
    state: Any = None  # None: the start state
    restarts: bool = False  # after each end of a line
    is_cancelled: bool = False
    position: int = 0
    log_probs: list[Array] = field(default_factory=list)

    def piece(self, end_id: int, size: int) -> Array:
        """The next tokens; never beyond the end of a line, if it restarts there."""
        piece = self.ids[self.position : self.position + size]
        ends = np.flatnonzero(piece == end_id) if self.restarts else piece[:0]
        return piece[: ends[0] + 1] if len(ends) else piece


class Worker:
    """The thread that runs a language model. Everything but `close` may be called from any thread."""

    def __init__(self, lm: FreeModel[Any], *, end_id: int, restarts: bool, max_rows: int, name: str = "model") -> None:
        self._lm = lm
        self._end_id = end_id
        self._restarts = restarts  # whether a row begins anew after the end of a line
        self._max_rows = max_rows
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._readings: deque[Reading] = deque()
        self._joining: dict[object, deque[tuple[Row, Any]]] = {}  # rows that wait, each with its state, by owner
        self._parked: list[tuple[Row, Any]] = []  # rows that are stalled, each with its state
        self._rows: list[Row] = []
        self._state: Any = None
        self._is_closing = False
        self.num_steps = 0
        self.pace: Callable[[], None] = lambda: None  # called after every step; may wait for those who take the tokens
        self._thread = threading.Thread(target=self._run, name=f"elman-{name}", daemon=True)
        self._thread.start()

    @property
    def num_active(self) -> int:
        """Rows of the batch."""
        return len(self._rows)

    @property
    def num_waiting(self) -> int:
        """Rows and prompts that wait for their turn."""
        return sum(len(waiting) for waiting in [*self._joining.values()]) + len(self._readings) + len(self._parked)

    def read(self, reading: Reading) -> None:
        """Read some tokens when it is their turn."""
        with self._changed:
            self._readings.append(reading)
            self._changed.notify()

    def join(self, rows: Sequence[Row], state: Any) -> None:
        """Let rows, all from one state of one row (None: the start), take part as soon as there is room."""
        with self._changed:
            for row in rows:
                self._joining.setdefault(row.owner, deque()).append((row, state))
            self._changed.notify()

    def call(self, function: Callable[[], None]) -> None:
        """Do something with the model between two steps."""
        with self._changed:
            self._calls.append(function)
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> None:
        """End the thread; whoever still waits is told."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._calls or self._readings or self._joining or self._rows or self._is_closing):
                    if not self._changed.wait(LOOK_SECONDS if self._parked else None):
                        break
                if self._is_closing:
                    break
                calls = list(self._calls)
                self._calls.clear()
            for call in calls:
                call()
            self._read_pieces()
            try:
                self._let_in()
                if self._rows:
                    self._step()
                    self.pace()
            except Exception as error:  # whatever a model does, its streams end and the next ones find it as it was
                rows, self._rows, self._state = self._rows, [], None
                for row in rows:
                    row.fail(error)
        closed = ElmanError("the server is shutting down", code="busy")
        waiting = [*self._parked, *(pair for pairs in self._joining.values() for pair in pairs)]
        for row in (*self._rows, *(row for row, _ in waiting)):
            row.fail(closed)
        for reading in self._readings:
            reading.fail(closed)

    # ------------------------------------------------------------------------------------------------------- prompts

    def _read_pieces(self) -> None:
        """Read a little of the prompts that wait, those first that waited longest."""
        chosen: list[tuple[Reading, Array]] = []
        room = PIECE_TOKENS
        with self._changed:
            for _ in range(len(self._readings)):
                reading = self._readings.popleft()
                if reading.is_cancelled:
                    continue
                piece = reading.piece(self._end_id, min(ROW_TOKENS, room))
                chosen.append((reading, piece))
                room -= len(piece)
                if room <= 0:
                    break
        if not chosen:
            return
        try:
            done = self._score(chosen)
        except Exception as error:
            for reading, _ in chosen:
                reading.fail(error)
            return
        with self._changed:
            self._readings.extend(reading for reading, _ in chosen if reading not in done)
        for reading in done:
            self._finish(reading)

    def _score(self, chosen: list[tuple[Reading, Array]]) -> set[Reading]:
        """Read a piece of each as one batch. -> those that are read to their end"""
        filled = [(reading, piece) for reading, piece in chosen if len(piece)]
        done = {reading for reading, piece in chosen if not len(piece)}
        if not filled:
            return done
        lengths_B = np.array([len(piece) for _, piece in filled])
        tokens_BT = np.zeros((len(filled), lengths_B.max()), dtype=np.int64)
        for row, (_, piece) in enumerate(filled):
            tokens_BT[row, : len(piece)] = piece
        states = [self._lm.start(1) if reading.state is None else reading.state for reading, _ in filled]
        state = self._lm.join(states) if len(states) > 1 else states[0]
        log_probs_BT, state = self._lm.score(tokens_BT, lengths_B, state)
        refuse_nan(log_probs_BT)
        for row, (reading, piece) in enumerate(filled):
            reading.log_probs.append(log_probs_BT[row, : len(piece)])
            reading.position += len(piece)
            ended = reading.restarts and piece[-1] == self._end_id
            reading.state = None if ended else select(state, np.array([row]))
            if reading.position >= len(reading.ids):
                done.add(reading)
        return done

    def _finish(self, reading: Reading) -> None:
        try:
            log_probs = np.concatenate([np.zeros(0, dtype=np.float32), *reading.log_probs])
            reading.then(self._lm.start(1) if reading.state is None else reading.state, log_probs)
        except Exception as error:
            reading.fail(error)

    # --------------------------------------------------------------------------------------------------------- steps

    def _let_in(self) -> None:
        """Rows that are cancelled or stalled leave, rows that wait join while there is room."""
        parked, self._parked = self._parked, []
        for row, state in parked:
            if row.is_stalled:
                self._parked.append((row, state))
            else:
                self.join([row], state)
        stalled = {place for place, row in enumerate(self._rows) if row.is_stalled}
        self._parked += [(self._rows[place], select(self._state, np.array([place]))) for place in sorted(stalled)]
        self._parked = [(row, state) for row, state in self._parked if not row.is_cancelled]
        kept = [place for place, row in enumerate(self._rows) if place not in stalled and not row.is_cancelled]
        if len(kept) < len(self._rows):
            self._state = select(self._state, np.array(kept, dtype=np.int64)) if kept else None
            self._rows = [self._rows[place] for place in kept]
        joined = self._take_waiting()
        if joined:
            states = [self._lm.start(1) if state is None else state for state in joined]
            states = states if self._state is None else [self._state, *states]
            self._state = self._lm.join(states) if len(states) > 1 else states[0]

    def _take_waiting(self) -> list[Any]:
        """Add rows that wait, of those owners first who have fewest. -> their states"""
        joined: list[Any] = []
        held = Counter(row.owner for row in self._rows)
        with self._changed:
            while self._joining and len(self._rows) < self._max_rows:
                owner = min(self._joining, key=lambda one: held[one])
                if held[owner] >= max(1, int(self._max_rows * OWNER_SHARE)):
                    break
                row, state = self._joining[owner].popleft()
                if not self._joining[owner]:
                    del self._joining[owner]
                if not row.is_cancelled:
                    self._rows.append(row)
                    joined.append(state)
                    held[owner] += 1
        return joined

    def _step(self) -> None:
        """One token for every row."""
        self.num_steps += 1
        log_probs_BV = refuse_nan(self._lm.predict(self._state))
        tokens_B, failed = self._choose(log_probs_BV)
        goes_on = [
            place not in failed and self._push(row, int(tokens_B[place]), log_probs_BV[place])
            for place, row in enumerate(self._rows)
        ]
        self._advance(tokens_B, np.array(goes_on))

    def _choose(self, log_probs_BV: Array) -> tuple[Array, set[int]]:
        """The token of each row, and the rows that have none to choose."""
        tokens_B = np.zeros(len(self._rows), dtype=np.int64)
        failed: set[int] = set()
        alike: dict[Shaping, list[int]] = {}
        for place, row in enumerate(self._rows):
            if row.forced:
                tokens_B[place] = row.forced.popleft()
            else:
                alike.setdefault(row.shaping, []).append(place)
        for shaping, places in alike.items():
            try:
                part_BV = log_probs_BV if len(places) == len(self._rows) else log_probs_BV[places]
                uniform_B = np.array([_random(self._rows[place].rng) for place in places])
                tokens_B[places] = invert(shape(part_BV, shaping), uniform_B)
            except ElmanError as error:
                failed.update(places)
                for place in places:
                    self._rows[place].fail(error)
        return tokens_B, failed

    def _push(self, row: Row, token: int, log_probs_V: Array) -> bool:
        top: Top = []
        if row.top:
            best = likeliest(log_probs_V, min(row.top, len(log_probs_V))).tolist()
            top = [(one, float(log_probs_V[one])) for one in best]
        try:
            return row.push(token, float(log_probs_V[token]), top)
        except Exception as error:
            row.fail(error)
            return False

    def _advance(self, tokens_B: Array, goes_on_B: Array) -> None:
        """The state after the tokens, of the rows that go on; those that begin anew after a line join again."""
        anew_B = goes_on_B & (tokens_B == self._end_id) if self._restarts else np.zeros(len(tokens_B), dtype=bool)
        kept = np.flatnonzero(goes_on_B & ~anew_B)
        again = [self._rows[place] for place in np.flatnonzero(anew_B)]
        if len(kept) == 0:
            self._rows, self._state = [], None
        else:
            state = self._state if len(kept) == len(self._rows) else select(self._state, kept)
            self._rows = [self._rows[place] for place in kept]
            self._state = self._lm.advance(tokens_B[kept], state)
        with self._changed:
            for row in again:
                self._joining.setdefault(row.owner, deque()).appendleft((row, None))


def _random(rng: np.random.Generator | None) -> float:
    return 0.0 if rng is None else float(rng.random())
