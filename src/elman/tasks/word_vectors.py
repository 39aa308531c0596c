"""Word vectors from a file."""

from __future__ import annotations

from pathlib import Path

from elman.core.arrays import Array
from elman.nets.config import NetConfig, TextEncoderConfig
from elman.tasks.base import Report
from elman.text.units.tokenizer import Tokenizer


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
