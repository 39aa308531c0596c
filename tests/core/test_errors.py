"""Errors say what, where, and what to do, in the words of whoever reads them."""

from __future__ import annotations

import pytest

from elman.core.errors import DataError, UsageError, in_python, nearest, no_such


def test_an_error_shows_its_hint() -> None:
    assert str(DataError("line 3 is bad", hint="look for a stray tab")) == "line 3 is bad\nhint: look for a stray tab"
    assert str(UsageError("nothing to say")) == "nothing to say"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("leave out --units", "leave out units=..."),
        ("--overwrite replaces it", "overwrite=True replaces it"),
        ("train with --reset-lines", "train with reset_lines=True"),
        ("--set data.skip_bad=true drops such lines", 'settings={"data.skip_bad": "true"} drops such lines'),
        ("--threads 1 may be as fast", "threads=1 may be as fast"),
        ("--units byte accepts them", 'units="byte" accepts them'),
        ("--memory 4M is too little to count in", 'memory="4M" is too little to count in'),
        (
            "elman resume d goes on with it, --overwrite begins anew",
            "elman resume d goes on with it, overwrite=True begins anew",
        ),
        ("`elman train bilm TEXT --units word` makes one", "`elman train bilm TEXT --units word` makes one"),
        ("a dash - or two -- are no flag", "a dash - or two -- are no flag"),
    ],
)
def test_whoever_calls_from_python_is_not_told_of_flags(flags: str, words: str) -> None:
    assert in_python(flags) == words
    assert str(UsageError("no", hint=flags)) == f"no\nhint: {words}"


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert nearest("LSTM", ["mkn", "lstm"]) == "lstm"
    assert nearest("lmst", ["mkn", "lstm"]) == "lstm"
    assert nearest("zebra", ["mkn", "lstm"]) is None
    assert no_such("task", "TAG", ["lm", "tag"]).hint == "did you mean tag?"
    assert no_such("task", "zebra", ["lm", "tag"]).hint == "tasks: lm, tag"
