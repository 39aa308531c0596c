"""Lines of text from files, directories, records and stdin, checked. Knows nothing of symbols.

A line ends at a newline and nowhere else. A carriage return before it, and a byte order mark before all, are taken off.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple, cast

from elman.core.errors import DataError, MissingError
from elman.text.memory import as_sources as as_sources
from elman.text.memory import as_texts as as_texts
from elman.text.memory import rows_of as rows_of
from elman.text.opening import STDIN as STDIN
from elman.text.opening import Kind, MemorySource, Opened, Source, cut_short, open_source, unreadable
from elman.text.opening import Sources as Sources
from elman.text.records import record_text
from elman.text.settings import ReadingConfig
from elman.text.units.forms import FormWatch, normalize

FIRST_BLOCK_BYTES = 1 << 16  # size of the first block, which is small so that an interactive pipe is answered soon
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 27  # counting a line takes eight times its size
LOOKED_AT_BYTES = 1 << 14  # of each block, to see which Unicode form it is in
SKIP_HINT = "--set data.skip_bad=true drops such lines"


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of one source, each ended by a newline: UTF-8 without NUL, or any bytes if so wanted."""

    data: bytes
    source: str
    first: int  # the number of the first line in its source, from 1
    numbers: Sequence[int] | None = None  # of every line, where some were dropped or one record has several
    kind: Kind = "lines"  # what a line is
    num_read: int = 0  # lines of the source that it stands for, dropped ones included

    @property
    def has_records(self) -> bool:
        """Whether every line is a JSON object."""
        return self.kind != "lines"

    def number(self, index: int) -> int:
        """A line's number in its source."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def split(self) -> list[bytes]:
        """The lines without their ends."""
        return self.data[:-1].split(b"\n") if self.data else []


@dataclass(frozen=True)
class Fault:
    """What is wrong with a line, as the end of a sentence, and what to do."""

    what: str
    hint: str
    code: str = "malformed-line"


class Reader:
    """Reads sources by blocks of lines; refuses bad lines, or drops and counts them."""

    def __init__(
        self,
        sources: Sources,
        data: ReadingConfig,
        *,
        any_bytes: bool = False,
        keep_records: bool = False,
        separator: str | None = None,
        header: bool | None = None,
        keep_lines: bool = False,
        keep_empty: bool = False,
    ) -> None:
        self._sources = [sources] if isinstance(sources, str | Path | MemorySource) else list(sources)
        self._data = data
        self._header = header  # of CSV files: whether the first row names the columns; by its look if not given
        self._keeps_lines = keep_lines  # there is a line for a line: one that is dropped is empty in its place
        self._any_bytes = any_bytes  # they need be neither UTF-8 nor free of NUL
        self._keeps_records = keep_records  # of JSONL, as they are
        self._separator = separator  # of the `tokens` of JSONL
        self.keeps_empty = keep_empty  # blocks of which every line was dropped are given too
        self.forms = FormWatch(data.form)
        self.num_dropped = 0
        self.has_token_records = False  # JSONL with `tokens` was among what was read

    def blocks(self) -> Iterator[LineBlock]:
        """About a megabyte of whole lines at a time; a longer line is a block of its own."""
        for source in find_files(self._sources):
            with self._open(source) as (file, kind):
                for data, first in cut_blocks(file, str(source)):
                    block = LineBlock(data, str(source), first, kind=kind, num_read=data.count(b"\n"))
                    lines = self.cleaned(block)
                    if str(source) == STDIN and first == 1 and self._keeps_records and kind == "lines":
                        kind = _kind_of_pipe(lines)
                        lines = replace(lines, kind=kind)
                    if lines.has_records and not self._keeps_records:
                        lines = self._checked(self._from_records(lines))
                    if not self._keeps_records:
                        self.forms.look(lines.data[:LOOKED_AT_BYTES].decode(errors="ignore"), lines.source)
                    if lines.data or self.keeps_empty:
                        yield lines

    def cleaned(self, lines: LineBlock) -> LineBlock:
        """Lines as they were read, without marks and carriage returns, and without bad ones."""
        return self._checked(self._without_marks(lines))

    def _open(self, source: Source) -> AbstractContextManager[Opened]:
        is_table = self._keeps_records and not self._any_bytes
        return open_source(
            source,
            header=self._header,
            any_bytes=self._any_bytes,
            any_encoding=self._data.errors == "replace",
            is_table=is_table,
        )

    def without(self, lines: LineBlock, find_fault: Callable[[bytes], Fault | None]) -> LineBlock:
        """The lines without those that have a fault, if bad lines are dropped; otherwise the first one is an error."""
        kept, numbers = [], []
        for index, line in enumerate(lines.split()):
            fault = find_fault(line)
            if fault is None:
                kept.append(line + b"\n")
                numbers.append(lines.number(index))
            else:
                self.drop(lines, index, fault)
                if self._keeps_lines:
                    kept.append(b"\n")
                    numbers.append(lines.number(index))
        return replace(lines, data=b"".join(kept), numbers=numbers)

    def read_text(self, text: str, source: str) -> str:
        """What a record or a row says, in the form that is wanted, or watched for the form that is expected."""
        if self._data.normalize != "none":
            return normalize(text, self._data.normalize)
        self.forms.look(text, source)
        return text

    def drop(self, lines: LineBlock, index: int, fault: Fault) -> None:
        """A bad line: counted if such are dropped, otherwise an error."""
        if not self._data.skip_bad:
            raise DataError(
                f"line {lines.number(index)} of {lines.source} {fault.what}", code=fault.code, hint=fault.hint
            )
        self.num_dropped += 1

    def _without_marks(self, lines: LineBlock) -> LineBlock:
        data = lines.data
        if lines.first == 1:
            is_taken_as_it_is = self._any_bytes or self._data.errors == "replace"
            if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not is_taken_as_it_is:
                raise _not_utf8(f"{lines.source} is UTF-16", "UTF-16")
            data = data.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        return replace(lines, data=data)

    def _checked(self, lines: LineBlock) -> LineBlock:
        if self._any_bytes:
            return lines
        if self._data.errors == "replace":
            data = lines.data if _is_utf8(lines.data) else lines.data.decode(errors="replace").encode()
            return replace(lines, data=data.replace(b"\0", "\ufffd".encode()))
        if lines.first == 1:
            _refuse_wide(lines.data, lines.source)
        if not _is_utf8(lines.data):
            lines = self.without(lines, _utf8_fault)
        if b"\0" in lines.data:
            lines = self.without(lines, _nul_fault)
        return lines

    def _from_records(self, lines: LineBlock) -> LineBlock:
        texts, numbers = [], []
        for index, record in enumerate(lines.split()):
            text = self._text_of(record, lines, index) if record.strip() else None
            if text is None and not self._keeps_lines:
                continue
            text = text or ""
            texts.append(text + "\n")
            numbers += [lines.number(index)] * (text.count("\n") + 1)
        return replace(lines, data="".join(texts).encode(), numbers=numbers)

    def _text_of(self, record: bytes, lines: LineBlock, index: int) -> str | None:
        """The text of a record; None for one that is dropped."""
        try:
            text, has_tokens = record_text(record, separator=self._separator, replaces=self._data.errors == "replace")
        except DataError as error:
            self.drop(lines, index, Fault(error.what, f"{error.hint}; {SKIP_HINT}", error.code))
            return None
        self.has_token_records |= has_tokens
        return text


class TextLine(NamedTuple):
    """The text on one line of a file."""

    text: str
    place: str  # `line 12 of notes.txt`


def read_texts(sources: Sources, data: ReadingConfig, *, separator: str | None = None) -> Iterator[list[TextLine]]:
    """The text on every line, a block at a time; that of a record may have several lines. One that is bad is empty."""
    for block in Reader(sources, data, separator=separator, keep_lines=True).blocks():
        found: dict[int, str] = {}
        for index, line in enumerate(block.split()):
            number = block.number(index)
            found[number] = f"{found[number]}\n{line.decode()}" if number in found else line.decode()
        yield [TextLine(text, f"line {number} of {block.source}") for number, text in found.items()]


def find_files(sources: Sources) -> list[Source]:
    """The files that sources stand for: of a directory all its files, sorted, without the hidden ones."""
    found: list[Source] = []
    for source in sources:
        if isinstance(source, MemorySource):
            found.append(source)
            continue
        if str(source) == STDIN or not os.path.isdir(source):  # noqa: PTH112  (Path.is_dir raises on odd names)
            found.append(str(source))
            continue
        files: list[Path] = []
        for folder, folders, names in os.walk(source, onerror=_raise_missing):
            folders[:] = [name for name in folders if not name.startswith(".")]
            files += [Path(folder, name) for name in names if not name.startswith(".")]
        if not files:
            raise MissingError(f"there are no files in the directory {source}")
        found += [str(path) for path in sorted(files)]
    return found


def _kind_of_pipe(lines: LineBlock) -> Kind:
    """What comes through a pipe has no name: JSON objects are known by their first line."""
    first = next((line for line in lines.split() if line.strip()), b"")
    try:
        return "records" if first.lstrip().startswith(b"{") and isinstance(json.loads(first), dict) else "lines"
    except (ValueError, RecursionError):
        return "lines"


def _raise_missing(error: OSError) -> None:
    raise unreadable(str(error.filename), error)


def cut_blocks(file: IO[bytes], source: str) -> Iterator[tuple[bytes, int]]:
    """Pieces of whole lines, each ended by a newline, and the number of the first line of each."""
    parts: list[bytes] = []  # of a line whose end has not come yet
    size, number, num_waiting = FIRST_BLOCK_BYTES, 1, 0
    # from a pipe what it has now, not what it may have later: whoever waits for an answer to a line gets it
    read = cast(BufferedReader, file).read1 if source == STDIN else file.read
    while piece := _guarded(read, size, source):
        size = min(2 * size, BLOCK_BYTES)
        cut = piece.rfind(b"\n") + 1
        if not cut:
            num_waiting += len(piece)
            _refuse_long_line(num_waiting, source, number)
            parts.append(piece)
            continue
        data = b"".join([*parts, piece[:cut]])
        parts, num_waiting = [piece[cut:]], len(piece) - cut
        yield data, number
        number += data.count(b"\n")
    last = b"".join(parts)
    if last:
        yield last + b"\n", number


def _guarded(read: Callable[[int], bytes], size: int, source: str) -> bytes:
    """read(size), or an error a user understands."""
    try:
        return read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise cut_short(source, error) from None
    except OSError as error:
        if "Invalid data stream" in str(error):  # what bz2 says
            raise cut_short(source, error) from None
        raise unreadable(source, error) from None


def _refuse_long_line(num_bytes: int, source: str, number: int) -> None:
    if num_bytes > MAX_LINE_BYTES:
        what = f"line {number} of {source} is longer than {MAX_LINE_BYTES >> 20} MB"
        raise DataError(
            what, code="line-too-long", hint="a line is what stands before a newline; does the file have any?"
        )


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _utf8_fault(line: bytes) -> Fault | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        what = f"is not UTF-8 at byte {error.start + 1} (0x{byte:02x})"
        # 0x80 to 0x9f are control characters in Latin-1, quotes and dashes in the encoding that Windows calls by that name
        name, encoding = ("Windows-1252", "CP1252") if 0x80 <= byte < 0xA0 else ("Latin-1", "LATIN1")
        guess = f"if it is {name}: iconv -f {encoding} -t UTF-8 FILE > NEW"
        return Fault(what, f"{guess}; --set data.errors=replace puts U+FFFD there, {SKIP_HINT}", "bad-utf8")
    return None


def _nul_fault(line: bytes) -> Fault | None:
    if b"\0" not in line:
        return None
    return Fault(f"has a NUL at byte {line.index(0) + 1}", f"is this a text? {SKIP_HINT}, --units byte accepts them")


def _refuse_wide(data: bytes, source: str) -> None:
    """An error for UTF-16 and UTF-32 without a byte order mark, whose letters are mostly NUL."""
    start = data[:300]
    if 3 * start.count(0) <= len(start):
        return
    if 3 * start.count(0) >= 2 * len(start):
        raise _not_utf8(f"{source} looks like UTF-32 (of four bytes, most are NUL)", "UTF-32" + _order(start))
    raise _not_utf8(f"{source} looks like UTF-16 (every other byte is NUL)", "UTF-16" + _order(start))


def _order(start: bytes) -> str:
    """Whether the NULs of letters stand before or behind them; without a mark, iconv has to be told."""
    return "BE" if start[0::2].count(0) > start[1::2].count(0) else "LE"


def _not_utf8(what: str, encoding: str) -> DataError:
    return DataError(what, code="not-text", hint=f"elman reads UTF-8: iconv -f {encoding} -t UTF-8 FILE > NEW")
