"""Read word vectors as word2vec and GloVe write them: a line for each word, the word first, then its numbers.

word2vec begins with a line of two integers, how many words and how many numbers. A file may be gzipped. Numpy only.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, MissingError


@dataclass(frozen=True)
class Vectors:
    """The vectors of a vocabulary's words."""

    matrix: Array  # (V, E) float32; NaN for words the file does not have
    found: int


def read_vectors(path: Path, words: Sequence[str], *, folds_case: bool = False) -> Vectors:
    """The vectors of these words, in their order. Where the file has a word twice, the first counts.

    `folds_case`: a word that is not in the file has the vector of its lower case, if that is.
    """
    names = [word.encode() for word in words]
    lower = [word.lower().encode() for word in words] if folds_case else names
    wanted = {*names, *lower}
    vectors: dict[bytes, Array] = {}
    width = 0
    for row in _rows(path):
        width = row.width
        if row.word in wanted and row.word not in vectors:
            vectors[row.word] = _numbers(path, row.number, row.rest.split(b" "))
    matrix = np.full((len(words), width), np.nan, dtype=np.float32)
    found = 0
    for place, name in enumerate(names):
        vector = vectors.get(name, vectors.get(lower[place]))
        if vector is not None:
            matrix[place] = vector
            found += 1
    if found == 0:
        raise DataError(
            f"{path} has no vector for any of the {len(words)} words of the vocabulary",
            code="no-known-word",
            hint="compare its first words with those of your text: case and units have to agree",
        )
    return Vectors(matrix, found)


def read_all_vectors(path: Path) -> tuple[list[str], Array]:
    """Every word of a file and its vector, in the file's order; where it has a word twice, the first counts. -> (V, E)"""
    vectors: dict[str, Array] = {}
    for row in _rows(path):
        word = row.word.decode(errors="replace")
        if word not in vectors:
            vectors[word] = _numbers(path, row.number, row.rest.split(b" "))
    if not vectors:
        raise DataError(f"{path} has no words", code="malformed-vectors")
    return list(vectors), np.stack(list(vectors.values()))


def read_words(path: Path) -> list[str]:
    """The words that have vectors, as the file has them: usually the most frequent first."""
    return [row.word.decode(errors="replace") for row in _rows(path)]


@dataclass(frozen=True)
class _Row:
    word: bytes
    rest: bytes
    number: int  # of the line
    width: int  # how many numbers every word has


def _rows(path: Path) -> Iterator[_Row]:
    width = 0
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                width, is_header = _first_line(path, line)
                if is_header:
                    continue
            line = line.rstrip()
            spaces = line.count(b" ")
            if spaces < width:
                if not line:
                    continue
                raise DataError(
                    f"line {number} of {path} has {spaces} numbers, expected {width}",
                    code="malformed-vectors",
                    hint="each line is a word and its numbers, with single spaces between",
                )
            # Words with spaces in them (GloVe has some) are told by counting from the right, which is slow.
            word = line[: line.index(b" ")] if spaces == width else line.rsplit(b" ", width)[0]
            yield _Row(word, line[len(word) + 1 :], number, width)


def _first_line(path: Path, line: bytes) -> tuple[int, bool]:
    """How many numbers a word has, and whether the line only said so."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        width, is_header = int(fields[1]), True
    else:
        width, is_header = len(line.rstrip().split(b" ")) - 1, False
    if not 1 <= width <= 100_000:
        raise DataError(
            f"{path} does not hold word vectors: its first line has {width} numbers",
            code="malformed-vectors",
            hint="word2vec and GloVe text files are read, not binary ones",
        )
    return width, is_header


def _numbers(path: Path, number: int, fields: list[bytes]) -> Array:
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(fields, dtype=np.float32)
    except ValueError:
        raise DataError(
            f"line {number} of {path} has something that is no number after the word", code="malformed-vectors"
        ) from None
    if not np.isfinite(numbers).all():
        raise DataError(f"line {number} of {path} has a number that is not finite", code="malformed-vectors")
    return numbers


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_gzip else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a broken gzip file: {error}", code="broken-archive") from None
    except OSError as error:
        raise MissingError(f"cannot read the word vectors {path}: {error.strerror or error}") from None
