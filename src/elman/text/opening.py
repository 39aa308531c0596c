"""Bytes from wherever data are: files, compressed or not, stdin, CSV and Parquet as records, rows handed in from Python.

What is recognised as no text at all (a PDF, a picture, UTF-16) is refused by its name.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias, cast

from elman.core.errors import DataError, ElmanError, MissingError
from elman.text.csv_rows import begins_like_csv, csv_as_lines

STDIN = "-"
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
RECORDS = (".jsonl", ".ndjson")
PARQUET_ROWS = 1024  # rows of a Parquet file read at once

Kind = Literal["lines", "records", "csv"]  # plain lines; JSON objects a line; the rows of a CSV file as such objects

_MAGIC = {
    b"%PDF": "a PDF",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"{\\rtf": "an RTF document",
    b"\x80\x04\x95": "a Python pickle",
    b"\x93NUMPY": "a numpy array",
    b"ID3": "a sound",
    b"OggS": "a sound",
    b"RIFF": "a sound or film",
}
_UTF32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class MemorySource:
    """Lines or records that were handed in from Python."""

    name: str  # for messages
    data: bytes
    kind: Kind = "lines"

    def __str__(self) -> str:
        return self.name


Source: TypeAlias = str | Path | MemorySource
Sources: TypeAlias = Sequence[Source]


class Opened(NamedTuple):
    """A source that is open."""

    file: IO[bytes]
    kind: Kind


@contextmanager
def open_source(
    source: Source,
    *,
    header: bool | None = None,
    any_bytes: bool = False,
    any_encoding: bool = False,
    is_table: bool = False,
) -> Iterator[Opened]:
    """The bytes of a source, uncompressed. header: whether the first row of a CSV file names its columns.

    any_encoding: what is not UTF-8 is to be replaced. is_table: where a table is read, CSV is known in a pipe by its first row.
    """
    if isinstance(source, MemorySource):
        yield Opened(io.BytesIO(source.data), source.kind)
        return
    if str(source) == STDIN:
        with _open_stdin(any_bytes=any_bytes, any_encoding=any_encoding, header=header, is_table=is_table) as opened:
            yield opened
        return
    name = str(source)
    try:
        file = Path(name).open("rb")  # noqa: SIM115  (closed below)
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from None
    with file, _uncompressed(file, name) as plain:
        buffered = _with_peek(plain)
        inner = name_without_compression(name)
        start = _peek(buffered, name)
        if start.startswith(b"PAR1") or inner.endswith(".parquet"):
            yield Opened(cast(IO[bytes], io.BufferedReader(_Chunks(parquet_as_lines(name)))), "records")
            return
        if not any_bytes:
            refuse_binary(start, name, any_encoding=any_encoding)
        if inner.endswith(".csv"):
            lines, has_names = csv_as_lines(buffered, name, header=header)
            yield Opened(cast(IO[bytes], io.BufferedReader(_Chunks(lines))), "csv" if has_names else "lines")
            return
        yield Opened(cast(IO[bytes], buffered), "records" if inner.endswith(RECORDS) else "lines")


def _with_peek(file: IO[bytes]) -> io.BufferedReader:
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(Any, file))


@contextmanager
def _open_stdin(*, any_bytes: bool, any_encoding: bool, header: bool | None, is_table: bool) -> Iterator[Opened]:
    """Stdin, uncompressed like a file; what can only be read from a file is refused by its name."""
    if sys.stdin is None:
        raise MissingError("cannot read stdin: it is closed", hint="give a file, or pipe a text in")
    pipe = sys.stdin.buffer
    buffered = _with_peek(pipe)
    start = _peek(buffered, STDIN)
    for magic, what in ((b"PK\x03\x04", "a zip archive"), (b"PAR1", "Parquet")):
        if start.startswith(magic):
            raise DataError(
                f"stdin is {what}, which cannot be read from a pipe", code="not-text", hint="give the file by its name"
            )
    with _uncompressed(buffered, STDIN) as plain:
        text = _with_peek(plain)
        if not any_bytes:
            refuse_binary(_peek(text, STDIN), "stdin", any_encoding=any_encoding)
        if is_table and header is not False and begins_like_csv(text.peek()):
            lines, _ = csv_as_lines(text, STDIN, header=True)
            yield Opened(cast(IO[bytes], io.BufferedReader(_Chunks(lines))), "csv")
        else:
            yield Opened(cast(IO[bytes], text), "lines")
    if buffered is not pipe:
        buffered.detach()


def name_without_compression(name: str) -> str:
    """`pairs.tsv` for `pairs.tsv.gz`, in lower case."""
    name = name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return name


@contextmanager
def _uncompressed(file: io.BufferedReader, name: str) -> Iterator[IO[bytes]]:
    start = _peek(file, name)
    if start.startswith(b"\x1f\x8b") or name.endswith(".gz"):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast(IO[bytes], unpacked)
    elif start.startswith(b"BZh"):
        with bz2.BZ2File(file) as unpacked_bz2:
            yield cast(IO[bytes], unpacked_bz2)
    elif start.startswith(b"\xfd7zXZ\x00"):
        with lzma.LZMAFile(file) as unpacked_xz:
            yield cast(IO[bytes], unpacked_xz)
    elif start.startswith(b"\x28\xb5\x2f\xfd"):
        yield _open_zstandard(file, name)
    elif start.startswith(b"PK\x03\x04"):
        with _open_zip(file, name) as unpacked_zip:
            yield unpacked_zip
    else:
        yield cast(IO[bytes], file)


def _peek(file: io.BufferedReader, name: str) -> bytes:
    try:
        return file.peek(16)[:16]
    except ElmanError:
        raise
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:
        raise cut_short(name, error) from None


def _open_zstandard(file: io.BufferedReader, name: str) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        hint = f"pip install zstandard, or unpack it first: zstd -d {name}"
        raise DataError(
            f"{name} is compressed by zstd, for which a package is missing", code="missing-package", hint=hint
        ) from None
    return cast(IO[bytes], _Chunks(_zstandard_chunks(file, zstandard)))


def _zstandard_chunks(file: io.BufferedReader, zstandard: Any) -> Iterator[bytes]:
    """One frame or several; a stream that ends in the middle of one is an error."""
    frame = None
    while data := file.read(1 << 17):
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj() if frame is None or frame.eof else frame
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            data = frame.unused_data if frame.eof else b""
    if frame is not None and not frame.eof:
        raise EOFError("the stream ends in the middle")


class _Chunks(io.RawIOBase):
    """Pieces of bytes that are made one by one, as a file to read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or a part of it; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


@contextmanager
def _open_zip(file: io.BufferedReader, name: str) -> Iterator[IO[bytes]]:
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise cut_short(name, error) from None
    with archive:
        members = [member for member in archive.namelist() if not member.endswith("/")]
        if any(member.startswith(("word/", "xl/", "ppt/")) for member in members):
            raise DataError(
                f"{name} is an Office document, not text", code="not-text", hint="save it as plain text or CSV"
            )
        if len(members) != 1:
            hint = "unpack it and give the files, or their directory"
            raise DataError(f"{name} holds {len(members)} files, expected one", code="broken-archive", hint=hint)
        with archive.open(members[0]) as unpacked:
            yield unpacked


def parquet_as_lines(name: str) -> Iterator[bytes]:
    """The rows of a Parquet file as JSON objects, a line each."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise DataError(
            f"{name} is Parquet, for which a package is missing", code="missing-package", hint="pip install pyarrow"
        ) from None
    try:
        table = parquet.ParquetFile(name)
    except (ArrowInvalid, OSError) as error:
        raise DataError(
            f"{name} is no whole Parquet file: {error}", code="broken-archive", hint="copy it again"
        ) from None
    for batch in table.iter_batches(batch_size=PARQUET_ROWS):
        for row in batch.to_pylist():
            yield json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"


def refuse_binary(start: bytes, name: str, *, any_encoding: bool) -> None:
    """An error for what begins like something else than text, or than UTF-8 unless that is to be replaced."""
    for marks, encoding in () if any_encoding else ((_UTF32, "UTF-32"), (_UTF16, "UTF-16")):
        if start.startswith(marks):
            hint = f"elman reads UTF-8: iconv -f {encoding} -t UTF-8 {name} > NEW"
            raise DataError(f"{name} is {encoding}", code="not-text", hint=hint)
    for magic, what in _MAGIC.items():
        if start.startswith(magic):
            raise DataError(
                f"{name} is {what}, not text", code="not-text", hint="give a file of text, or turn it into one first"
            )


def unreadable(name: str, error: OSError | ValueError) -> MissingError:
    """What a file that cannot be opened is told as."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    hint = "is the name right, and may you read it?"
    if any(sign in name for sign in "*?["):
        hint = "no file matches it, or it was in quotes: a shell puts names in its place"
    return MissingError(f"cannot read {name}: {why}", hint=hint)


def cut_short(name: str, error: Exception) -> DataError:
    """What a damaged compressed file is told as."""
    hint = "the file is cut short or damaged; copy it again"
    kind = "gzip" if name.endswith(".gz") or isinstance(error, gzip.BadGzipFile) else "compressed"
    return DataError(f"{name} is not a whole {kind} file: {error}", code="broken-archive", hint=hint)
