"""The command line for the tests of tasks, and a text to train on."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Nets in tests are tiny: a second thread would only wait for the first."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
