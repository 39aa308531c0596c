"""Word vectors: those of a file, and those that a net has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elman.core.arrays import Array
from elman.nets.config import NetConfig, TextEncoderConfig
from elman.tasks.base import Report
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID


def vector_words(model: TextEncoderConfig) -> list[str]:
    """The words of the file of vectors, if there is one: all of them are known, seen in training or not."""
    if model.vectors is None:
        return []
    from elman.text.vectors import read_words

    return read_words(Path(model.vectors))


def vector_tensors(model: TextEncoderConfig, words: Tokenizer) -> tuple[dict[str, Array], list[str]]:
    """The words' vectors, to be kept with a run that may be resumed without the file; and what is to be said of them."""
    said: list[str] = []
    vectors = read_word_vectors(model, words, folds_case=True, report=said.append)
    return {} if vectors is None else {"vectors": vectors}, said


def read_word_vectors(
    model: NetConfig | TextEncoderConfig, words: Tokenizer, *, folds_case: bool = False, report: Report
) -> Array | None:
    """The words' vectors, if the settings name a file of them. -> (V, E)"""
    if model.vectors is None:
        return None
    from elman.text.vectors import read_vectors

    found = read_vectors(Path(model.vectors), words.tokens, folds_case=folds_case)
    report(f"vectors for {found.found:,} of {words.vocab_size:,} words")
    return found.matrix


def written_words(tokenizer: Tokenizer, vectors: Array) -> tuple[Sequence[str], Array]:
    """The words of a vocabulary as they are written, the most frequent first, and their vectors. -> (V, E)

    Of two that are written alike (with a space before, and without) the more frequent counts.
    """
    rows: dict[str, int] = {}
    for row, symbol in list(enumerate(tokenizer.tokens))[EOS_ID + 1 :]:
        written = symbol if tokenizer.units == "space" else tokenizer.decode([row]).strip() or symbol
        rows.setdefault(written, row)
    return list(rows), vectors[list(rows.values())]
