"""A task in one file, without a net: how many letters a line has, by the number of its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.settings import Config, make
from elman.tasks.base import EvaluateOptions, Prediction, PredictOptions, Task, TaskModel, TrainRequest
from elman.text.readers import Reader, Sources
from elman.text.settings import DataConfig


class LengthConfig(Config):
    """A guess for lines of which nothing is known."""

    prior: float = Field(5.0, gt=0, description="letters of a word, believed in as firmly as in one that was seen")


LengthRecord = store.Record[DataConfig, LengthConfig]


@dataclass(frozen=True)
class Length(Prediction):
    """How many letters a line should have."""

    text: str
    letters: float

    def line(self) -> str:
        return f"{self.letters:.2f}"

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, "letters": self.letters}


class LengthModel(TaskModel[LengthRecord]):
    """Letters a word has on average."""

    def __init__(self, record: LengthRecord, letters: float, directory: Path | None = None) -> None:
        self.record = record
        self.letters = letters
        self.directory = directory

    def predict(self, text: str) -> float:
        return self.letters * len(text.split())

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Length]:
        for line in read_lines(sources, self.record.data):
            yield Length(line, self.predict(line))

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        return self.numbers(list(read_lines(data, self.record.data)))

    def numbers(self, lines: list[str]) -> dict[str, Any]:
        errors = [abs(self.predict(line) - count_letters(line)) for line in lines]
        return {"mae": float(np.mean(errors)), "examples": len(lines)}

    def tensors(self) -> dict[str, Array]:
        return {"letters": np.array([self.letters])}

    def files(self) -> dict[str, bytes]:
        return {}


class LengthTask(Task[LengthRecord]):
    """Lines of text."""

    name = "length"
    what = "how long lines are"

    def check(self, request: TrainRequest) -> None:
        make(DataConfig, request.settings["data"], section="data")
        make(LengthConfig, request.settings["model"], section="model")

    def train(self, request: TrainRequest) -> LengthModel:
        data = make(DataConfig, request.settings["data"], section="data")
        config = make(LengthConfig, request.settings["model"], section="model")
        lines = list(read_lines(request.data, data))
        if not lines:
            raise DataError("there are no lines", hint="give a file with at least one")
        num_words, num_letters = sum(len(line.split()) for line in lines), sum(map(count_letters, lines))
        source = store.Source(fingerprint="toy", lines=len(lines), tokens=num_words, bytes=num_letters)
        record = LengthRecord(
            task=self.name, data=data, model=config, seed=request.seed, source=source, command=request.command
        )
        model = LengthModel(record, (num_letters + config.prior) / (num_words + 1))
        if request.valid is not None:
            valid = model.numbers(list(read_lines(request.valid, data)))
            model = LengthModel(record.model_copy(update={"valid": valid}), model.letters)
        request.report(f"{model.letters:.2f} letters a word")
        if request.out is None:
            return model
        store.save(request.out, model.record, tensors=model.tensors(), contents=model.files())
        return self.load(request.out, verify=False)

    def load(self, directory: Path, *, verify: bool) -> LengthModel:
        def restore(saved: store.Saved[LengthRecord]) -> LengthModel:
            letters = saved.restore(lambda tensors: float(tensors["letters"][0]))
            return LengthModel(saved.record, letters, directory)

        return store.load(directory, LengthRecord, restore, verify=verify)


def count_letters(line: str) -> int:
    return sum(map(len, line.split()))


def read_lines(sources: Sources, data: DataConfig) -> Iterator[str]:
    for block in Reader(sources, data).blocks():
        yield from (line.decode() for line in block.split())
