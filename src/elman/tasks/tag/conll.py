"""Sentences of words with tags, from CoNLL-U, column files and JSONL; and back into the file they came from.

A blank line ends a sentence. Of CoNLL-U, comments, multiword tokens and empty nodes are kept but carry no tag; of
column files, -DOCSTART- lines. Knows nothing of symbols.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from elman.core.errors import DataError
from elman.tasks.tag.config import CONLLU_COLUMNS, SentencesConfig
from elman.text.aligned import read_aligned
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources
from elman.text.records import parser_says
from elman.text.tables import Pairs

Format = Literal["lines", "conllu", "columns", "jsonl"]  # lines: words only, with spaces between
NOT_GIVEN = "_"
DOCSTART = "-DOCSTART-"
_WORD_ID = re.compile(r"\d+")
_ANY_ID = re.compile(r"\d+(?:[-.]\d+)?")
_LAST_FIELD = re.compile(r"\S+(?=\s*$)")
_RECORD_HINT = 'a record looks like {"tokens": ["...", "..."], "tags": ["...", "..."]}'


@dataclass(frozen=True)
class Sentence:
    """Words and their tags; `lines` are those of the file, blank ones too, and `rows` the places of the words there."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    source: str = ""
    number: int = 0  # of its first line
    lines: tuple[str, ...] = field(default=(), repr=False)
    rows: tuple[int, ...] = field(default=(), repr=False)

    def place(self, word: int) -> str:
        """`line 12 of train.conllu`"""
        return f"line {self.number + (self.rows[word] if self.rows else 0)} of {self.source}"


def read_sentences(
    sources: Sources, data: SentencesConfig, *, targets: Sources | None = None
) -> tuple[list[Sentence], int]:
    """All sentences with words in them, and how many bad ones were dropped; with `targets`, tags from other files."""
    if targets is not None:
        return _read_aligned(sources, targets, data)
    reader = SentenceReader(sources, data)
    found = [sentence for block in reader.blocks() for sentence in block if sentence.words]
    if not found:
        raise DataError(
            "there are no sentences in the input",
            code="empty-data",
            hint="a word and its tag a line, blank lines between",
        )
    return found, reader.num_dropped


def _read_aligned(sources: Sources, targets: Sources, data: SentencesConfig) -> tuple[list[Sentence], int]:
    """Words from the lines of some files, and their tags from the same lines of others."""
    pairs = Pairs()
    read_aligned(sources, targets, data, pairs)
    found = []
    for row, (line, tags) in enumerate(zip(pairs.sources, pairs.targets, strict=True)):
        words, given = tuple(line.split()), tuple(tags.split())
        if len(words) != len(given):
            raise DataError(
                f"{pairs.place(row)} has {len(words)} words and {len(given)} tags",
                code="misaligned",
                hint="a tag for each word",
            )
        found.append(Sentence(words, given, "the lines", row + 1))
    return found, pairs.num_dropped


class SentenceReader:
    """Reads sentences by blocks, all lines of a file kept. Refuses bad ones, or drops and counts them.

    Without `needs_tags` a file of one column is words to be tagged, and an empty line is no mistake.
    """

    def __init__(
        self,
        sources: Sources,
        data: SentencesConfig,
        *,
        needs_tags: bool = True,
        as_format: Format | None = None,
        keep_bad: bool = False,
    ) -> None:
        # a line that is dropped would tear a sentence: only where each stays in its place may one be empty
        reading = data.model_copy(update={"skip_bad": data.skip_bad and keep_bad})
        self._reader = Reader(sources, reading, keep_records=True, keep_lines=keep_bad)
        self._keeps_bad = keep_bad and data.skip_bad
        self.format: Format = as_format or "lines"  # of the file that is being read
        self._data = data
        self._needs_tags = needs_tags
        self._as_format = as_format
        self.num_dropped = 0

    def blocks(self) -> Iterator[list[Sentence]]:
        """The sentences that were there to read."""
        name, parser, waiting, number = None, None, list[str](), 1
        for lines in self._reader.blocks():
            texts = lines.data.decode().removesuffix("\n").split("\n")
            if name != lines.source:
                if parser is not None and waiting:
                    yield self._parsed(parser, [(waiting, number)])
                kind = self._as_format or find_format(lines, texts, needs_tags=self._needs_tags)
                name, waiting, number = lines.source, [], lines.first
                parser = _Parser(kind, lines.source, self._data, needs_tags=self._needs_tags)
                self.format = kind
            assert parser is not None
            pieces, waiting, number = _cut(parser.kind, texts, waiting, number)
            if pieces:
                yield self._parsed(parser, pieces)
        if parser is not None and waiting:
            yield self._parsed(parser, [(waiting, number)])

    def answered(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """Those that have an answer of their own: lines, sentences with words, and what was passed over."""
        return [one for one in sentences if one.words or self._keeps_bad or self.format == "lines"]

    def _parsed(self, parser: _Parser, pieces: Sequence[tuple[list[str], int]]) -> list[Sentence]:
        found = []
        for lines, number in pieces:
            sentence = parser.parse(lines, number)
            if isinstance(sentence, Sentence):
                words, tags = (
                    tuple(self._reader.read_text(text, parser.source) for text in side)
                    for side in (sentence.words, sentence.tags)
                )
                found.append(replace(sentence, words=words, tags=tags))
            elif self._keeps_bad:
                found.append(Sentence((), (), parser.source, number, tuple(lines)))
            elif self._data.skip_bad:
                self.num_dropped += 1
            else:
                row, fault = sentence
                raise DataError(
                    f"line {number + row} of {parser.source} {fault.what}", code=fault.code, hint=fault.hint
                )
        return found


def find_format(lines: LineBlock, texts: Sequence[str], *, needs_tags: bool) -> Format:
    """How a file is to be read, by its first lines; where tags are needed, a file for another task is refused."""
    guess = guess_task(texts[:SAMPLE_LINES], is_jsonl=lines.has_records)
    has_tokens = guess.task == "tag" or "tokens" in guess.like
    if lines.has_records and (guess.task == "tag" or (has_tokens and not needs_tags)):
        return "jsonl"
    words = [text for text in texts if text.strip() and not text.startswith("#")]
    if words and _is_conllu(words[0]):
        return "conllu"
    if not needs_tags and not lines.has_records and guess.task != "tag" and not _has_tabbed_columns(words):
        return "lines"
    if lines.has_records and has_tokens:
        raise DataError(
            f"{lines.source} has words, but no tags", code="wrong-format", hint="`elman predict` gives them tags"
        )
    if guess.task not in ("tag", "lm", "seq2seq") or lines.has_records:
        is_unknown = lines.has_records and guess.task == "lm"
        raise DataError(
            f"{lines.source} is not words with tags: it looks like {guess.like}",
            code="wrong-format",
            hint=_RECORD_HINT if is_unknown else f"elman train {guess.task} is for such files",
        )
    return "columns"


def _has_tabbed_columns(rows: Sequence[str]) -> bool:
    """Whether every row has the same columns, two or more, between tabs: a word and its tags, not a line of words."""
    return len({row.count("\t") for row in rows}) == 1 and "\t" in rows[0]


def _is_conllu(line: str) -> bool:
    columns = line.split("\t")
    return len(columns) == len(CONLLU_COLUMNS) and _ANY_ID.fullmatch(columns[0]) is not None


def _cut(
    kind: Format, texts: Sequence[str], waiting: list[str], number: int
) -> tuple[list[tuple[list[str], int]], list[str], int]:
    """Whole sentences with the numbers of their first lines; the lines of the last, which may go on; its number."""
    pieces, lines = [], waiting
    for text in texts:
        lines.append(text)
        if kind in ("lines", "jsonl") or not text.strip():
            pieces.append((lines, number))
            number, lines = number + len(lines), []
    return pieces, lines, number


class _Parser:
    """Sentences of one file, whose columns are as many everywhere as in its first row."""

    def __init__(self, kind: Format, source: str, data: SentencesConfig, *, needs_tags: bool) -> None:
        self.kind = kind
        self.source = source
        self._needs_tags = needs_tags
        self._num_columns = len(CONLLU_COLUMNS) if kind == "conllu" else 0
        self._tag = _tag_column(kind, data.column)

    def parse(self, lines: Sequence[str], number: int) -> Sentence | tuple[int, Fault]:
        """The sentence, or which of its lines is bad and why."""
        if self.kind == "jsonl":
            record = _parse_record(lines[0], needs_tags=self._needs_tags)
            if isinstance(record, Fault):
                return 0, record
            return Sentence(*record, self.source, number, tuple(lines))
        if self.kind == "lines":
            words_of_line = tuple(lines[0].split())
            return Sentence(words_of_line, (NOT_GIVEN,) * len(words_of_line), self.source, number, tuple(lines))
        words, tags, rows = [], [], []
        for row, line in enumerate(lines):
            if not line.strip() or (self.kind == "conllu" and line.startswith("#")):
                continue
            columns = split_columns(line)
            if self.kind == "columns" and columns[0] == DOCSTART:
                continue
            fault = self._find_fault(columns)
            if fault is not None:
                return row, fault
            if self.kind == "conllu" and not _WORD_ID.fullmatch(columns[0]):
                continue
            words.append(columns[1] if self.kind == "conllu" else columns[0])
            tags.append(columns[self._tag] if len(columns) > 1 else NOT_GIVEN)
            rows.append(row)
        return Sentence(tuple(words), tuple(tags), self.source, number, tuple(lines), tuple(rows))

    def _find_fault(self, columns: Sequence[str]) -> Fault | None:
        if not self._num_columns:
            self._num_columns = len(columns)
            if len(columns) < 2 and self._needs_tags:
                return Fault("has no tag", "a line is a word and its tags, with spaces or tabs between")
            if self._tag >= len(columns):
                return Fault(f"has {_many(columns)}, and data.column={self._tag + 1}", "columns are numbered from 1")
        if len(columns) != self._num_columns:
            expected = f"expected {self._num_columns}"
            return Fault(f"has {_many(columns)}, {expected}", f"look for a stray space or tab; {SKIP_HINT}")
        if self.kind == "conllu" and not _ANY_ID.fullmatch(columns[0]):
            return Fault(f"begins with {columns[0]!r}, which is no number of a word", SKIP_HINT)
        if "" in columns:
            return Fault("has an empty column", f"CoNLL-U writes {NOT_GIVEN} for nothing; {SKIP_HINT}")
        return None


def split_columns(line: str) -> list[str]:
    """The columns of a row: between tabs, where there are any, so that words may have spaces in them."""
    return line.rstrip("\n").split("\t") if "\t" in line else line.split()


def _many(columns: Sequence[str]) -> str:
    return f"{len(columns)} column{'s' if len(columns) > 1 else ''}"


def _tag_column(kind: Format, column: str | None) -> int:
    """The place of the tag in a row; -1 is the last."""
    if kind == "conllu":
        name = column or "upos"
        if name not in CONLLU_COLUMNS:
            raise DataError(
                f"CoNLL-U has no column {name!r}",
                code="unknown-column",
                hint=f"data.column is one of {', '.join(CONLLU_COLUMNS)}",
            )
        return CONLLU_COLUMNS.index(name)
    if column is None:
        return -1
    if not column.isdigit() or kind == "jsonl":
        raise DataError(
            f"data.column={column} is for CoNLL-U, and this file is {kind}",
            code="does-not-apply",
            hint="the columns of other files have no names: data.column=2 picks one" if kind == "columns" else None,
        )
    return int(column) - 1


def _parse_record(text: str, *, needs_tags: bool) -> tuple[tuple[str, ...], tuple[str, ...]] | Fault:
    if not text.strip():
        return (), ()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault("is not JSON", f"{parser_says(error)}; {SKIP_HINT}")
    sides: list[Any] = [record.get(name) if isinstance(record, dict) else None for name in ("tokens", "tags")]
    if not needs_tags and sides[1] is None and isinstance(sides[0], list):
        sides[1] = [NOT_GIVEN] * len(sides[0])
    for side in sides:
        is_list = isinstance(side, list) and all(isinstance(one, str) and one.strip() for one in side)
        if not is_list or any("\t" in one or "\n" in one for one in side):
            return Fault("has no lists of words and tags", f"{_RECORD_HINT}; {SKIP_HINT}")
    if len(sides[0]) != len(sides[1]):
        return Fault(
            f"has {len(sides[0])} words and {len(sides[1])} tags", f"{_RECORD_HINT}; {SKIP_HINT}", "misaligned"
        )
    return tuple(sides[0]), tuple(sides[1])


def write_sentence(sentence: Sentence, tags: Sequence[str], data: SentencesConfig) -> str:
    """The lines of a sentence with other tags in their column, all else as it was; each line ended.

    A file of words only gets a column, behind a tab.
    """
    lines = list(sentence.lines)
    for row, tag in zip(sentence.rows, tags, strict=True):
        line = lines[row]
        columns = split_columns(line)
        if _is_conllu(line):
            columns[_tag_column("conllu", data.column)] = tag
            lines[row] = "\t".join(columns)
        elif len(columns) == 1:
            lines[row] = f"{line.rstrip()}\t{tag}"
        elif data.column is not None:
            columns[int(data.column) - 1] = tag
            lines[row] = ("\t" if "\t" in line else " ").join(columns)
        else:
            lines[row] = _LAST_FIELD.sub(lambda _, tag=tag: tag, line, count=1)  # type: ignore[misc]
    return "".join(f"{line}\n" for line in lines)
