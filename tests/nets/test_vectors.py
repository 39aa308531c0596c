"""Word vectors as word2vec and GloVe write them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elman.core.errors import DataError, ElmanError, MissingError
from elman.text.vectors import read_vectors

WORDS = ["<unk>", "</s>", "the", "New York", "café"]
GLOVE = "the 1 2.5 -3e-2\nother 9 9 9\nNew York 4 5 6\ncafé 7 8 9\n"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def check(path: Path) -> None:
    vectors = read_vectors(path, WORDS)
    assert vectors.found == 3
    assert vectors.matrix.dtype == np.float32
    assert np.isnan(vectors.matrix[:2]).all()
    expected = np.array([[1, 2.5, -0.03], [4, 5, 6], [7, 8, 9]], dtype=np.float32)
    np.testing.assert_array_equal(vectors.matrix[2:], expected)


def test_glove_text_is_read_words_with_spaces_too(tmp_path: Path) -> None:
    check(write(tmp_path / "glove.txt", GLOVE))


def test_the_first_line_of_word2vec_says_how_much_there_is(tmp_path: Path) -> None:
    check(write(tmp_path / "word2vec.txt", "4 3\n" + GLOVE))


def test_word2vec_ends_lines_with_a_space(tmp_path: Path) -> None:
    check(write(tmp_path / "word2vec.txt", "4 3\n" + GLOVE.replace("\n", " \n")))


def test_gzip_is_told_by_its_content_not_its_name(tmp_path: Path) -> None:
    check(write(tmp_path / "vectors.txt", gzip.compress(GLOVE.encode())))


def test_windows_line_ends_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    check(write(tmp_path / "vectors.txt", GLOVE.replace("\n", "\r\n") + "\r\n\n"))


def test_of_a_word_that_comes_twice_the_first_counts(tmp_path: Path) -> None:
    check(write(tmp_path / "vectors.txt", GLOVE + "the 0 0 0\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2 3\nof 1 2\n", "line 2 of .* has 2 numbers, expected 3"),
        ("4 3\nthe 1 2\n", "line 2 of .* has 2 numbers, expected 3"),
        ("the 1 2 x\n", "line 1 of .* no number"),
        ("the 1 2 nan\n", "line 1 of .* not finite"),
        ("the 1 2 1e99\n", "line 1 of .* not finite"),
        ("The 1 2 3\n", "no vector for any of the 5 words"),
        ("", "no vector for any of the 5 words"),
        ("the\n", "does not hold word vectors"),
        ("3 0\nthe\n", "does not hold word vectors"),
        (b"\x1f\x8b broken", "broken gzip"),
        (gzip.compress(GLOVE.encode() * 1000)[:-30], "broken gzip"),
    ],
)
def test_what_is_wrong_is_said_and_where(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_vectors(write(tmp_path / "vectors.txt", text), WORDS)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="cannot read the word vectors"):
        read_vectors(tmp_path / "none.txt", WORDS)
    with pytest.raises(MissingError):
        read_vectors(tmp_path, WORDS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(), st.text(alphabet="the 0123456789.-e\n\r\t ").map(str.encode)))
def test_any_bytes_are_vectors_or_an_error_of_the_users(tmp_path: Path, content: bytes) -> None:
    try:
        vectors = read_vectors(write(tmp_path / "vectors.txt", content), ["the", "e"])
    except ElmanError:
        return
    assert vectors.matrix.shape[0] == 2
    assert np.isfinite(vectors.matrix).any()
