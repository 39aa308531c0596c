"""docs/cli.md, docs/errors.md and docs/settings.md are the program's own words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["cli", "errors", "settings"])
def test_the_reference_is_up_to_date(page: str) -> None:
    spec = importlib.util.spec_from_file_location(f"make_{page}", DOCS / f"make_{page}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.render() == (DOCS / f"{page}.md").read_text(encoding="utf-8"), "run `make docs`"
