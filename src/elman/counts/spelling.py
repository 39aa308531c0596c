"""How words are spelled: what an unknown word costs beside its `<unk>`, so that bits per byte pay for every byte.

An n-gram model of bytes that reads each word alone, from its start to its end. Any string of bytes has a probability,
and those of all strings sum to at most one; so -log p(<unk>) - log p(spelling) is a code length of the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.tensors import DAMAGED, tensor_buffers
from elman.counts.counting import count_ngrams
from elman.counts.ngram import NgramModel
from elman.counts.scratch import Scratch
from elman.counts.smoothing import fit_smoothed
from elman.lm.evaluate import score_joined
from elman.text.units.letters import SPACE_MARK
from elman.text.units.vocabulary import EOS_ID

FILE = "spelling.safetensors"
ORDER = 5  # bytes of an n-gram
FIRST_BYTE = EOS_ID + 1  # the id of byte 0
VOCAB_SIZE = FIRST_BYTE + 256


class SpellingModel:
    """p(the bytes of a word | it is unknown)."""

    def __init__(self, ngrams: NgramModel) -> None:
        self._ngrams = ngrams

    @classmethod
    def fit(cls, words: Sequence[str]) -> SpellingModel:
        """Learn from words like those that will be unknown: Witten-Bell, each word as often as it is given."""
        ids, _ = _encode(words)
        with Scratch(threads=1) as scratch:
            ngrams = fit_smoothed(
                ids,
                lambda part: count_ngrams(part, order=ORDER, vocab_size=VOCAB_SIZE, reset_lines=True, scratch=scratch),
                smoothing="witten-bell",
                alpha=None,
                prune=(),
                reset_lines=True,
                heldout_ids=None,
                scratch=scratch,
                report=lambda sentence: None,
            )
        assert isinstance(ngrams, NgramModel)
        return cls(ngrams)

    def nats(self, words: Sequence[str]) -> Array:
        """-log p of each word's spelling, its end included. -> (N,)"""
        numbers: dict[str, int] = {}
        places = [numbers.setdefault(word, len(numbers)) for word in words]
        found: Array = score_joined(self._ngrams, *_encode(numbers)).nats[places]
        return found

    def total_nats(self, counts: Mapping[str, int]) -> float:
        """-log p of all spellings of a text, by how often each word is there."""
        return float(self.nats(list(counts)) @ np.fromiter(counts.values(), dtype=np.float64, count=len(counts)))

    def files(self) -> dict[str, bytes]:
        """What to store, by file name."""
        return {FILE: b"".join(tensor_buffers(self._ngrams.tensors()))}

    @classmethod
    def from_files(cls, read: Callable[[str], bytes]) -> SpellingModel:
        """The model that was stored. `read` gives the content of a file by its name."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors: Mapping[str, Array] = load(read(FILE))
        except SafetensorError as error:
            raise DataError(
                f"{FILE} of the model is no safetensors file: {error}", code="damaged-model", hint=DAMAGED
            ) from None
        return cls(NgramModel.from_tensors(tensors, order=ORDER, vocab_size=VOCAB_SIZE, reset_lines=True))


def _encode(words: Iterable[str]) -> tuple[Array, Array]:
    """The bytes of words as ids, each word with its end, and the lengths. The space that a word brings along is one byte."""
    spellings = [word.replace(SPACE_MARK, " ").encode() for word in words]
    lengths = np.fromiter((len(spelling) + 1 for spelling in spellings), np.int64, len(spellings))
    ids = np.frombuffer(b"".join(spelling + b"\n" for spelling in spellings), np.uint8).astype(np.int64) + FIRST_BYTE
    ids[np.cumsum(lengths) - 1] = EOS_ID
    return ids, lengths
