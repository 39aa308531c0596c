"""Errors for users: what, where, what to do, and the exit code. Bugs stay ordinary exceptions."""

from __future__ import annotations


class ElmanError(Exception):
    """A failure that the user can fix: printed as `error: what` and `hint: remedy`, never as a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class UsageError(ElmanError):
    """The command or call itself is wrong: an unknown key, a setting that cannot apply."""

    exit_code = 2


class DataError(ElmanError):
    """The input exists but is invalid: broken UTF-8, a malformed line, a corrupt model."""

    exit_code = 65


class MissingError(ElmanError):
    """The input does not exist, or cannot be read."""

    exit_code = 66


class WriteError(ElmanError):
    """The output cannot be written: no space, no permission, a directory that already holds a model."""

    exit_code = 74


class BusyError(ElmanError):
    """Another process is writing there; trying again later may succeed."""

    exit_code = 75
