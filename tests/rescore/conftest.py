"""The command line, and a model to rank lists by."""

from __future__ import annotations

from tests.commands import corpus, model, run

__all__ = ["corpus", "model", "run"]
