"""metrics.jsonl has one line a note, and a run that goes on writes nothing twice."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from elman.core.errors import ElmanError
from elman.training.journal import EVENTS, METRICS, Journal


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / METRICS).read_text().splitlines()]


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(1, {"loss": 2.5, "note": "hello", "bad": math.nan})
    assert lines(tmp_path) == [{"step": 1, "loss": 2.5, "note": "hello", "bad": None}]
    journal.close()


def test_a_run_that_goes_on_cuts_off_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(1, {"loss": 1.0})
    position = journal.sync()
    journal.write(2, {"loss": 2.0})
    journal.close()
    again = Journal(tmp_path, position=position)
    again.write(2, {"loss": 2.1})
    again.close()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 2.1)]


def test_a_new_run_begins_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text("old\n")
    Journal(tmp_path).close()
    assert lines(tmp_path) == []


def test_a_journal_that_was_lost_is_begun_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, position=500)
    journal.write(7, {"loss": 1.0})
    journal.close()
    assert len(lines(tmp_path)) == 1


def test_event_files_hold_the_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path, events=tmp_path / EVENTS)
    journal.write(3, {"loss": 2.5, "note": "words are left out"})
    journal.close()
    (events,) = (tmp_path / EVENTS).iterdir()
    data = events.read_bytes()
    assert b"loss" in data and b"words" not in data


def test_without_tensorboardx_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ElmanError) as caught:
        Journal(tmp_path, events=tmp_path / EVENTS)
    assert "elman[track]" in (caught.value.hint or "")
