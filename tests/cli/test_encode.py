"""`elman encode`: vectors in files, on stdout, and the nearest lines."""

from __future__ import annotations

import functools
import json
import resource
from pathlib import Path

import numpy as np
import pytest

import elman
from tests.commands import Run, run_process, run_shell

LINES = ["the cat sat on the mat .", "who saw the mat ?", "", "the dog sat on the log ."]


@pytest.fixture(scope="module")
def net(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("net") / "m"
    settings = {"model.hidden": 8, "train.steps": 5, "train.batch": 4}
    elman.train("lm", corpus, model="lstm", out=out, units="space", valid="none", settings=settings, threads=1)
    return out


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_an_array_has_a_row_a_line(run: Run, net: Path, lines: Path, tmp_path: Path) -> None:
    found = run("encode", net, lines, "--out", tmp_path / "v.npy")
    assert found.code == 0 and "4 lines, 8 numbers a line" in found.err
    vectors = np.load(tmp_path / "v.npy")
    assert np.array_equal(vectors, elman.load(net).encode(LINES))
    assert not vectors[2].any() and vectors[3].any()


def test_jsonl_stdout_and_stdin_say_the_same(run: Run, net: Path, lines: Path, tmp_path: Path) -> None:
    wanted = elman.load(net).encode(LINES, pool="max", layer=0)
    assert run("encode", net, lines, "--pool", "max", "--layer", "0", "--out", tmp_path / "v.jsonl").code == 0
    records = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [record["text"] for record in records] == LINES
    assert np.allclose([record["vector"] for record in records], wanted, rtol=1e-4)
    text = run("encode", net, "--pool", "max", "--layer", "0", stdin=lines.read_bytes())
    assert np.allclose([list(map(float, row.split("\t"))) for row in text.out.splitlines()], wanted, rtol=1e-4)
    each = run("encode", net, lines, "--per-token", "--json").out.splitlines()
    assert [len(json.loads(line)["vectors"]) for line in each] == [7, 5, 0, 7]


def test_the_nearest_line_to_a_line_is_itself(run: Run, net: Path, lines: Path) -> None:
    found = run("encode", net, lines, "--near", LINES[1], "--k", "2")
    first, second = (row.split("\t") for row in found.out.splitlines())
    assert first == ["1.0000", "2", LINES[1]] and float(second[0]) < 1
    record = json.loads(run("encode", net, lines, "--near", LINES[1], "--json").out.splitlines()[0])
    assert record["line"] == 2 and record["text"] == LINES[1] and abs(record["similarity"] - 1) < 1e-5
    nothing = run("encode", net, lines, "--near", " ")
    assert nothing.code == 2 and "nothing to look for" in nothing.err


def test_nothing_is_overwritten_and_nothing_half_written(run: Run, net: Path, lines: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.npy"
    thesis.write_text("years of work")
    found = run("encode", net, lines, "--out", thesis)
    assert found.code == 74 and "is there already" in found.err and "--overwrite" in found.err
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\xfe broken\n")
    assert run("encode", net, tmp_path / "bad.txt", "--out", thesis, "--overwrite").code == 65
    assert thesis.read_text() == "years of work" and [p.name for p in tmp_path.glob(".*")] == []
    assert run("encode", net, lines, "--out", thesis, "--overwrite").code == 0 and len(np.load(thesis)) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.csv"], "neither .npy nor .jsonl"),
        (["--out", "x.npy", "--per-token"], "--per-token is for JSON"),
        (["--per-token"], "--per-token is for JSON"),
        (["--near", "a", "--out", "x.npy"], "--near and --out"),
        (["--layer", "9"], "has no layer 9"),
        (["--k", "3"], "--k is for --near"),
        (["--overwrite"], "--overwrite is for --out"),
        (["--out", "x.jsonl", "--json"], "--out and --json"),
        (["--per-token", "--json", "--pool", "max"], "--per-token and --pool"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Run, net: Path, lines: Path, words: list[str], message: str) -> None:
    found = run("encode", net, lines, *words)
    assert found.code == 2 and message in found.err
    if "--json" in words:  # the error, for programs
        assert message in json.loads(found.out)["error"]["message"]
    else:
        assert not found.out


def test_models_that_count_have_no_vectors(run: Run, model: Path, lines: Path) -> None:
    found = run("encode", model, lines)
    assert found.code == 2 and "that is no net" in found.err


def test_what_is_no_text_stops_it_or_has_zeros_in_its_place(run: Run, net: Path, tmp_path: Path) -> None:
    """The hint named flags that only training has."""
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"the cat\n\xff\xfe\nthe dog\n")
    stopped = run("encode", net, bad)
    assert (stopped.code, stopped.out) == (65, "")
    assert "--errors skip" in stopped.err and "--set" not in stopped.err
    rows = run("encode", net, bad, "--errors", "skip").out.splitlines()
    assert len(rows) == 3
    assert [set(row.split("\t")) == {"0"} for row in rows] == [False, True, False]


def test_vectors_that_nobody_would_get_are_refused(net: Path, lines: Path, tmp_path: Path) -> None:
    """`encode ... >&-` ended with 0, its result lost; into a file it needs no stdout."""
    done = run_shell(f"elman encode {net} {lines} >&-")
    assert done.returncode == 74 and done.stderr.startswith("error: stdout is closed: the result would be lost")
    assert run_shell(f"elman encode {net} {lines} --out {tmp_path / 'v.npy'} >&-").returncode == 0
    assert len(np.load(tmp_path / "v.npy")) == len(LINES)


def test_an_array_without_room_says_so_and_leaves_nothing(net: Path, tmp_path: Path) -> None:
    """numpy said `24000 requested and 16352 written`, and no hint."""
    many = tmp_path / "many.txt"
    many.write_text("the cat sat\n" * 3000)
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
    done = run_process("encode", net, many, "--out", tmp_path / "v.npy", preexec_fn=limit)
    assert done.returncode == 74 and "requested" not in done.stderr and "hint: " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["many.txt"]
