"""Questions are read from every format; a story grows with its lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elman.core.errors import DataError
from elman.tasks.qa.config import StoriesConfig
from elman.tasks.qa.stories import (
    Question,
    StoryBatches,
    cut_sentences,
    encode_stories,
    question_from_json,
    question_to_json,
    read_stories,
)
from elman.text.batches import Position
from elman.text.units.word_list import learn_words

BABI = """\
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary went to the garden.
5 Where is Mary? \tgarden\t4
1 Bill is a cat.
2 What is Bill?\tcat\t1
"""


def test_a_story_grows_and_line_one_begins_another(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(BABI)
    questions, _ = read_stories([tmp_path / "a.txt"], StoriesConfig())
    told = ("Mary moved to the bathroom.", "John went to the hallway.")
    assert questions == [
        Question(told, "Where is Mary?", "bathroom"),
        Question((*told, "Mary went to the garden."), "Where is Mary?", "garden"),
        Question(("Bill is a cat.",), "What is Bill?", "cat"),
    ]
    assert questions[2].place == f"line 7 of {tmp_path / 'a.txt'}"
    packed = json.dumps([question_to_json(question) for question in questions])
    assert [question_from_json(row) for row in json.loads(packed)] == questions


def test_records_and_tables_are_questions_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"context": "A b. C d!", "question": "E?", "answer": "f"}\n{"context": ["x"], "question": "y", "answer": "z"}\n'
    )
    found, _ = read_stories([tmp_path / "a.jsonl"], StoriesConfig())
    assert found == [Question(("A b.", "C d!"), "E?", "f"), Question(("x",), "y", "z")]
    (tmp_path / "a.tsv").write_text("A b. C d!\tE?\tf\n")
    assert read_stories([tmp_path / "a.tsv"], StoriesConfig())[0] == found[:1]
    assert cut_sentences("Dr. No came.  So?\nYes") == ("Dr.", "No came.", "So?", "Yes")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1 A b.\n2 Where?\n", "line 2 of .* has a question without an answer"),
        ("a.txt", f"{'9' * 5_000} A b.\n", "line 1 of .* has no context, question and answer"),
        ("a.txt", "just text\n", "line 1 of .* has no context, question and answer"),
        ("a.jsonl", '{"context": "a", "question": "b"}\n', "line 1 of .* has no `answer`"),
        ("a.jsonl", '{"question": "b", "answer": "c"}\n', "line 1 of .* has no `context`"),
        ("a.txt", "1 A b.\n", "there are no questions"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_stories([tmp_path / name], StoriesConfig())


def test_a_sentence_that_no_net_could_read_is_refused_or_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("w " * 10_001 + "\twhat?\tw\nAnn is here.\tWho?\tAnn\n")
    with pytest.raises(DataError, match=r"line 1 of .* has a sentence of 10,001 words, more than 10,000"):
        read_stories([tmp_path / "a.tsv"], StoriesConfig())
    questions, num_dropped = read_stories([tmp_path / "a.tsv"], StoriesConfig(skip_bad=True))
    assert [question.answer for question in questions] == ["Ann"] and num_dropped == 1


def test_batches_hold_the_sentences_of_their_questions_each_once() -> None:
    from collections import Counter

    sentences = ["a a.", "b.", "c c c."]
    rng = np.random.default_rng(0)
    questions = [
        Question(tuple(sentences[i] for i in rng.integers(3, size=rng.integers(0, 5))), "b.", str(row))
        for row in range(20)
    ]
    words = learn_words(Counter(["a", "b", "c", "."]), min_count=1, max_words=10)
    (rows,), table = encode_stories([questions], words, StoriesConfig())
    batches = StoryBatches(rows, table, np.arange(20), rows_per_step=6, seed=1)
    position, seen = Position(), list[int]()
    while position.epoch == 0:
        batch, position = batches.batch(position)
        stories = batch.stories
        assert len(stories.sentences) <= 4
        for row, answer in enumerate(batch.answers.tolist()):
            numbers = stories.contexts[row, : stories.context_lengths[row]]
            texts = [
                "".join(words.tokenizer.tokens[word] for word in stories.sentences[n, : stories.sentence_lengths[n]])
                for n in (*numbers, stories.questions[row])
            ]
            assert texts == [*(text.replace(" ", "") for text in questions[answer].context), "b."]
        seen += batch.answers.tolist()
    assert sorted(seen) == list(range(20))
