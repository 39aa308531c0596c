"""The command line for tests of explanations."""

from tests.commands import run

__all__ = ["run"]
