"""What a terminal is told on the way."""

from __future__ import annotations

import pytest

from elman.cli import terminal


def test_elsewhere_than_on_a_terminal_a_share_is_said_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 4.0, 11.0, 11.0, 12.0, 30.0, 30.0])
    monkeypatch.setattr("elman.cli.terminal.time.monotonic", lambda: next(seconds))
    with terminal.share("explaining") as report:
        for done in (0.1, 0.25, 0.5, 0.75):
            report(done)
    assert capsys.readouterr().err == "explaining: 25%\nexplaining: 75%\n"


def test_on_a_terminal_nothing_is_drawn_before_something_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_fancy", lambda stream: True)
    with terminal.share("explaining"):
        pass
    assert capsys.readouterr().err == ""
    with terminal.share("explaining") as report:
        report(0.5)
    assert "explaining" in capsys.readouterr().err
