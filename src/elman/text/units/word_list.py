"""The vocabulary of nets that read texts given as lists of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID

SEPARATOR = "\t"  # between words in the tokenizer; words may contain spaces


class WordList:
    """Ids of words. With `folds_case` an unknown word is looked up in lower case."""

    def __init__(self, tokenizer: Tokenizer, *, folds_case: bool) -> None:
        self.tokenizer = tokenizer
        self.folds_case = folds_case
        self._numbers = {token: number for number, token in enumerate(tokenizer.tokens) if number > EOS_ID}

    def number(self, word: str) -> int:
        """The id of a word; UNK_ID for unknown words and for special tokens."""
        number = self._numbers.get(word)
        if number is None and self.folds_case:
            number = self._numbers.get(word.lower())
        return UNK_ID if number is None else number


def learn_words(
    counts: Counter[str],
    *,
    min_count: int,
    max_words: int,
    more_words: Iterable[str] = (),
    folds_case: bool = False,
) -> WordList:
    """The words of at least min_count, then `more_words`, up to max_words in all; never one with a tab or a line break."""
    reserved = {UNK, EOS, BOS}
    words = [word for word, count in counts.most_common(max_words) if count >= min_count]
    known = dict.fromkeys(word for word in words if word not in reserved and not {SEPARATOR, "\n"} & {*word})
    for word in more_words:
        if len(known) >= max_words:
            break
        if word and word not in reserved and not any(character.isspace() for character in word):
            known.setdefault(word)
    return WordList(Tokenizer(TokenizerSpec("space", [UNK, EOS, *known], SEPARATOR)), folds_case=folds_case)
