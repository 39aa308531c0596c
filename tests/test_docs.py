"""The walk through the house is true to the code: every file and name on it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import elman

ROOT = Path(__file__).parents[1]
PACKAGE = Path(elman.__file__).parent
PAGE = (ROOT / "docs" / "overview.md").read_text()
SOURCES = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))


def test_every_file_on_the_walk_is_there() -> None:
    walk = PAGE.split("## The map")[0] + PAGE.split("## Where do I put")[1]
    files = {name for name in re.findall(r"`([\w/]+\.py)`", walk) if "/" in name or (PACKAGE / name).exists()}
    assert len(files) > 40
    missing = [name for name in sorted(files) if not any((base / name).exists() for base in (PACKAGE, ROOT))]
    assert not missing


def test_every_name_on_the_walk_is_defined() -> None:
    names = set(re.findall(r"`([A-Z]\w+)`", PAGE)) | set(re.findall(r"`(\w+)` in `", PAGE))
    names |= {part for dotted in re.findall(r"`([A-Z]\w+\.\w+)`", PAGE) for part in dotted.split(".")}
    names -= {"DIR", "FILE", "NAME_net", "py"}
    assert len(names) > 20
    missing = [
        name for name in sorted(names) if not re.search(rf"(class|def) {name}\b|^{name}\b.* = ", SOURCES, re.MULTILINE)
    ]
    assert not missing


@pytest.mark.parametrize("folder", ["core", "text", "lm", "counts", "nets", "training", "tasks", "cli", "testing"])
def test_every_room_is_on_the_map(folder: str) -> None:
    assert re.search(rf"^  {folder}/", PAGE, re.MULTILINE)
    assert (PACKAGE / folder).is_dir()
