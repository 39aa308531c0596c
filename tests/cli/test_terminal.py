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


def test_on_a_terminal_a_bar_is_drawn_from_the_first_report_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress

    drawn: list[float] = []
    monkeypatch.setattr(terminal, "is_fancy", lambda stream: True)
    monkeypatch.setattr(Progress, "start", lambda self: drawn.append(self.tasks[0].completed))
    with terminal.share("explaining"):
        assert not drawn
    with terminal.share("explaining") as report:
        report(0.5)
        report(0.75)
    assert drawn == [0.0, 0.5]
