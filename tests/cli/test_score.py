"""`elman score` on many lines: what is written for each, the rate on a terminal, and how it ends."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import elman
from tests.commands import LINES, Run


@pytest.fixture
def harsh(corpus: Path, tmp_path: Path) -> Path:
    """A model by which some tokens are impossible, so that nats are infinite."""
    settings = {"model.smoothing": "ml"}
    elman.train("lm", corpus, out=tmp_path / "ml", model="bigram", units="space", settings=settings)
    return tmp_path / "ml"


def test_a_line_of_json_is_the_score_from_python(run: Run, harsh: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes('the cat\nmat the "the" \\ caf\u00e9\u2028\n\nbad '.encode() + b"\xff\nthe\tmat .\n")
    options = ("--errors", "skip", "--text", "--per-token", "--json")
    records = [json.loads(line) for line in run("score", harsh, text, *options).out.split("\n")[:-1]]
    loaded = elman.load(harsh)
    (rows,) = loaded.score_lines(text, per_token=True, errors="skip", with_text=True)
    assert [record["tokens"] for record in records] == [3, 6, 1, None, 4]
    for record, score in zip(records, rows, strict=True):
        assert record.pop("schema_version") == 1
        if score is None:
            assert record and set(record.values()) == {None}
            continue
        pairs = [[token, nats if math.isfinite(nats) else None] for token, nats in score.per_token]
        assert record.pop("per_token") == pairs
        for name, value in record.items():
            expected = getattr(score, name)
            assert value == (None if expected == math.inf else expected), name
    assert records[1]["nats"] is None and records[1]["text"].endswith("caf\u00e9\u2028")


def read_terminal(controller: int) -> bytes:
    """All that a process wrote to its terminal."""
    seen = b""
    while True:
        try:
            piece = os.read(controller, 10_000)
        except OSError:  # the other end was closed
            return seen
        if not piece:
            return seen
        seen += piece


@pytest.mark.parametrize("is_seen", [True, False])
def test_the_rate_is_shown_on_a_terminal_unless_the_results_are(model: Path, tmp_path: Path, is_seen: bool) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\n".join(LINES * 4000) + "\n")
    controller, worker = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    with (tmp_path / "scores.tsv").open("wb") as scores:
        command = [sys.executable, "-m", "elman", "score", str(model), str(text)]
        stdout = scores if is_seen else worker
        with subprocess.Popen(command, stdout=stdout, stderr=worker, env=environment) as process:
            os.close(worker)
            seen = read_terminal(controller)
            assert process.wait(60) == 0
    os.close(controller)
    assert (b"a second" in seen) == is_seen
    if is_seen:
        assert b"20,000 lines" in seen
        assert len((tmp_path / "scores.tsv").read_bytes().splitlines()) == 20_000


def test_ctrl_c_ends_a_wait_for_more_lines(model: Path) -> None:
    # a shell starts what runs in the background, as the tests may, with Ctrl-C ignored
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from elman.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "score", str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"the cat\n")
        process.stdin.flush()
        assert process.stdout.readline().split(b"\t")[1] == b"3"
        time.sleep(0.1)  # let it wait for the next line
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"stopped by Ctrl-C\n"
