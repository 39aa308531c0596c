"""The code of docs/own-models.md is run as it stands, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import UsageError
from elman.tasks.lm import families
from tests.commands import LINES

PAGE = (Path(__file__).parents[1] / "docs" / "own-models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page has defined at its end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(families, "FAMILIES", families.FAMILIES)  # as it was, afterwards
    for name, times in (("corpus", 30), ("valid", 3), ("test", 2)):
        Path(f"{name}.txt").write_text("\n".join(LINES * times) + "\n")
    found: dict[str, Any] = {"__name__": "own"}
    for block in BLOCKS:
        exec(compile(block, "own-models.md", "exec", dont_inherit=True), found)
    return found


def test_the_class_has_about_thirty_lines() -> None:
    (code,) = [block for block in BLOCKS if "class EchoModel" in block]
    lines = [line for line in code.partition("class EchoModel")[2].splitlines() if line.strip()]
    assert len(lines) <= 32


def test_an_own_model_is_evaluated_searched_mixed_saved_and_loaded(names: dict[str, Any]) -> None:
    echo, mixture = names["echo"], elman.load("my-mixture")
    assert isinstance(echo.lm, names["EchoModel"]) and echo.lm.echo == 0.2
    assert [type(member).__name__ for member in mixture.lm.members] == ["EchoModel", "NgramModel", "CacheModel"]
    alone = [elman.load(place).evaluate("test.txt")["perplexity"] for place in ("my-echo", "my-mkn")]
    assert mixture.evaluate("test.txt")["perplexity"] < min(alone) * 1.001
    assert elman.load("my-echo").evaluate("test.txt") == echo.evaluate("test.txt")
    assert len(names["best"][0].tokens) > 0


def test_a_name_that_is_taken_is_refused(names: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="there is a model 'echo' already"):
        families.add_family(names["EchoFamily"]())
