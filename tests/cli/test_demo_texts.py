"""`elman demo --texts`: texts for every task, from what is on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from elman.cli.demo_labels import CHAPTER_SENTENCES, code_tags, write_chapters, write_code_words
from tests.commands import Run


def test_a_word_between_quotation_marks_is_code() -> None:
    found = code_tags('If "key: value" is given, "len()" counts.')
    assert found == [
        ("If", "O"),
        ("key:", "B-CODE"),
        ("value", "I-CODE"),
        ("is", "O"),
        ("given", "O"),
        (",", "O"),
        ("len()", "B-CODE"),
        ("counts", "O"),
        (".", "O"),
    ]


def test_sentences_have_their_chapter_and_stand_in_one_part_only(tmp_path: Path) -> None:
    parts = {name: path.read_text().splitlines() for name, path in write_chapters(tmp_path).items()}
    rows = [row for part in parts.values() for row in part]
    assert len(rows) == len(set(rows)) > 2 * CHAPTER_SENTENCES
    chapters = {row.split("\t")[0] for row in rows}
    assert {"types", "compound"} <= chapters
    assert {row.split("\t")[0] for row in parts["valid"]} == chapters
    assert all(row.count("\t") == 1 for row in rows)


def test_words_have_one_tag_each_and_sentences_a_blank_line_between(tmp_path: Path) -> None:
    lines = write_code_words(tmp_path)["train"].read_text().splitlines()
    tags = [line.split("\t")[1] for line in lines if line]
    assert set(tags) == {"O", "B-CODE", "I-CODE"}
    assert '"' not in {line.split("\t")[0] for line in lines if line}
    assert 100 < lines.count("") < len(lines) / 5


@pytest.mark.parametrize("task", ["lm", "classify", "tag", "seq2seq"])
def test_the_texts_of_the_demo_are_data_of_a_task(task: str, run: Run, tmp_path: Path) -> None:
    done = run("demo", "--texts", "--json", "--out", tmp_path)
    assert done.code == 0
    names = {Path(name).name: num_lines for name, num_lines in done.json["texts"].items()}
    data = {"lm": "train.txt", "classify": "chapters.train.tsv", "tag": "code.train.txt", "seq2seq": "names.train.tsv"}[
        task
    ]
    assert names[data] == len((tmp_path / data).read_text().splitlines())
    few = tmp_path / "few"
    few.write_text("\n".join((tmp_path / data).read_text().split("\n")[:400]) + "\n")
    settings = ("--model", "bigram") if task == "lm" else ("--set", "train.steps=1", "--set", "model.hidden=8")
    assert run("train", task, few, *settings, "--out", tmp_path / "model").code == 0
