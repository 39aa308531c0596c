"""Runs the commands of the pages that show sessions, and writes what they printed below them.

    python docs/make_tour.py              all pages anew
    python docs/make_tour.py tour         one of them
    python docs/make_tour.py --check      every command of every page, with small settings; nothing is written

A page is its own source: of each ```console block the lines that begin with `$ ` are run, in order and in one empty
directory for the page, and the others are replaced by what was printed. Pictures that a page shows from `pictures/tour` are
those that its commands wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGES = (
    "tour",
    "tasks/lm",
    "tasks/masked",
    "tasks/classify",
    "tasks/tag",
    "tasks/seq2seq",
    "tasks/qa",
    "troubleshooting",
)
NUMBER = r"(?<!exit code )\b\d[\d,.]*"  # that may differ from one version of Python to the next
EXACT = ("troubleshooting",)  # pages without training: what is printed today has to be what they show
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"\((?:\.\./)?pictures/tour/([\w.-]+)\)")
SMALL = (  # a step or two instead of minutes: what --check runs
    (re.compile(r"--(?:epochs|budget) \S+"), "--set train.steps=2"),
    (re.compile(r"train\.steps=\d{2,}"), "train.steps=2"),
    (re.compile(r"(?:epochs|steps) = \d+"), "steps = 2"),
    (re.compile(r"(model\.hidden=|hidden = )\d+"), r"\g<1>16"),
    (
        re.compile(r"(--texts --out \S+)"),
        r"\1 && for f in names.train.tsv train.txt; do head -n 300 $f > s && mv s $f; done",
    ),
)


def main(arguments: list[str]) -> None:
    """Write the pages that are named, or all of them; or only run them."""
    is_check = "--check" in arguments
    for page in [name for name in arguments if name != "--check"] or PAGES:
        if is_check:
            check(page)
        else:
            write(page)


def write(page: str) -> None:
    """Run a page's commands, and put their output and their pictures in it."""
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        shell = Shell(Path(scratch))
        made = BLOCK.sub(lambda found: f"```console\n{_session(found[1], shell.run)}```", text)
        for name in PICTURE.findall(text):
            shutil.copyfile(shell.work / name, DOCS / "pictures" / "tour" / name)
    path.write_text(made, encoding="utf-8")


def check(page: str) -> None:
    """Run a page's commands with small settings; a command that fails is an error."""
    with tempfile.TemporaryDirectory() as scratch:
        shell = Shell(Path(scratch))
        for command, shown in commands(page):
            if page not in EXACT:
                shell.run(small(command))
            elif not _same(printed := _tidy(shell.run(command)), shown):
                raise SystemExit(f"{page}: {command}\nprints now\n{printed}\nand not\n{shown}")
        missing = [name for name in PICTURE.findall(_text(page)) if not (shell.work / name).exists()]
        if missing:
            raise SystemExit(f"{page}: no command writes {', '.join(missing)}")


def commands(page: str) -> list[tuple[str, str]]:
    """The commands of a page, in order, each with the output that is shown below it."""
    return [found for block in BLOCK.findall(_text(page)) for found in split(block)]


def split(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output below it; a command goes on behind a line that ends in a backslash."""
    lines = block.splitlines(keepends=True)
    while lines:
        command = lines.pop(0)
        if not command.startswith("$ "):
            raise SystemExit(f"a session has to begin with a command, not with {command!r}")
        while command.endswith("\\\n"):
            command += lines.pop(0)
        output = ""
        while lines and not lines[0].startswith("$ "):
            output += lines.pop(0)
        yield command.removeprefix("$ ").rstrip("\n"), output


def small(command: str) -> str:
    """The same command with next to no training."""
    for pattern, replacement in SMALL:
        command = pattern.sub(replacement, command)
    return command


class Shell:
    """Runs commands in a directory of its own, where `elman` is this interpreter's."""

    def __init__(self, scratch: Path) -> None:
        self.work, programs = scratch / "work", scratch / "programs"
        self.work.mkdir()
        programs.mkdir()
        program = programs / "elman"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m elman "$@"\n')
        program.chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        sources = str(DOCS.parent / "src")
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": sources, "COLUMNS": "100", "NO_COLOR": "1"}

    def run(self, command: str) -> str:
        """What a command prints. A failure ends everything."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 141):  # 141: `head` had read enough
            raise SystemExit(f"{command}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout


def _same(printed: str, shown: str) -> bool:
    """Whether two outputs say the same, exit codes too; sizes and counts depend on the texts, which are this Python's."""
    return re.sub(NUMBER, "0", printed) == re.sub(NUMBER, "0", shown)


def _session(block: str, run: Callable[[str], str]) -> str:
    made = ""
    for command, _ in split(block):
        print(f"$ {command}", file=sys.stderr, flush=True)
        made += f"$ {command}\n{_tidy(run(command))}"
    return made


def _tidy(output: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


def _text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
