"""The command line for the tests of tasks, and a text to train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import corpus, cut_short, model, run, stream_model
from tests.tasks.texts import write_text

__all__ = ["corpus", "cut_short", "model", "run", "stream_model"]


@pytest.fixture(scope="session", name="text")
def fixture_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines in which every word is between the same two."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    write_text(path)
    return path
