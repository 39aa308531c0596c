"""`elman studio`: which models it takes, and that it opens a page that is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from elman.cli.studio import demo_directories
from tests.commands import Run


def test_without_the_demos_models_it_says_how_to_get_some(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("studio")
    assert found.code == 66
    assert found.err.startswith("error: there are no models of the demo in elman-demo\nhint: elman studio --demo")
    assert not list(tmp_path.iterdir())


def test_the_demos_models_are_its_comparison_and_its_translators(model: Path, tmp_path: Path) -> None:
    assert demo_directories(tmp_path) == []
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "comparison.json").write_text("{}")
    (tmp_path / "names-attention").symlink_to(model)
    (tmp_path / "names.train.tsv").write_text("")
    assert demo_directories(tmp_path) == [tmp_path / "models", tmp_path / "names-attention"]


def test_a_directory_that_holds_no_model_is_refused(run: Run, tmp_path: Path) -> None:
    found = run("studio", tmp_path, "--no-browser")
    assert found.code == 66 and "no model" in found.err and "Traceback" not in found.err


def test_it_serves_on_a_free_port_opens_the_browser_and_ends_quietly(model: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "elman", "studio", str(model), "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "loaded model\n"
        said = process.stderr.readline()
        address = said.removeprefix("the studio is at ").partition(";")[0]
        with urllib.request.urlopen(f"{address}/v1/models", timeout=30) as answer:
            assert [one["id"] for one in json.load(answer)["data"]] == ["model"]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"elman studio" in answer.read()
        while not opened.exists():
            assert process.poll() is None
        assert opened.read_text() == address
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
        assert "Traceback" not in rest and '"request_id"' not in rest
    finally:
        process.kill()
        process.wait()


def test_the_demos_models_are_trained_when_that_is_asked_for(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[list[str]] = []
    trained: list[bool] = []

    def train_demo(*, quick: bool, threads: int | None) -> None:
        trained.append(quick)
        (tmp_path / "elman-demo").mkdir()
        (tmp_path / "elman-demo" / "names-attention").symlink_to(model)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elman.cli.studio.demo", train_demo)
    monkeypatch.setattr("elman.serve.server.serve", lambda models, options, on_ready: served.append([*models]))
    for _ in range(2):  # the second time they are there
        assert run("studio", "--demo").code == 0
    assert trained == [True] and served == [["model"], ["model"]]
