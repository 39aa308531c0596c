"""Errors for users: what, where, what to do, and the exit code. Bugs stay ordinary exceptions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# Flags that are switches, or have another name, for whoever calls from Python
PYTHON_WORDS = {
    "reset-lines": "reset_lines=True",
    "stream": "reset_lines=False",
    "no-verify": "verify=False",
    "set": "settings={...}",
    "target": "targets=...",
    "valid-target": "valid_targets=...",
}
PYTHON_WORDS |= {name: f"{name.replace('-', '_')}=True" for name in ("overwrite", "dynamic", "truncate", "alignments")}
COMMAND = re.compile(r"`[^`]*`|elman [a-z]+ [^,;:]*")  # stays as it is
SETTING = re.compile(r"--set ([a-z]+\.\w+)=(\w+)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?: ([0-9]\w*|[A-Z]+\b|none|space|word|char|byte|mkn|cpu)\b)?")


class ElmanError(Exception):
    """A failure that the user can fix: printed as `error: what` and `hint: remedy`, never as a traceback."""

    exit_code = 1
    code = "failed"  # the cause, a key of core.causes.CAUSES; where an error gives none, that of its class

    def __init__(self, what: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """What, and what to do, in the words of Python: what a traceback shows. The command line prints the two itself."""
        return in_python(self.what) + ("" if self.hint is None else f"\nhint: {in_python(self.hint)}")


class UsageError(ElmanError):
    """The command or call itself is wrong: an unknown key, a setting that cannot apply."""

    exit_code = 2
    code = "wrong-usage"


class DataError(ElmanError):
    """The input exists but is invalid: broken UTF-8, a malformed line, a corrupt model."""

    exit_code = 65
    code = "bad-data"


class MissingError(ElmanError):
    """The input does not exist, or cannot be read."""

    exit_code = 66
    code = "cannot-read"


class WriteError(ElmanError):
    """The output cannot be written: no space, no permission, a directory that already holds a model."""

    exit_code = 74
    code = "cannot-write"


class FullDiskError(WriteError):
    """There is no space left: whatever is written next will fail too."""

    code = "disk-full"


class BusyError(ElmanError):
    """Another process is writing there; trying again later may succeed."""

    exit_code = 75
    code = "busy"


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The name that was probably meant, whatever the case of its letters; None if nothing is like it.

    It is the one that begins like this, as bpe:8000 does with bpe, or else the one that differs least.
    """
    by_lower_case = {one.lower(): one for one in reversed(list(names))}
    begun = [one for one in by_lower_case if len(name) > 1 and one.startswith(name.lower())]
    close = begun if len(begun) == 1 else difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[close[0]] if close else None


def no_such(kind: str, name: object, names: Iterable[str]) -> UsageError:
    """An error for a name that is none, with the nearest one or all of them: `there is no model 'LSTM'`."""
    names = list(names)
    close = nearest(str(name), names)
    hint = f"did you mean {close}?" if close else f"{kind}s: {', '.join(names)}"
    return UsageError(f"there is no {kind} {name!r}", code="unknown-name", hint=hint)


def in_python(text: str) -> str:
    """A message for whoever calls from Python, where flags are named parameters."""
    kept = COMMAND.findall(text)
    parts = [_flags_in_python(part) for part in COMMAND.split(text)]
    return "".join(part + command for part, command in zip(parts, [*kept, ""], strict=True))


def _flags_in_python(text: str) -> str:
    text = SETTING.sub(r'settings={"\1": "\2"}', text)

    def keyword(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if value is not None:
            return f"{name.replace('-', '_')}=" + (value if value.isdigit() else f'"{value}"')
        return PYTHON_WORDS.get(name, f"{name.replace('-', '_')}=...")

    return FLAG.sub(keyword, text)
