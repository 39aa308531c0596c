"""What the tests of Spark share."""

from __future__ import annotations

from tests.commands import run

__all__ = ["run"]
