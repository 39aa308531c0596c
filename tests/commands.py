"""The command line in this process, and small models to use it on: what tests/cli and tests/tasks share."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.cli.app import run as run_arguments

LINES = [
    "the cat sat on the mat .",
    "the dog sat on the log .",
    "a cat and a dog sat on a mat .",
    "the cat saw the dog and the dog saw the cat .",
    "who saw the mat ?",
]


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Run = Callable[..., Result]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line; `stdin` is what it reads."""

    def call(*arguments: object, stdin: bytes | None = None) -> Result:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        words = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["elman", *words])
        capfd.readouterr()
        code = run_arguments(words)
        sys.stdout.flush()
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def cut_short(run: Run) -> Callable[..., None]:
    """Train by the command line, and be told to stop after the seventh step."""
    from elman.training.loop import Trainer
    from elman.training.signals import Stopped

    def call(*arguments: object) -> None:
        step = Trainer._step

        def stop_at_seven(self: Trainer, fraction: float) -> None:
            step(self, fraction)
            if self.state.step == 7:
                raise Stopped("stopped", signum=15)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, "_step", stop_at_seven)
            assert run(*arguments).code == 128 + 15

    return call


def run_process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "elman", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **{"timeout": 120, **options})


def run_shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`elman ...` as a shell runs it, with its redirections."""
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} -m {command}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "train.txt"
    path.write_text("\n".join(LINES * 20) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(corpus: Path) -> Path:
    """An order-3 model of lines."""
    out = corpus.parent / "model"
    elman.train("lm", corpus, out=out, units="space", reset_lines=True, valid="none", settings={"model.order": 3})
    return out


@pytest.fixture(scope="session")
def stream_model(corpus: Path) -> Path:
    """A bigram of characters of one stream."""
    out = corpus.parent / "stream"
    elman.train("lm", corpus, out=out, model="bigram", units="char")
    return out
