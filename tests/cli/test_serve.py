"""`elman serve` as a command: what it refuses, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from elman.cli import serve
from tests.commands import Run

KEY = "a-key-that-nobody-guesses"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.txt"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return path


def test_another_address_without_a_key_is_refused(run: Run, model: Path) -> None:
    found = run("serve", model, "--host", "0.0.0.0")
    assert found.code == 2
    assert "there is no key" in found.err and "--api-key-file" in found.err


@pytest.mark.parametrize("content", ["", "short", "two keys that-are-long-enough", "schlüssel-schlüssel"])
def test_a_file_without_a_good_key_is_refused(run: Run, model: Path, tmp_path: Path, content: str) -> None:
    path = tmp_path / "key.txt"
    path.write_text(content)
    found = run("serve", model, "--api-key-file", path)
    assert found.code == 2
    assert "holds no key" in found.err and (not content or content not in found.err)
    assert run("serve", model, "--api-key-file", tmp_path / "none").code == 66


def test_a_key_that_others_can_read_is_warned_of(key_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert serve.read_key(key_file) == KEY
    assert "warning" not in capfd.readouterr().err
    key_file.chmod(0o644)
    serve.read_key(key_file)
    assert f"chmod 600 {key_file}" in capfd.readouterr().err


def test_a_missing_package_is_one_line(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    found = run("serve", model)
    assert found.code == 1
    assert found.err.splitlines()[-1] == "hint: pip install 'elman[serve]'"


def test_a_directory_without_a_model_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("serve", tmp_path / "none").code == 66


def start(*arguments: object) -> tuple[subprocess.Popen[str], str]:
    """A server as a process of its own, and its address."""
    command = [sys.executable, "-m", "elman", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"serving at (http://\S+)", line):
            return process, found[1]
    raise AssertionError("the server did not start")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_what_is_under_way(model: Path, number: int) -> None:
    process, address = start(model)
    body = json.dumps({"prompt": "the", "max_tokens": 3000, "stream": True, "model": "model", "n": 8}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        first = answer.readline()
        process.send_signal(number)
        rest = answer.read()
    assert first.startswith(b"data: ")
    assert rest.rstrip().endswith(b"data: [DONE]")  # it was drained, not cut
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert lines[-1]["route"] == "/v1/completions" and lines[-1]["status"] == 200


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(model: Path, stream_model: Path) -> None:
    process, address = start(stream_model)
    body = json.dumps({"prompt": "the", "max_tokens": 4096, "stream": True, "n": 16}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.readline()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert time.monotonic() - began < 8  # not the ten seconds of draining
