"""The words of a sentence by the numbers that another model knows them by."""

from __future__ import annotations

from elman.text.units.letters import SPACE_MARK
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

UNITS = ("space", "word")  # units whose tokens are words


class BilmWords:
    """Numbers in the vocabulary of a tokenizer of words. A word that it does not know may be known in lower case."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.units not in UNITS:
            raise ValueError(f"symbols of {tokenizer.units} units are no words")
        self.tokenizer = tokenizer
        self._is_marked = tokenizer.units == "word"
        self._numbers = {token: number for number, token in enumerate(tokenizer.tokens) if number > EOS_ID}

    def number(self, word: str) -> int:
        """The number of a word, UNK_ID for what is not known.

        Symbols of raw text come with a space before them or without: of the two the more frequent one counts.
        """
        for form in (word, word.lower()):
            marked = [SPACE_MARK + form] if self._is_marked else []
            found = [self._numbers[symbol] for symbol in (form, *marked) if symbol in self._numbers]
            if found:
                return min(found)  # symbols are numbered by falling frequency
        return UNK_ID
