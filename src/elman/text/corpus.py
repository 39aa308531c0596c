"""Text as one stream of ids, learned from or just read. A corpus larger than memory is on disk, and its text nowhere.

Every line's tokens are followed by EOS_ID. Learning is one pass: symbols are numbered as they come, and renumbered by
frequency when all have come. (Pairs of bytes need three passes; the text waits for them in a file without a name.)
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.text.batches import release_pages
from elman.text.gathering import Gathered, KeptText, gather, num_training_lines
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources
from elman.text.settings import DataConfig
from elman.text.spool import CHUNK_ITEMS
from elman.text.units.bpe import check_bpe, train_bpe
from elman.text.units.forms import Form, normalize_bytes
from elman.text.units.guess import SAMPLE_BYTES, Guess, guess_units
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.splitters import BpeSplitter, Splitter, learner
from elman.text.units.tokenizer import Tokenizer, bpe_backend, reserved_pattern
from elman.text.units.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID, by_frequency, choose_words
from elman.text.unknown import UnknownWords, sample_rare_words

BLOCK_ROWS = 10_000  # lines encoded at once
SYMBOL_BYTES = 280  # of memory for each distinct symbol while a vocabulary is learned


@dataclass(frozen=True, eq=False)
class Block:
    """A piece of text as ids, whole lines."""

    ids: Array  # int32
    num_lines: int
    num_bytes: int  # of UTF-8, one newline a line
    unknown_tokens: int  # <unk>: the text says so, or the vocabulary lacks the word
    dropped_lines: int = 0  # bad ones since the piece before
    lines: LineBlock | None = None  # the text itself, where it was just read


@dataclass(frozen=True, eq=False)
class Corpus:
    """A whole text as ids."""

    ids: Array  # uint16, or uint32 for a large vocabulary; in memory, or mapped from a file
    num_lines: int
    num_bytes: int
    unknown_tokens: int
    fingerprint: str
    line_bytes: Array  # of each line, with its newline
    unknown_words: Mapping[str, int] = field(
        default_factory=dict
    )  # and how often; words only, and not of training text

    @property
    def unknown_share(self) -> float:
        """Of its words."""
        return self.unknown_tokens / max(1, len(self.ids) - self.num_lines)

    def blocks(self, max_tokens: int) -> Iterator[Block]:
        """The text in pieces of whole lines: at most max_tokens each, but for lines that are longer."""
        start = line = 0
        while start < len(self.ids):
            end = self._last_line_end(start, max_tokens)
            ids = self.ids[start:end].astype(np.int32)
            num_lines = int(np.count_nonzero(ids == EOS_ID))
            num_bytes = int(self.line_bytes[line : line + num_lines].sum())
            yield Block(ids, num_lines, num_bytes, int(np.count_nonzero(ids == UNK_ID)))
            start, line = end, line + num_lines
            release_pages(self.ids)

    def _last_line_end(self, start: int, max_tokens: int) -> int:
        ends = np.flatnonzero(self.ids[start : start + max_tokens] == EOS_ID)
        if len(ends):
            return start + int(ends[-1]) + 1
        while not len(ends):
            start += max_tokens
            ends = np.flatnonzero(self.ids[start : start + max_tokens] == EOS_ID)
        return start + int(ends[0]) + 1


@dataclass(frozen=True, eq=False)
class Learned:
    """A vocabulary, and the texts it was learned from and held out."""

    tokenizer: Tokenizer
    train: Corpus
    heldout: Corpus | None
    notes: tuple[str, ...]  # what the user should know, in sentences
    form: Form | None = None  # the Unicode form of the text
    rare_words: Sequence[str] = ()  # words like those that will be unknown, to learn their spelling from


def read_blocks(
    sources: Sources, tokenizer: Tokenizer, data: DataConfig, *, keep_empty: bool = False
) -> Iterator[Block]:
    """A text as ids, about a megabyte at a time, in constant memory. keep_empty: blocks whose lines were all bad too."""
    reader = _reader(sources, tokenizer.units, data, keep_empty=keep_empty)
    num_reported = 0
    for lines in without_reserved(reader, reader.blocks(), tokenizer):
        ids = tokenizer.encode_lines(lines.data) if lines.data else np.zeros(0, dtype=np.int32)
        num_unknown = int(np.count_nonzero(ids == UNK_ID))
        num_dropped, num_reported = reader.num_dropped - num_reported, reader.num_dropped
        yield Block(ids, lines.data.count(b"\n"), len(lines.data), num_unknown, num_dropped, lines)


def read_corpus(sources: Sources, tokenizer: Tokenizer, data: DataConfig, *, directory: Path | None = None) -> Corpus:
    """A whole text as ids; they go to a file in `directory` if they are many."""
    unknown = UnknownWords(tokenizer, directory)
    text = _read(_reader(sources, tokenizer.units, data), unknown, directory)
    return replace(corpus_of(text.ids.finish(), text.line_bytes), unknown_words=unknown.counts())


def learn(
    sources: Sources,
    data: DataConfig,
    *,
    heldout: bool,
    tokenizer: Tokenizer | None = None,
    directory: Path | None = None,
    memory_bytes: int | None = None,
) -> Learned:
    """The vocabulary of a text (or the given one), and the text as ids, its last part held out if asked for.

    The vocabulary depends on the training part alone. The ids go to a file in `directory` if they are many. memory_bytes:
    a text with more distinct symbols than fit is refused; the most frequent ones are known only when all have come.
    """
    notes: list[str] = []
    share = data.heldout if heldout else None
    reader = _reader(sources, data.units if tokenizer is None else tokenizer.units, data)
    if tokenizer is None:
        units, blocks = _choose_units(reader, data, notes)
        spec = TokenizerSpec(units, (), data.separator, normalize=data.normalize)
        text, recipe = _number(without_reserved(reader, blocks, spec), spec, share, directory, memory_bytes)
    else:
        unknown = UnknownWords(tokenizer, directory)
        text = _read(reader, unknown, directory)
    num_lines = num_training_lines(text.line_bytes, share)
    num_tokens = text.tokens_of(num_lines)
    if num_tokens == num_lines:
        raise DataError("there is nothing to train on: every line is blank", code="empty-data")
    table, rare_words, unknown_words = None, [], {}
    if tokenizer is None:
        counts = text.count(num_tokens, len(recipe.tokens))
        chosen = choose_symbols(counts, units, min_count=data.min_count, max_words=data.max_words)
        tokenizer = Tokenizer(replace(recipe, tokens=[UNK, EOS, *(recipe.tokens[i] for i in chosen)]))
        table = _new_ids(chosen, len(recipe.tokens))
        if units in ("space", "word"):
            rare_words = sample_rare_words(recipe.tokens, counts, chosen)
            left = np.where(table == UNK_ID, text.count(len(text.ids), len(recipe.tokens)) - counts, 0)
            unknown_words = {recipe.tokens[i]: int(left[i]) for i in np.flatnonzero(left).tolist()}
    ids = text.ids.finish(table)
    train = corpus_of(ids[:num_tokens], text.line_bytes[:num_lines])
    if table is None:
        unknown_words = unknown.counts(skip=train.unknown_tokens)
    rest = None
    if num_tokens < len(ids):
        rest = replace(corpus_of(ids[num_tokens:], text.line_bytes[num_lines:]), unknown_words=unknown_words)
    num_heldout = None if rest is None else rest.num_lines
    facts = TextFacts(len(train.ids), train.num_lines, train.unknown_tokens, num_heldout, reader.num_dropped)
    notes += describe_text(tokenizer, facts, heldout=heldout)
    return Learned(tokenizer, train, rest, tuple(notes), reader.forms.form, rare_words)


def _reader(sources: Sources, units: str, data: DataConfig, *, keep_empty: bool = False) -> Reader:
    return Reader(sources, data, any_bytes=units == "byte", separator=data.separator, keep_empty=keep_empty)


def _read(reader: Reader, unknown: UnknownWords, directory: Path | None) -> Gathered:
    tokenizer = unknown.tokenizer
    blocks = without_reserved(reader, reader.blocks(), tokenizer)
    return gather(blocks, unknown.encode, id_type(tokenizer.vocab_size), directory)


def id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest numbers for so many symbols."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def _choose_units(reader: Reader, data: DataConfig, notes: list[str]) -> tuple[str, Iterator[LineBlock]]:
    """The units asked for, or those that suit what is read; and all blocks, those looked at included."""
    blocks = reader.blocks()
    separator, units = data.separator, data.units
    if separator is not None and (units not in ("auto", "space") or "\n" in separator):
        what = "contains a newline" if "\n" in separator else f"cannot be with {units} units"
        raise UsageError(
            f"data.separator {what}", code="bad-value", hint="it is what stands between symbols, for --units space"
        )
    if units != "auto":
        return units, blocks
    looked_at: list[LineBlock] = []
    for lines in blocks:
        looked_at.append(lines)
        if sum(len(lines.data) for lines in looked_at) >= SAMPLE_BYTES:
            break
    if separator is not None:
        guess = Guess("space", "data.separator is given")
    elif reader.has_token_records:
        guess = Guess("space", "its records are lists of tokens")
    else:
        guess = guess_units(b"".join(lines.data for lines in looked_at)[:SAMPLE_BYTES])
    notes.append(f"units: {guess.units}, because {guess.why} (--units chooses others)")
    return guess.units, itertools.chain(looked_at, blocks)


def without_reserved(
    reader: Reader, blocks: Iterable[LineBlock], tokens: Tokenizer | TokenizerSpec
) -> Iterator[LineBlock]:
    """The lines, if none has a symbol that is not text."""
    pattern = reserved_pattern(tokens.units, tokens.separator)

    def find_fault(line: bytes) -> Fault | None:
        found = pattern.search(normalize_bytes(line, tokens.normalize)) if pattern is not None else None
        if found is None:
            return None
        hint = f"every line ends in {EOS} by itself and {BOS} is never scored: take them out, or {SKIP_HINT}"
        return Fault(f"contains {found[1].decode()}, which is reserved", hint, "reserved-symbol")

    for lines in blocks:
        text = normalize_bytes(lines.data, tokens.normalize)
        # quick looks first: most texts have no such thing
        if pattern is not None and b"<" in text and b"s>" in text and pattern.search(text):
            lines = reader.without(lines, find_fault)
        if lines.data or reader.keeps_empty:
            yield lines


def _number(
    blocks: Iterable[LineBlock],
    spec: TokenizerSpec,
    share: float | None,
    directory: Path | None,
    memory_bytes: int | None = None,
) -> tuple[Gathered, TokenizerSpec]:
    """The text under numbers of the moment, and the specification with the symbols they stand for."""

    def encode(lines: bytes) -> Array:
        ids = splitter.encode(normalize_bytes(lines, spec.normalize))  # bytes are counted as they stand in the text
        if memory_bytes is not None and len(ids) and int(ids.max()) * SYMBOL_BYTES > memory_bytes:
            what = f"the text has more than {memory_bytes // SYMBOL_BYTES:,} distinct words, too many for this memory"
            raise DataError(
                what,
                code="too-little-memory",
                hint="--units bpe:8000 has a fixed number of symbols; or give a larger --memory",
            )
        return ids

    if not spec.units.startswith("bpe:"):
        splitter: Splitter = learner(spec.units, spec.separator)
        text = gather(blocks, encode, np.int32, directory)
        return text, replace(spec, tokens=splitter.symbols())
    check_bpe(spec.units)
    with closing(KeptText(blocks, directory)) as kept:
        lines = kept.lines(num_training_lines(kept.line_bytes, share))
        recipe = train_bpe((normalize_bytes(line, spec.normalize) for line in lines), spec.units)
        splitter = BpeSplitter(bpe_backend(recipe))
        text = gather(kept.blocks(), encode, np.int32, directory)
    return text, replace(recipe, normalize=spec.normalize)


def choose_symbols(counts: Array, units: str, *, min_count: int, max_words: int) -> Array:
    """The numbers of the symbols to know, the most frequent first."""
    if units == "byte" or units.startswith("bpe:"):
        return by_frequency(counts)
    if units == "char":
        return choose_words(counts, min_count=1, max_words=len(counts))
    chosen = choose_words(counts, min_count=min_count, max_words=max_words)
    if not len(chosen):
        what = f"the vocabulary is empty: no word is in the training text {min_count} times"
        raise DataError(what, code="empty-data", hint="--set data.min_count=1 keeps every word")
    return chosen


def _new_ids(chosen: Array, num_symbols: int) -> Array:
    """The id of every symbol; UNK_ID for those not chosen."""
    table = np.full(num_symbols, UNK_ID, dtype=id_type(len(chosen) + 2))
    table[EOS_ID] = EOS_ID
    table[chosen] = np.arange(2, len(chosen) + 2)
    return table


def corpus_of(ids: Array, line_bytes: Array) -> Corpus:
    """A text of these ids, its lines so long."""
    digest = hashlib.blake2b(ids.dtype.str.encode(), digest_size=8)
    unknown_tokens = 0
    for start in range(0, len(ids), CHUNK_ITEMS):
        part = np.ascontiguousarray(ids[start : start + CHUNK_ITEMS])
        digest.update(part.data)
        unknown_tokens += int(np.count_nonzero(part == UNK_ID))
        release_pages(ids)
    num_bytes = int(line_bytes.sum(dtype=np.int64))
    return Corpus(ids, len(line_bytes), num_bytes, unknown_tokens, digest.hexdigest(), line_bytes)


@dataclass(frozen=True)
class TextFacts:
    """Numbers of a training text."""

    num_tokens: int
    num_lines: int
    unknown_tokens: int
    heldout_lines: int | None  # of the part that is held out
    num_dropped: int


def describe_text(tokenizer: Tokenizer, facts: TextFacts, *, heldout: bool) -> Iterator[str]:
    """What the user should know. heldout: whether a part was to be held out"""
    if facts.num_dropped:
        yield f"{facts.num_dropped:,} bad lines were dropped"
    if facts.heldout_lines is not None:
        yield f"the last {facts.heldout_lines:,} lines are held out"
    elif heldout:
        yield "nothing is held out: there is only one line with text (--valid FILE gives a text to validate on)"
    if tokenizer.units.startswith("bpe:") and tokenizer.vocab_size < int(tokenizer.units[4:]):
        yield f"the text has pairs for {tokenizer.vocab_size:,} symbols only"
    if facts.unknown_tokens:
        share = facts.unknown_tokens / max(1, facts.num_tokens - facts.num_lines)
        yield f"{share:.2%} of the words are {UNK}: the vocabulary has {tokenizer.vocab_size - 2:,} words"
        if share > 0.5:
            yield "more than half of the words are unknown (data.min_count=1 keeps every word, --units char has no such)"
    if 2 * facts.num_lines > facts.num_tokens:
        share = facts.num_lines / facts.num_tokens
        yield f"{share:.0%} of the tokens are line ends: a perplexity is mostly theirs (are the blank lines wanted?)"


def learn_tokenizer(texts: Sequence[Sequence[str]], units: str, *, min_count: int, max_words: int) -> Tokenizer:
    """The symbols of some texts, each a list of lines: one vocabulary for all of them."""
    if units.startswith("bpe:"):
        check_bpe(units)
        recipe = train_bpe((line.encode() for lines in texts for line in lines), units)
        splitter: Splitter = BpeSplitter(bpe_backend(recipe))
    else:
        splitter = learner(units, None)
    parts = [splitter.encode(block) for lines in texts for block in line_blocks(lines)]
    if not units.startswith("bpe:"):
        recipe = TokenizerSpec(units, splitter.symbols())
    counts = np.sum([np.bincount(part, minlength=len(recipe.tokens)) for part in parts], axis=0)
    chosen = choose_symbols(counts, units, min_count=min_count, max_words=max_words)
    return Tokenizer(replace(recipe, tokens=[UNK, EOS, *(recipe.tokens[i] for i in chosen)]))


def line_blocks(lines: Sequence[str]) -> Iterator[bytes]:
    """Lines as blocks of bytes, each line ended."""
    for first in range(0, len(lines), BLOCK_ROWS):
        yield ("\n".join(lines[first : first + BLOCK_ROWS]) + "\n").encode()
