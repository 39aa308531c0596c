"""What a person sees of a training, on a terminal, in a notebook, in a log."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import in_python
from elman.training import display
from elman.training.progress import Progress, Wording


class ZMQInteractiveShell:
    """The shell of a kernel, as IPython calls it."""


class Cell:
    """What a cell of a notebook shows."""

    def __init__(self) -> None:
        self.pictures: list[str] = []

    def display(self, picture: str, *, display_id: bool) -> Cell:
        assert display_id
        self.pictures.append(picture)
        return self

    def update(self, picture: str) -> None:
        self.pictures.append(picture)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display, ipython.display.HTML = cell.display, str
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return cell


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat .\nthe dog sat .\n" * 20)
    return path


SMALL = {"model.hidden": 4, "train.batch": 4, "train.bptt": 8, "train.steps": 5}


def test_a_notebook_has_a_bar_that_moves_to_its_end(notebook: Cell, text: Path, capsys: Any) -> None:
    elman.train("lm", text, model="rnn", settings=SMALL)
    assert notebook.pictures[0] == "training rnn"
    assert "<progress max='1' value='1.0000'></progress> step 5 " in notebook.pictures[-1]
    assert "5 steps, " in capsys.readouterr().out  # and sentences that stay


def test_a_notebook_can_be_quiet(notebook: Cell, text: Path, capsys: Any) -> None:
    elman.train("lm", text, model="rnn", settings=SMALL, progress=False)
    assert not notebook.pictures and capsys.readouterr().out == ""


def test_a_script_is_quiet_unless_it_asks(text: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LINE_SECONDS", 0.0)
    elman.train("lm", text, model="rnn", settings=SMALL)
    assert capsys.readouterr() == ("", "")
    said: list[str] = []
    elman.train("lm", text, model="rnn", settings=SMALL, progress=True, report=said.append)
    shown = capsys.readouterr().err
    assert "step 5  pass " in shown and said and all(in_python(sentence) in shown for sentence in said)
    assert "(units=... chooses others)" in shown and "--" not in shown  # parameters, not flags


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with display.shown("training", stream) as (say, show):
        say("a sentence")
        show(progress())
    assert "a sentence" in stream.getvalue()


def progress(**changes: Any) -> Progress:
    values: dict[str, Any] = {
        "step": 3,
        "epoch": 0.5,
        "tokens": 100,
        "fraction": 0.5,
        "nats_per_token": 1.0,
        "learning_rate": 0.1,
        "gradient_norm": 1.0,
        "tokens_per_second": 1234.0,
        "fraction_of_peak": 0.25,
        "elapsed_seconds": 1.0,
        "eta_seconds": 65.0,
    }
    return Progress(**values | changes)


def test_numbers_are_called_what_they_are() -> None:
    assert display.describe(progress(valid_nats_per_token=0.0)) == (
        "step 3  pass 0.50  loss 1.000  perplexity 2.7183  valid 1.0000  1,234 tokens/s, 25% of peak  1:05 left"
    )
    tagger = Wording("words", has_perplexity=False, error="1-F1")
    assert display.describe(progress(valid_nats_per_token=0.5, valid_error=0.125, wording=tagger)) == (
        "step 3  pass 0.50  loss 1.000  valid 1-F1 0.1250  1,234 words/s, 25% of peak  1:05 left"
    )
    assert "valid loss 0.500" in display.describe(progress(valid_nats_per_token=0.5, wording=tagger))
