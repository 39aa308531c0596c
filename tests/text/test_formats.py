"""Whose data a file is, by its first lines."""

from __future__ import annotations

import pytest

from elman.text.formats import guess_task


@pytest.mark.parametrize(
    ("lines", "is_jsonl", "task"),
    [
        (["EU NNP B-ORG", "rejects VBZ O", "", "Peter NNP B-PER", "went VBD O", ". . O", "", "x y z"], False, "tag"),
        (["3 The film is fine .", "0 It is not ."], False, "classify"),
        (['{"text": "a", "label": "b"}'], True, "classify"),
        (['{"tokens": ["a"], "tags": ["b"]}'], True, "tag"),
        (['{"context": "a", "question": "b", "answer": "c"}'], True, "qa"),
        (['{"tokens": ["a"]}'], True, "lm"),
        (["a\tb", "c\td"], False, "seq2seq"),
        (["the\tD", "cat\tN", "sat\tV", ""] * 9, False, "tag"),
        (["one\tun", "two\tdeux", "three\ttrois", "", "four\tquatre", "five\tcinq", "six\tsix"], False, "seq2seq"),
        ([], False, "lm"),
    ],
)
def test_tasks_are_known_by_their_files(lines: list[str], is_jsonl: bool, task: str) -> None:
    assert guess_task(lines, is_jsonl=is_jsonl).task == task
