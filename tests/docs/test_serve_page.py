"""The examples of docs/serve.md are run as they stand, and answer what the page says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elman.cli.app import run
from tests.serve.running import Running, running

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
CURLS = re.findall(r"```console\n\$ (curl .*)\n((?:.*\n)*?)```", PAGE)
PYTHON = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", PAGE, re.DOTALL)
CHANGING = re.compile(r'("id": ?"cmpl-)\w+|("created": ?)\d+|(localhost:)\d+')


@pytest.fixture(scope="module")
def cats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The server of the page."""
    text, train = re.findall(r"^(printf .*) > cats.txt\nelman (train .*) --out cats$", PAGE, re.MULTILINE)[0]
    folder = tmp_path_factory.mktemp("page")
    (folder / "cats.txt").write_text("".join(f"{line}\n" for line in shlex.split(text)[2:]))
    arguments = [str(folder / "cats.txt") if word == "cats.txt" else word for word in shlex.split(train)]
    assert run([*arguments, "--out", str(folder / "cats")]) == 0
    with running([folder / "cats"]) as found:
        yield found


def test_the_page_has_examples() -> None:
    assert len(CURLS) == 4 and len(PYTHON) == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("number", range(len(CURLS)))
def test_curl_gets_what_the_page_says(cats: Running, number: int) -> None:
    command, expected = CURLS[number]
    words = shlex.split(command.replace("localhost:8000", f"localhost:{cats.port}"))
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert CHANGING.sub(r"\1\2\3", found.strip()) == CHANGING.sub(r"\1\2\3", expected.strip())


def test_the_client_prints_what_the_page_says(cats: Running) -> None:
    [(code, expected)] = PYTHON
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace("localhost:8000", f"localhost:{cats.port}"), "serve.md", "exec"), {})
    assert [line.strip() for line in printed.getvalue().splitlines()] == [
        line.strip() for line in expected.splitlines()
    ]
