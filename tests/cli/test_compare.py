"""`elman compare`: a table on stdout, what is said on stderr, and an exit code that says how it went."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run
from tests.compare.test_compare import write_text


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("texts") / "text.txt")


def test_the_table_has_a_line_for_every_model(run: Run, text: Path, tmp_path: Path) -> None:
    asked = ("compare", text, "--models", "unigram,bigram,mkn,mkn+cache", "--units", "space", "--out", tmp_path / "c")
    found = run(*asked)
    assert found.code == 0, found.err
    for name in ("unigram", "bigram", "mkn", "mkn+cache"):
        (line,) = (line for line in found.out.splitlines() if line.split()[:1] == [name])
        assert "kB" in line
    for heading in (
        "perplexity",
        "95 %",
        "bits/byte",
        "parameters",
        "state",
        "tokens/s",
        "ms at 10",
        "at 1,000",
        "size",
    ):
        assert heading in found.out
    assert "bootstrap" in found.out
    assert "  mkn+cache: mkn " in found.out
    assert "the last 10% of the text are held out" in found.err
    assert "seed 1" in found.err
    again = run(*asked, "--json")
    assert again.code == 0
    assert again.json["schema_version"] == 1
    assert f"{again.json['models'][0]['perplexity']:,.1f}" in found.out
    assert again.json["command"].startswith("elman compare ")


def test_a_model_that_failed_is_named_on_stderr_and_the_rest_is_shown(run: Run, text: Path, tmp_path: Path) -> None:
    found = run("compare", text, "--models", "mkn", "--sweep", "data.units=space,char", "--out", tmp_path / "c")
    assert found.code == 0
    assert "mkn units=char failed: mkn units=char has another vocabulary" in found.err
    assert "mkn units=space" in found.out and "mkn units=char" not in found.out


def test_pairs_have_a_table_by_length(run: Run, tmp_path: Path) -> None:
    pairs, test = tmp_path / "pairs.tsv", tmp_path / "test.tsv"
    for path, count in ((pairs, 40), (test, 12)):
        path.write_text("".join(f"{'ab' * (n % 4 + 1)}\t{'ba' * (n % 4 + 1)}\n" for n in range(count)))
    options = ("--units", "char", "--set", "model.hidden=4", "--set", "train.steps=2", "--threads", "1")
    asked = ("compare", pairs, "--test", test, "--task", "seq2seq", "--models", "initial", *options)
    found = run(*asked, "--out", tmp_path / "c")
    assert found.code == 0, found.err
    assert "by length" in found.out and "source tokens" in found.out
    assert "exact match" in found.out


def test_a_net_that_has_seen_only_a_part_of_the_text_is_named(run: Run, text: Path, tmp_path: Path) -> None:
    """In six minutes on a busy machine, nets lost to every n-gram, and nothing said why."""
    options = ("--set", "model.hidden=4", "--set", "train.steps=1", "--set", "train.batch=1", "--threads", "1")
    found = run("compare", text, "--models", "mkn,rnn", *options, "--units", "space", "--out", tmp_path / "c")
    assert found.code == 0, found.err
    assert "less than one pass over the text: rnn (a longer --budget" in found.out


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["--models", "lsmt"], 2, "error: there is no model 'lsmt'\nhint: did you mean lstm?"),
        (["--models", "mkn,mkn"], 2, "error: mkn is given twice"),
        (["--task", "lmm"], 2, "error: there is no task 'lmm'"),
        (
            ["--budget", "1s", "--models", "lstm"],
            2,
            "error: a budget of 1.0 s is too short for a net\nhint: give at least 3.0 s",
        ),
        (["--units", "char", "--set", "data.units=space"], 2, "error: data.units is given twice"),
        (["--valid", "none.txt"], 66, "error: cannot read none.txt"),
        (["--equal", "parameters"], 2, "error: --equal is for a sweep"),
    ],
)
def test_what_cannot_be_compared_is_said(
    run: Run, text: Path, tmp_path: Path, arguments: list[str], code: int, what: str
) -> None:
    found = run("compare", text, *arguments, "--out", tmp_path / "c")
    assert found.code == code
    assert what in found.err
    assert not (tmp_path / "c" / "unigram").exists()


def test_another_comparison_in_the_directory_is_a_place_that_cannot_be_written(
    run: Run, text: Path, tmp_path: Path
) -> None:
    asked = ("compare", text, "--units", "space", "--out", tmp_path / "c", "--models")
    assert run(*asked, "unigram").code == 0
    found = run(*asked, "mkn")
    assert (found.code, found.out) == (74, "")
    assert "hint: --overwrite begins again" in found.err
    assert run(*asked, "mkn", "--overwrite").code == 0
