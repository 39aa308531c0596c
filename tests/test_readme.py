"""The README speaks of commands that exist: every verb and flag in it is one of the program's."""

import re
import shlex
from pathlib import Path

import pytest

from elman.cli.app import run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:\$ )?(?:echo .*\| )?(elman .+?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_every_verb_and_flag_of_the_readme_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, verb, *words = shlex.split(command)
    assert run([verb, "--help"]) == 0, verb
    known = capsys.readouterr().out
    for flag in (word for word in words if word.startswith("--")):
        assert re.search(rf"{re.escape(flag)}\b", known), f"elman {verb} has no {flag}"


def test_the_two_commands_of_the_readme_are_targets_of_make() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
