"""Words of a context know where they came from; an answer is found wherever it stands."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elman.tasks.qa.config import StoriesConfig
from elman.tasks.qa.passages import (
    SpanBatches,
    WrittenBatches,
    choose_kind,
    encode_marks,
    encode_passages,
    find_answer,
    mark_answer,
    place_words,
    span_text,
)
from elman.tasks.qa.stories import Question, split_sentence
from elman.text.batches import Position
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import learn_words

DATA = StoriesConfig()
TEXTS = st.lists(st.text(alphabet=" aBİ.,'\u2581-\u00a0ß1", max_size=12), max_size=3)


def test_an_answer_is_found_every_time_and_comes_back_as_it_was_written() -> None:
    context = ("Dr. O'Neil  met Ann Lee.", "ann LEE, (who slept) left.")
    question = Question(context, "Who?", "Ann Lee")
    starts, size = mark_answer(question, DATA)
    places = place_words(context, DATA)
    assert [place.word for place in places[:4]] == ["dr", ".", "o'neil", "met"]
    assert (starts, size) == ([4, 7], 2)
    assert [span_text(context, places, start, start + 1) for start in starts] == ["Ann Lee", "ann LEE"]
    assert span_text(context, places, 2, 3) == "O'Neil  met"
    assert span_text(context, places, 5, 9) == "Lee. ann LEE,"
    assert mark_answer(Question(context, "Who?", "Ann Lee"), StoriesConfig(lower_case=False))[0] == [4]
    assert mark_answer(Question(context, "Who?", "..."), DATA)[0] == []


@given(TEXTS)
def test_places_are_the_words_of_the_sentences(texts: list[str]) -> None:
    for data in (DATA, StoriesConfig(lower_case=False)):
        places = place_words(texts, data)
        assert [place.word for place in places] == [word for text in texts for word in split_sentence(text, data)]
        for place in places:
            shown = texts[place.sentence][place.begin : place.end]
            assert (shown.lower() if data.lower_case else shown) == place.word


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=3))
def test_answers_are_found_as_by_slicing(text: str, answer: str) -> None:
    slow = [i for i in range(len(text)) if text[i:].startswith(answer)]
    assert find_answer(list(answer), list(text)) == slow
    assert find_answer([], list(text)) == []


def test_only_the_last_sentences_are_read() -> None:
    data = StoriesConfig(max_sentences=1)
    assert mark_answer(Question(("a b", "c a"), "?", "a"), data)[0] == [1]


def test_how_to_answer_is_chosen_by_the_answers() -> None:
    few = [Question(("a b",), "?", answer) for answer in "xyxyxyxy"]
    marked = [Question((f"it is n{i} here",), "?", f"n{i}") for i in range(20)]
    written = [Question((f"it is n{i} here",), "?", f"it was {i}") for i in range(20)]
    assert choose_kind(few, DATA) == ("word", "there are only 2 different ones")
    assert choose_kind(marked, DATA) == ("span", "20 of 20 stand in their contexts")
    assert choose_kind(written + marked, DATA)[0] == "generated"
    assert choose_kind(marked + written[:1], DATA)[0] == "span"  # one of 21 may be missing


def test_batches_hold_question_context_and_every_place_of_the_answer() -> None:
    questions = [
        Question(("a b a",), "b?", "a"),
        Question(("c.", "b c"), "zz", "b c"),
        Question(("c",), "", "c"),
    ]
    words = learn_words(Counter("abc.?"), min_count=1, max_words=10)
    rows = encode_passages(questions, words, DATA)
    starts, sizes = encode_marks(questions, DATA)
    batches = SpanBatches(rows, starts, sizes, rows_per_step=3)
    batch = batches.rows(np.array([0, 1, 2]))
    a, b, c, stop, mark = (words.number(word) for word in "abc.?")
    assert batch.sources.tolist() == [
        [b, mark, EOS_ID, a, b, a, EOS_ID],
        [UNK_ID, EOS_ID, c, stop, b, c, EOS_ID],
        [UNK_ID, EOS_ID, c, EOS_ID, EOS_ID, EOS_ID, EOS_ID],
    ]
    assert batch.source_lengths.tolist() == [7, 7, 4]
    assert batch.starts.tolist() == [[0, 2], [2, -1], [0, -1]]
    assert batch.sizes.tolist() == [1, 2, 1]
    kept = rows.select(np.array([False, True, True]))
    assert kept.sources(np.array([1]))[0].tolist() == [[UNK_ID, EOS_ID, c, EOS_ID]]
    answers = np.array([a, EOS_ID, b, c, EOS_ID, c, EOS_ID])
    written = WrittenBatches(rows, answers, rows_per_step=2)
    assert (written.tokens_per_epoch, written.tokens_per_step) == (7, 5)
    pair = written.rows(np.array([1, 2]))
    assert pair.targets.tolist() == [[b, c, EOS_ID], [c, EOS_ID, EOS_ID]]
    position, seen = Position(), 0
    while position.epoch == 0:
        one, position = batches.batch(position)
        seen += len(one.sizes)
    assert seen == 3
