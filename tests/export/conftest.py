"""The command line."""

from tests.commands import run

__all__ = ["run"]
