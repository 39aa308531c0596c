"""Which task a file is for, by a look at its beginning: to tell someone who gave it to another one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

SAMPLE_LINES = 1000
_SCAN = re.compile(r"IN: .* OUT: ")
_NUMBERED = re.compile(r"\d+ \S")
_CONLLU = re.compile(r"\d+(?:[-.]\d+)?\t(?:[^\t]*\t){8}[^\t]*$")
_LABEL = re.compile(r"(?:[0-9]|__label__\S+) \S")


@dataclass(frozen=True)
class TaskGuess:
    """A task and why: what the file looks like, as the end of a sentence."""

    task: str
    like: str


def guess_task(lines: Sequence[str], *, is_jsonl: bool = False) -> TaskGuess:
    """The task of a file that begins with these lines."""
    filled = [line for line in lines[:SAMPLE_LINES] if line.strip()]
    if not filled:
        return TaskGuess("lm", "plain text")
    if is_jsonl:
        return _guess_records(filled)
    if all(_SCAN.match(line) for line in filled):
        return TaskGuess("seq2seq", "commands and actions")
    words = [line for line in filled if not line.startswith("#")]
    if words and all(_CONLLU.match(line) for line in words):
        return TaskGuess("tag", "CoNLL-U")
    with_tabs = [line for line in filled if "\t" in line]
    if len(with_tabs) == len(filled) and _has_columns(lines, filled) and _repeats(filled):
        return TaskGuess("tag", "CoNLL columns: a word and its tags a line, blank lines between sentences")
    if with_tabs and all(_NUMBERED.match(line) for line in filled):
        return TaskGuess("qa", "bAbI stories: numbered lines, questions with a tab before the answer")
    if len(with_tabs) > 0.9 * len(filled):
        return _guess_table([line.split("\t") for line in with_tabs])
    if _has_columns(lines, filled):
        return TaskGuess("tag", "CoNLL columns: a word and its tags a line, blank lines between sentences")
    if all(_LABEL.match(line) for line in filled):
        return TaskGuess("classify", "a label and a text a line")
    return TaskGuess("lm", "plain text")


def _guess_records(lines: Sequence[str]) -> TaskGuess:
    try:
        record = json.loads(lines[0])
    except (ValueError, RecursionError):
        record = None
    keys = set(record) if isinstance(record, dict) else set()
    for task, needed in (
        ("seq2seq", {"source", "target"}),
        ("qa", {"context", "question", "answer"}),
        ("tag", {"tokens", "tags"}),
        ("classify", {"label", "text"}),
        ("lm", {"text"}),
        ("lm", {"tokens"}),
    ):
        if needed <= keys:
            return TaskGuess(task, f"records with {' and '.join(sorted(needed))}")
    return TaskGuess("lm", "records of an unknown kind")


def _guess_table(rows: Sequence[Sequence[str]]) -> TaskGuess:
    first = [row[0].strip() for row in rows]
    rest = [row[-1] for row in rows]
    few = max(2, len(rows) // 50)
    has_texts = len(set(rest)) > len(rows) / 2 and sum(len(text.split()) for text in rest) > 3 * len(rest)
    if len(rows) >= 20 and len(set(first)) <= few and not any(" " in label for label in first) and has_texts:
        return TaskGuess("classify", f"a label and a text a line (the labels are {', '.join(sorted(set(first))[:4])})")
    return TaskGuess("seq2seq", "a table")


def _repeats(lines: Sequence[str]) -> bool:
    """Whether the last column has few different entries, as tags are."""
    return 4 * len({line.split()[-1] for line in lines}) <= len(lines)


def _has_columns(lines: Sequence[str], filled: Sequence[str]) -> bool:
    """Whether all lines have the same few columns, and blank lines come between some of them."""
    widths = {len(line.split()) for line in filled}
    return len(filled) < len(lines[:SAMPLE_LINES]) and len(filled) > 5 and len(widths) == 1 and 2 <= widths.pop() <= 8
