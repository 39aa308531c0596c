"""One rule for every model: its numbers on the same text, what its state weighs, how long a token takes to generate."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm import evaluate as evaluation
from elman.lm.protocol import FreeModel, leaves
from elman.tasks.base import EvaluateOptions, TaskModel
from elman.text.corpus import Corpus, read_blocks, read_corpus
from elman.training.journal import read_journal

if TYPE_CHECKING:
    from elman.api import Model

EVALUATION_TOKENS = 1 << 16
TIMED_TOKENS = 20  # the median of so many is how long one takes
POSITIONS = (10, 1_000)
SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 40, 0.8
CURVE_POINTS = 200
GRADIENT_TOKENS = 120
GRADIENT_OPTIONS = {"losses": 16, "jacobians": 0}


class MeasuredText:
    """The text that the numbers are of: read once, by the vocabulary that all models share."""

    def __init__(self, path: str, train: Sequence[str], model: Model) -> None:
        self.path = path
        self._train = train
        self._tokenizer, self._data = model.tokenizer, model.record.data
        self.corpus: Corpus = read_corpus([path], self._tokenizer, self._data)
        self.ids = self.corpus.ids.astype(np.int64)
        self._counts: Array | None = None

    def check(self, model: Model, name: str) -> None:
        """Refuse a model that means something else by a token or a line."""
        if model.tokenizer.fingerprint != self._tokenizer.fingerprint:
            raise DataError(
                f"{name} has another vocabulary than the models before it: their perplexities do not compare",
                code="models-differ",
                hint="leave out settings of data that differ, or compare it alone",
            )
        if model.record.data.reset_lines != self._data.reset_lines:
            raise DataError(f"{name} does not read lines the way the models before it do", code="models-differ")

    @property
    def counts(self) -> Array:
        """How often each symbol is in the training text, (V,)."""
        if self._counts is None:
            train = read_corpus(list(self._train), self._tokenizer, self._data)
            self._counts = np.bincount(train.ids, minlength=self._tokenizer.vocab_size)
        return self._counts

    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        """Lines as they stand in the file, by their numbers from 0."""
        wanted, found, first = set(numbers), {}, 0
        for block in read_blocks([self.path], self._tokenizer, self._data):
            assert block.lines is not None
            lines = block.lines.split()
            for place in wanted & set(range(first, first + len(lines))):
                found[place] = lines[place - first].decode(errors="replace")
            first += len(lines)
        return found


def measure(model: Model, text: MeasuredText, *, seed: int) -> tuple[dict[str, Any], Array]:
    """The numbers of `evaluate`, what a token costs in time, what a state weighs; and the nats of every token."""
    lm, reset_lines = model.lm, model.record.data.reset_lines
    pieces: list[Array] = []
    scorer = evaluation.lines_scorer(lm) if reset_lines else evaluation.stream_scorer(lm)
    found = evaluation.evaluate_by(
        _kept(scorer, pieces),
        text.corpus.blocks(EVALUATION_TOKENS),
        reset_lines=reset_lines,
        signature=model.signature(reset_lines=reset_lines),
        rng=np.random.default_rng(seed),
    ).with_spelling(model.spelling_nats(text.corpus))
    near, far = (_time_tokens(lm, text.ids, position) for position in POSITIONS)
    numbers = found.as_json() | {
        "state_bytes": far[1],
        f"ms_per_token_{POSITIONS[0]}": near[0],
        f"ms_per_token_{POSITIONS[1]}": far[0],
    }
    return numbers, np.concatenate(pieces).astype(np.float32)


def _kept(scorer: evaluation.Scorer, pieces: list[Array]) -> Callable[[Array], Array]:
    def score(ids: Array) -> Array:
        nats_N = scorer(ids)
        pieces.append(nats_N)
        return nats_N

    return score


def _time_tokens(lm: FreeModel[Any], ids: Array, position: int) -> tuple[float, int]:
    """Milliseconds to predict a token and read it, so far into a text, and the bytes of the state there."""
    tokens = np.resize(ids, position + TIMED_TOKENS)  # a shorter text is read again from its beginning
    _, state = lm.score(tokens[None, :position], np.array([position]), lm.start(1))
    num_bytes = sum(int(leaf.nbytes) for leaf in leaves(state))
    seconds = []
    for token in tokens[position:]:
        began = time.perf_counter()
        lm.predict(state)
        state = lm.advance(np.array([token]), state)
        seconds.append(time.perf_counter() - began)
    return 1_000 * float(np.median(seconds)), num_bytes


def draw_sample(model: Model, *, seed: int) -> str:
    """What it writes by itself, on one line."""
    text = model.generate(tokens=SAMPLE_TOKENS, temperature=SAMPLE_TEMPERATURE, seed=seed)
    return re.sub(r"\s+", " ", text).strip()


def curve(directory: Path) -> list[dict[str, Any]]:
    """How a net learned, from its journal, thinned."""
    rows = []
    for line in read_journal(directory, report=lambda sentence: None):
        row = {key: line[key] for key in ("tokens", "perplexity", "valid_perplexity") if line.get(key) is not None}
        if len(row) > 1 and "tokens" in row and "step" in line:  # what only counts has a line, but no steps
            rows.append(row)
    kept = rows[:: max(1, -(-len(rows) // CURVE_POINTS))]
    validated = [row for row in rows if "valid_perplexity" in row and row not in kept]
    return sorted([*kept, *validated[:: max(1, -(-len(validated) // CURVE_POINTS))]], key=lambda row: row["tokens"])


def gradients(model: Model, valid: str) -> list[dict[str, Any]] | None:
    """Of a recurrent net: the size of gradients by distance, on the beginning of the validation text."""
    if "states" not in model.kinds():
        return None
    lines: list[str] = []
    num_tokens = 0
    for block in read_blocks([valid], model.tokenizer, model.record.data):
        assert block.lines is not None
        for line in block.lines.split():
            text = line.decode(errors="replace")
            length = len(model.ids_of(text))
            if model.record.data.reset_lines:  # each line alone: the longest of the first ones
                lines = [text] if length > num_tokens else lines
                num_tokens = max(num_tokens, length)
            else:
                lines.append(text)
                num_tokens += length
            if num_tokens >= GRADIENT_TOKENS:
                break
        break
    options = {**GRADIENT_OPTIONS, "tokens": 2 * GRADIENT_TOKENS}
    found = model.explain("\n".join(lines), kind="gradients", **options).data["models"][0]["layers"]
    return list(found)


def evaluate_rows(model: TaskModel[Any], path: str | None, *, seed: int) -> dict[str, Any]:
    """The numbers of a task: on a file, or on the rows that the model held out when it was trained."""
    if path is not None:
        return model.evaluate(path, EvaluateOptions(seed=seed))
    return {**(model.record.valid or {}), "seed": seed}


def size_on_disk(directory: Path) -> int:
    """Bytes of a model's files."""
    return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
