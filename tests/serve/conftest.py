"""Small models, served once for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browsing import browser
from tests.commands import corpus, model, stream_model
from tests.serve.running import Running, running

__all__ = ["browser", "corpus", "model", "stream_model"]


@pytest.fixture(scope="module")
def server(model: Path, stream_model: Path) -> Iterator[Running]:
    """`model`, an order-3 model of lines, and `stream`, a bigram of characters."""
    with running([model, stream_model]) as found:
        yield found
