"""Words and their vectors, for the kinds that compare them: looking them up, and what is near. Numpy only.

V words · E width of a vector
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, MissingError, UsageError, nearest
from elman.explain.explanation import LONGEST_TOKEN, shorten
from elman.explain.kind import OF_WORDS, Explainable, name_of
from elman.text.vectors import read_all_vectors

BLOCK = 50_000_000  # numbers that are compared at once
LISTED_UNKNOWN = 20  # words that a note names


class VectorFile:
    """A file of word vectors, as far as kinds of explanations need a model."""

    def __init__(self, path: Path) -> None:
        self.directory: Path | None = path
        self._path = path

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """Those of words alone."""
        return OF_WORDS

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Words and vectors of a text file as word2vec and GloVe write it, or of arrays `words` and `vectors` in a .npz."""
        if self._path.suffix != ".npz":
            return read_all_vectors(self._path)
        try:
            with np.load(self._path) as arrays:
                words, vectors = [str(word) for word in arrays["words"]], np.asarray(arrays["vectors"])
        except KeyError:
            raise DataError(f"{self._path} has no arrays words and vectors", code="malformed-vectors") from None
        except (ValueError, EOFError) as error:
            raise DataError(f"{self._path} is no .npz file of arrays: {error}", code="malformed-vectors") from None
        except OSError as error:
            raise MissingError(f"cannot read the word vectors {self._path}: {error.strerror or error}") from None
        if vectors.ndim != 2 or len(words) != len(vectors) or not np.isfinite(vectors).all():
            raise DataError(
                f"{self._path} has {len(words)} words and vectors of shape {vectors.shape}", code="malformed-vectors"
            )
        return words, vectors


@dataclass(frozen=True)
class Words:
    """The words of a model or a file, the most frequent first, and their vectors."""

    name: str
    names: Sequence[str]
    vectors: Array  # (V, E)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each word is; of those that differ in case alone, the lower-cased name is the most frequent's."""
        found = {name: place for place, name in reversed(list(enumerate(self.names)))}
        for place, name in enumerate(self.names):
            found.setdefault(name.lower(), place)
        return found

    @cached_property
    def directions(self) -> Array:
        """The vectors with length 1; those without a length stay 0. -> (V, E)"""
        lengths = np.linalg.norm(self.vectors.astype(np.float64), axis=1, keepdims=True)
        return np.asarray(self.vectors / np.where(lengths > 0, lengths, 1))

    def find(self, word: str) -> int | None:
        """The place of a word as it is written, or else in lower case; None if it is unknown."""
        return self.places.get(word, self.places.get(word.lower()))

    def require(self, word: str) -> int:
        """The place of a word; an error if it is unknown."""
        place = self.find(word)
        if place is None:
            close = nearest(word, self.names, cutoff=0.7)
            hint = f"did you mean {close}?" if close else f"its words begin with {', '.join(self.names[:5])}"
            word = shorten(word, LONGEST_TOKEN)
            raise UsageError(
                f"{word!r} is not among the {len(self.names):,} words of {self.name}", code="unknown-word", hint=hint
            )
        return place

    def cosines(self, direction: Array) -> Array:
        """The cosine of the angle between a vector (E,) and every word. -> (V,)"""
        length = float(np.linalg.norm(direction))
        return np.asarray(self.directions @ (direction / length if length else direction))

    def nearest(self, direction: Array, count: int, *, without: Sequence[int] = ()) -> list[tuple[str, float]]:
        """The words whose vectors point most in a direction, and their cosines."""
        cosines = self.cosines(direction)
        cosines[list(without)] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(count, len(cosines) - len(set(without)))]
        return [(self.names[place], round(float(cosines[place]), 4)) for place in best.tolist()]


def words_of(model: Explainable) -> Words:
    """The words of a model or a vector file."""
    names, vectors = model.word_vectors()
    if not len(names) or not vectors.shape[1]:
        raise UsageError(f"{name_of(model)} has no word vectors", code="not-for-this-model")
    return Words(name_of(model), names, vectors)


def words_in(texts: Sequence[str], *, most: int) -> list[str]:
    """The words of texts, each once; no more of them than can be shown."""
    found = list(dict.fromkeys(word for text in texts for word in text.split()))
    if len(found) > most:
        raise UsageError(f"{len(found):,} words are too many", code="bad-value", hint=f"give at most {most:,}")
    return found


def unknown_words(unknown: Sequence[str], name: str) -> str:
    """A note of words that a model does not know."""
    listed = ", ".join(shorten(word, LONGEST_TOKEN) for word in unknown[:LISTED_UNKNOWN])
    more = f" and {len(unknown) - LISTED_UNKNOWN:,} more" if len(unknown) > LISTED_UNKNOWN else ""
    return f"unknown to {name}: {listed}{more}"


def read_lines(path: Path) -> list[str]:
    """The lines of a file of questions or pairs."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8", code="bad-utf8") from None
    except OSError as error:
        raise MissingError(f"cannot read {path}: {error.strerror or error}") from None
