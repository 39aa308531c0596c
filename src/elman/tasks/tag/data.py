"""Sentences with tags as ids. A sentence is a row of forms: distinct words as written, each spelt out only once.

Forms and tags are numbered from FIRST on, and every row ends in EOS_ID, as in any corpus. What a form is to a net (a
word of its vocabulary, a row of characters) stands in a table.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.tag.bilm_words import BilmWords
from elman.tasks.tag.config import SentencesConfig
from elman.tasks.tag.conll import Sentence
from elman.text.rows import RowBatches, begins_of, padded, row_numbers, select_rows, split_by_hash
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK, UNK_ID
from elman.text.units.word_list import WordList, learn_words

FIRST = 2  # id of the first word form and of the first tag: 0 and 1 are reserved
MAX_SPELLING = 40  # characters read of a word: of longer ones half from either end
CHARACTER_PREFIX = "character_"  # prefix of the files of the characters' tokenizer
BILM_PREFIX = "bilm_"  # prefix of the files of the bilm's tokenizer


class Lexicon:
    """The words and characters that a net knows; and the words that a model inside it knows, if there is one."""

    def __init__(self, words: WordList, characters: Tokenizer, foreign: BilmWords | None = None) -> None:
        self.words = words.tokenizer
        self.characters = characters
        self.foreign = foreign
        self.word = words.number
        self.folds_case = words.folds_case
        self._characters = {token: number for number, token in enumerate(characters.tokens) if number >= FIRST}

    def spelling(self, form: str) -> list[int]:
        """The numbers of a word's characters, without an end."""
        if len(form) > MAX_SPELLING:
            form = form[: MAX_SPELLING // 2] + form[-MAX_SPELLING // 2 :]
        return [self._characters.get(character, UNK_ID) for character in form]

    def files(self) -> dict[str, bytes]:
        """What to store, by file name."""
        found = {CHARACTER_PREFIX + name: content for name, content in self.characters.files().items()}
        if self.foreign is not None:
            found |= {BILM_PREFIX + name: content for name, content in self.foreign.tokenizer.files().items()}
        return {**self.words.files(), **found}


def learn_lexicon(
    sentences: Sequence[Sentence],
    data: SentencesConfig,
    *,
    more_words: Iterable[str] = (),
    folds_case: bool = False,
    foreign: BilmWords | None = None,
) -> Lexicon:
    """The words that are frequent enough, then `more_words` as far as there is room; every character seen twice."""
    counts = Counter(word for sentence in sentences for word in sentence.words)
    words = learn_words(
        counts, min_count=data.min_count, max_words=data.max_words, more_words=more_words, folds_case=folds_case
    )
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    letters = [character for character, count in characters.most_common() if count > 1]
    return Lexicon(words, Tokenizer(TokenizerSpec("char", [UNK, EOS, *letters])), foreign)


@dataclass(frozen=True)
class Forms:
    """Distinct words as written: which word of the vocabulary each is, and how it is spelt."""

    words: Array  # (F,)
    characters: Array  # every form's characters and EOS_ID; those of the first two, which are no forms, are none
    foreign: Array | None = None  # (F,), which word of another model's vocabulary each is

    def tensors(self) -> dict[str, Array]:
        """By name, to be kept."""
        found = {"form_words": self.words, "form_characters": self.characters}
        return found if self.foreign is None else {**found, "form_foreign": self.foreign}

    @classmethod
    def of(cls, tensors: Mapping[str, Array]) -> Forms:
        """Those that were kept."""
        return cls(tensors["form_words"], tensors["form_characters"], tensors.get("form_foreign"))


@dataclass(frozen=True)
class TagCorpus:
    """Rows of forms and of tags; a tag that has no number is UNK_ID."""

    forms: Array
    tags: Array


def encode_sentences(groups: Sequence[Sequence[Sequence[str]]], lexicon: Lexicon) -> tuple[list[Array], Forms]:
    """The rows of forms of some groups of sentences, and the table of all of them."""
    numbers: dict[str, int] = {}
    rows = []
    for sentences in groups:
        ids: list[int] = []
        for words in sentences:
            ids += [numbers.setdefault(word, FIRST + len(numbers)) for word in words]
            ids.append(EOS_ID)
        rows.append(np.array(ids, dtype=np.int32))
    characters: list[int] = [EOS_ID] * FIRST
    for form in numbers:
        characters += lexicon.spelling(form)
        characters.append(EOS_ID)
    words_F = [UNK_ID] * FIRST + [lexicon.word(form) for form in numbers]
    foreign = None
    if lexicon.foreign is not None:
        foreign = np.array([UNK_ID] * FIRST + [lexicon.foreign.number(form) for form in numbers], dtype=np.int32)
    return rows, Forms(np.array(words_F, dtype=np.int32), np.array(characters, dtype=np.int32), foreign)


def encode_tags(sentences: Sequence[Sentence], labels: Sequence[str]) -> Array:
    """The rows of tags."""
    numbers = {label: FIRST + number for number, label in enumerate(labels)}
    ids: list[int] = []
    for sentence in sentences:
        ids += [numbers.get(tag, UNK_ID) for tag in sentence.tags]
        ids.append(EOS_ID)
    return np.array(ids, dtype=np.int32)


def split_sentences(sentences: Sequence[Sentence], share: float) -> tuple[list[Sentence], list[Sentence]]:
    """Sentences to train on and to hold out; which ones depends on their words alone."""
    kept, held = split_by_hash(("\t".join(sentence.words) for sentence in sentences), share)
    return [sentences[row] for row in kept], [sentences[row] for row in held]


def labels_of(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Every tag, the most frequent first."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    return tuple(sorted(counts, key=lambda tag: (-counts[tag], tag)))


def fingerprint_of(sentences: Iterable[Sentence]) -> str:
    """Equal for equal words and tags."""
    digest = hashlib.blake2b(digest_size=8)
    for sentence in sentences:
        digest.update("\t".join([*sentence.words, *sentence.tags, "\n"]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Words:
    """B sentences of up to T words. Padding has no form: `forms` says which row of `spelling` each word is."""

    words: Array  # (B, T)
    lengths: Array  # (B,)
    forms: Array  # (B, T)
    spelling: Array  # (U, C), EOS_ID behind each form's characters
    spelling_lengths: Array  # (U,), EOS_ID not counted
    foreign: Array | None = None  # (B, T), the words as another model numbers them


@dataclass(frozen=True)
class TagBatch:
    """Sentences and their tags, from 0 on: (B, T)."""

    words: Words
    tags: Array
    scale: float = 1.0

    @property
    def num_tokens(self) -> int:
        return int(self.words.lengths.sum())


class TagBatches(RowBatches[TagBatch]):
    """Batches of sentences with tags, about so many words each."""

    def __init__(self, corpus: TagCorpus, forms: Forms, *, tokens: int, seed: int = 0) -> None:
        self._corpus, self._begins = corpus, begins_of(corpus.tags)
        self._table = FormTable(forms)
        if len(self._begins) < 2:
            raise DataError("there is nothing to train on: there are no sentences", code="empty-data")
        lengths = np.diff(self._begins)
        super().__init__(lengths, lengths, tokens=tokens, seed=seed)

    def rows(self, rows: Array) -> TagBatch:
        """The given sentences as a batch."""
        forms, lengths = padded(self._corpus.forms, self._begins, rows)
        tags, _ = padded(self._corpus.tags, self._begins, rows)
        words = self._table.look_up(forms[:, :-1], lengths - 1)
        return TagBatch(words, np.maximum(tags[:, :-1] - FIRST, 0))


class FormTable:
    """What forms are to a net."""

    def __init__(self, forms: Forms) -> None:
        self._words, self._foreign = forms.words, forms.foreign
        self._characters, self._begins = forms.characters, begins_of(forms.characters)

    def look_up(self, forms: Array, lengths: Array) -> Words:
        """Rows of forms as a net reads them."""
        distinct, places = np.unique(forms, return_inverse=True)
        spelling, sizes = padded(self._characters, self._begins, distinct)
        words = self._words[forms].astype(np.int64)
        foreign = None if self._foreign is None else self._foreign[forms].astype(np.int64)
        return Words(words, lengths, places.reshape(forms.shape), spelling, sizes - 1, foreign)


def known_sentences(corpus: TagCorpus) -> TagCorpus | None:
    """The sentences whose tags all have numbers: only of these there is a likelihood; None if there are none."""
    rows = row_numbers(corpus.tags)
    is_known = np.ones(int(rows[-1]) + 1, dtype=bool)
    is_known[rows[corpus.tags == UNK_ID]] = False
    if not is_known.any():
        return None
    return TagCorpus(select_rows(corpus.forms, is_known), select_rows(corpus.tags, is_known))
