"""Word vectors from a file, for nets that read texts as words."""

from __future__ import annotations

from pathlib import Path

from elman.config import ReadingConfig
from elman.lm import Array
from elman.text.tokenizer import Tokenizer


def vector_words(model: ReadingConfig) -> list[str]:
    """The words of the file of vectors, if there is one: all of them are known, seen in training or not."""
    if model.vectors is None:
        return []
    from elman.nets.vectors import read_words

    return read_words(Path(model.vectors))


def vector_tensors(model: ReadingConfig, words: Tokenizer) -> tuple[dict[str, Array], list[str]]:
    """The words' vectors, to be kept with a run that may be resumed without the file; and what is to be said of them."""
    if model.vectors is None:
        return {}, []
    from elman.nets.vectors import read_vectors

    found = read_vectors(Path(model.vectors), words.tokens, folds_case=True)
    return {"vectors": found.matrix}, [f"vectors for {found.found:,} of {words.vocab_size:,} words"]
