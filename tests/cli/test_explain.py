"""`elman explain`: directories then texts, a drawing or a file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Run

LINE = "the cat sat on the mat"


def test_without_a_kind_it_is_the_one_that_says_most(run: Run, model: Path) -> None:
    found = run("explain", model, LINE)
    assert found.code == 0 and "perplexity" in found.out
    assert len(found.out.splitlines()) == 1 + 7  # the tokens and the end of the line
    assert "\x1b" not in found.out  # no colour where nobody sees it


def test_json_is_one_object(run: Run, model: Path) -> None:
    found = run("explain", model, LINE, "--json", "--set", "preferred=2").json
    assert found["schema_version"] == 1 and found["kind"] == "surprisal"
    assert all(len(row["preferred"]) == 2 for row in found["models"][0]["tokens"])


def test_several_directories_come_before_the_texts(run: Run, model: Path, stream_model: Path) -> None:
    found = run("explain", model, stream_model, LINE, "a text that is " + "long " * 500, "--json")
    assert found.code == 0, found.err
    assert len(found.json["models"]) == 2


@pytest.mark.parametrize("end", [".html", ".png", ".svg", ".json"])
def test_a_file_is_written_and_never_over_another(run: Run, model: Path, tmp_path: Path, end: str) -> None:
    path = tmp_path / f"picture{end}"
    found = run("explain", model, LINE, "--out", path)
    assert found.code == 0 and found.out == "" and f"wrote {path}" in found.err
    content = path.read_bytes()
    assert run("explain", model, LINE, "--out", path).code == 74 and path.read_bytes() == content
    assert run("explain", model, LINE, "--out", path, "--overwrite").code == 0
    if end == ".json":
        assert json.loads(content)["kind"] == "surprisal"


def test_what_cannot_be_is_refused_before_a_model_is_loaded(run: Run, tmp_path: Path) -> None:
    found = run("explain", tmp_path / "nowhere", LINE, "--out", tmp_path / "a.gif")
    assert found.code == 2 and "a.gif" in found.err
    found = run("explain", tmp_path / "nowhere", LINE, "--out", tmp_path / "no" / "a.png")
    assert found.code == 74
    assert run("explain", tmp_path / "nowhere", LINE).code == 66


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--kind", "suprisal"], "no kind of explanation 'suprisal'", "surprisal"),
        (["--kind", "gradients"], "has no gradients", "it has surprisal"),
        (["--set", "preferred"], "not of the form key=value", "preferred=5"),
        (["--set", "prefer=5"], "explain.prefer is not a setting", "did you mean explain.preferred?"),
        (["--set", "preferred=zero"], "explain.preferred", ""),
    ],
)
def test_wrong_usage_says_what_and_what_to_do(
    run: Run, model: Path, arguments: list[str], error: str, hint: str
) -> None:
    found = run("explain", model, LINE, *arguments)
    assert found.code == 2 and error in found.err and hint in found.err and found.out == ""


def test_a_text_is_needed(run: Run, model: Path) -> None:
    found = run("explain", model)
    assert found.code == 2 and "needs a text" in found.err


def test_on_a_terminal_strong_shades_are_coloured(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elman.cli.terminal.is_fancy", lambda stream: True)
    found = run("explain", model, LINE)
    assert "\x1b[48;2;" in found.out and "\x1b[0m" in found.out


def test_what_a_text_hides_is_escaped_on_a_terminal(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elman.cli.terminal.is_fancy", lambda stream: True)
    found = run("explain", model, "the \x1b[31mcat")
    assert "\x1b[31m" not in found.out
