"""The pages that show sessions: their commands are run, and what they show was printed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from elman.cli.app import run

DOCS = Path(__file__).parents[2] / "docs"


def load_program() -> ModuleType:
    """docs/make_tour.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("make_tour", DOCS / "make_tour.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_tour = load_program()


def test_a_session_is_commands_and_what_each_printed() -> None:
    block = "$ one \\\n  --more\nout\nput\n$ two\n"
    assert list(make_tour.split(block)) == [("one \\\n  --more", "out\nput\n"), ("two", "")]


def test_a_session_that_begins_with_output_is_refused() -> None:
    with pytest.raises(SystemExit, match="begin with a command"):
        list(make_tour.split("output\n$ command\n"))


def test_a_page_gets_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_tour, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("a\n```console\n$ echo b > f; echo new\nold\n$ cat f\n```\nc\n")
    make_tour.write("page")
    assert page.read_text() == "a\n```console\n$ echo b > f; echo new\nnew\n$ cat f\nb\n```\nc\n"


@pytest.mark.parametrize("command", ["false", "false | cat"])
def test_a_command_that_fails_ends_the_run(command: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 1"):
        make_tour.Shell(tmp_path).run(command)


def test_a_page_whose_errors_are_no_longer_printed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_tour, "DOCS", tmp_path)
    (tmp_path / "troubleshooting.md").write_text("```console\n$ echo new\nold\n```\n")
    with pytest.raises(SystemExit, match="prints now"):
        make_tour.check("troubleshooting")


@pytest.mark.parametrize("page", make_tour.PAGES)
def test_every_verb_and_flag_of_a_page_exists(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = [part for command, _ in make_tour.commands(page) for part in re.findall(r"\belman [^|;&>]+", command)]
    assert found
    for one in found:
        _, verb, *words = one.split()
        assert run([verb, "--help"]) == 0, one
        known = capsys.readouterr().out
        for flag in (word for word in words if word.startswith("--")):
            assert re.search(rf"{re.escape(flag)}\b", known), f"elman {verb} has no {flag}"


def test_the_tour_shows_what_was_printed() -> None:
    shown = [output for command, output in make_tour.commands("tour") if "elman" in command and "--out" not in command]
    assert len(shown) > 10
    assert all(shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", make_tour.PAGES)
def test_every_command_of_a_page_runs(page: str) -> None:
    make_tour.check(page)
